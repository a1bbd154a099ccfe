"""The page of metrics is made from the catalogue, and the alerts speak of what is there.

`PAKKA_WRITE_DOCS=1 pytest tests/docs/test_metrics.py` brings the page up to date.
"""

import os
import re

import pytest
import yaml

from pakka.observe.catalogue import METRICS, Kind, Metric
from pakka.observe.sampler import EVERY_S
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
RULES = yaml.safe_load((ROOT / "docs" / "reference" / "alerts.yml").read_text())["groups"][0]["rules"]
PART = re.compile(r"<!-- metrics -->\n.*?<!-- end -->", re.DOTALL)
NAMES = {metric.name: metric for metric in METRICS}


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels[1:]) or "-"
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} | `{metric.alert}` |"


def table() -> str:
    head = ["| name | type | labels | meaning | to be told of |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *map(row, METRICS)])


def test_the_page_names_every_metric_with_its_meaning_and_an_alert():
    expected = PART.sub(lambda _: f"<!-- metrics -->\n{table()}\n<!-- end -->", PAGE.read_text())
    if "PAKKA_WRITE_DOCS" in os.environ:
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "run `PAKKA_WRITE_DOCS=1 pytest tests/docs/test_metrics.py`"


def test_the_figures_on_the_page_are_those_of_the_code():
    assert f"every {EVERY_S:.0f} seconds" in PAGE.read_text()


def spoken_of(expression: str) -> list[tuple[Metric, str]]:
    """The metrics in an expression, each with the text of its selector."""
    found = []
    for name, selector in re.findall(r"(pakka_\w+)(\{[^}]*\})?", expression):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        found.append((NAMES[base if base in NAMES and NAMES[base].kind is Kind.HISTOGRAM else name], selector))
    return found


EXPRESSIONS = [metric.alert for metric in METRICS] + [rule["expr"] for rule in RULES]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_alert_speaks_of_metrics_and_labels_that_are_there(expression):
    spoken = spoken_of(expression)
    assert spoken
    for metric, selector in spoken:
        assert set(re.findall(r"(\w+)(?:=|!=|=~)\"", selector)) <= set(metric.labels)
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_an_alert_of_a_metric_is_about_that_metric(metric):
    assert metric in [spoken for spoken, _ in spoken_of(metric.alert)]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r["alert"])
def test_a_rule_says_what_happened_with_labels_that_it_has(rule):
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert labels
    for metric, _ in spoken_of(rule["expr"]):
        assert labels <= set(metric.labels)


def test_a_metric_that_is_not_there_is_found():
    with pytest.raises(KeyError):
        spoken_of("rate(pakka_epochs_total[5m]) > 0")
