"""The endpoint, asked over HTTP and read by Prometheus' own parser."""

import socket
import threading
import urllib.request

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from pakka.contract.lag import Lag
from pakka.errors import UsageError
from pakka.model.event import Committed, Delivered, Retried, Started
from pakka.model.latency import Latency
from pakka.observe.catalogue import METRICS
from pakka.observe.endpoint import fetch, serve
from pakka.observe.figures import SOURCE, Figures

LATENCY = Latency({0: 100}, 2.0)


@pytest.fixture
def figures() -> Figures:
    figures = Figures("refunds", ["refunds", "audit"], lambda: 1_763_208_000.0)
    figures.take(Started("refunds", 7, 41, 0, 0))
    figures.take(Committed("refunds", 42, "audit", 90, 2, True, 0.4))
    figures.take(Retried("refunds", 42, "refunds", False, "busy", 0.1))
    figures.take(Delivered("refunds", 42, True, 100, {"refunds": 90, "audit": 90}, 0, 10, 0.5, 0.4, latency=LATENCY))
    figures.see_doubts({"refunds": (2, 12.5)}, [])
    figures.see_lags({SOURCE: [Lag("settlements", 3, 120, 8, 3.5)]}, [])
    return figures


def families(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def test_every_metric_of_the_catalogue_is_served_with_its_type_labels_and_meaning(figures):
    with serve(figures, "127.0.0.1", 0) as url:
        found = families(url)
    assert set(found) == {metric.name.removesuffix("_total") for metric in METRICS}
    for metric in METRICS:
        family = found[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.meaning)
        labels = {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}
        assert labels == {tuple(sorted(metric.labels))}, metric.name


def test_nothing_is_served_that_is_not_ours(figures):
    """What the client library counts of the process, and its times of creation, would be figures nobody has described."""
    with serve(figures, "127.0.0.1", 0) as url:
        assert all(name.startswith("pakka_") and not name.endswith("_created") for name in families(url))
    assert "pakka_fence" not in {family.name for family in REGISTRY.collect()}


def test_values_are_served_with_their_labels(figures):
    with serve(figures, "127.0.0.1", 0) as url:
        found = fetch(url, "refunds")
        assert fetch(url, "orders") is None
    assert found["pakka_fence"] == {(): 7}
    assert found["pakka_commits_total"] == {(("sink", "audit"),): 1, (("sink", "refunds"),): 0}
    place = (("part", "source"), ("partition", "3"), ("sink", ""), ("topic", "settlements"))
    assert found["pakka_lso_lag_records"] == {place: 8}
    counts = {dict(at)["le"]: n for at, n in found["pakka_record_latency_seconds_bucket"].items()}
    assert (counts["1.0"], counts["2.5"], counts["+Inf"]) == (0, 100, 100)
    assert found["pakka_record_latency_seconds_count"] == {(): 100}
    assert found["pakka_record_latency_seconds_sum"] == {(): 200}


def test_the_endpoint_is_gone_with_the_run(figures):
    with serve(figures, "127.0.0.1", 0) as url:
        pass
    assert fetch(url, "refunds") is None


def test_a_port_that_is_taken_is_told_before_anything_starts(figures):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot be served at 127.0.0.1:{port}: .*nothing was started"):
            serve(figures, "127.0.0.1", port).__enter__()


def test_an_address_that_is_not_this_machines_is_told(figures):
    with pytest.raises(UsageError, match=r"cannot be served at 192\.0\.2\.7:0"):
        serve(figures, "192.0.2.7", 0).__enter__()


def test_an_endpoint_for_the_whole_machine_is_named_by_the_machine(figures):
    with serve(figures, "0.0.0.0", 0) as url:
        assert url.startswith(f"http://{socket.gethostname()}:")


@pytest.mark.parametrize(
    "answer", [b"what?\n\n", b"HTTP/1.0 200 OK\r\n\r\n<html>", b"HTTP/1.0 404 Not found\r\n\r\n", b""]
)
def test_somebody_else_at_that_port_is_nobody(answer):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def answer_once() -> None:
            line, _ = other.accept()
            with line:
                line.recv(1000)
                line.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        assert fetch(f"http://127.0.0.1:{other.getsockname()[1]}/metrics", "refunds") is None
        thread.join()
