"""The page of settings names every probe there is, and none that is not, and marks the ones that are read once."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pakka import kafka_topic
from pakka.contract.audit import Probe
from pakka.durability import Spool, place_probes, sqlite_probes
from pakka.sinks import _kafka_judge, _kafka_probes, _kafka_timeout, _mysql_probes, _postgres_probes
from pakka.sinks.files import ParquetSink
from pakka.sinks.kafka import KafkaSink
from pakka.sources.kafka import KafkaSource
from pakka.state.postgres import PostgresStore
from tests.docs.pages import ROOT

DAY_MS = 24 * 3600 * 1000
PAGE = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")


def never():
    raise AssertionError("making the list of probes does no I/O")


def sqlite() -> list[Probe]:
    place = {p.name for p in place_probes(Path("a.db"))}
    return [p for p in sqlite_probes(Path("a.db"), never) if p.name not in place]


def rows(heading: str) -> dict[str, bool]:
    """The settings below a heading, and whether each is read once only."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return {
        name.removesuffix(" (*once*)"): name.endswith(" (*once*)") for name in named if name not in ("setting", "---")
    }


@pytest.mark.parametrize(
    ("heading", "probes"),
    [
        ("Files", ParquetSink("out").probes()),
        ("SQLite", sqlite()),
        ("PostgreSQL as a state store", PostgresStore.probes(object.__new__(PostgresStore))),
        ("PostgreSQL as a sink", _postgres_probes.postgres_probes(_postgres_probes.Subject(never, "refunds"))),
        ("Kafka as a source", KafkaSource("localhost:1", "refunds", format="raw").probes()),
        ("Kafka as a sink", KafkaSink("localhost:1", "refunds").probes()),
        ("MySQL and MariaDB as a sink", _mysql_probes.mysql_probes(_mysql_probes.Subject(never, "shop", "refunds"))),
    ],
)
def test_the_page_names_every_setting_that_is_read(heading: str, probes: Sequence[Probe]):
    assert rows(heading) == {probe.name: not probe.is_cheap for probe in probes}


def test_the_spool_has_what_the_page_says():
    assert [p.name for p in Spool("spool").probes()] == list(rows("Files"))[:3]


def test_the_figures_on_the_page_are_those_of_the_code():
    assert _postgres_probes.OLD_S == _mysql_probes.OLD_S == 3600
    assert _postgres_probes.LONG_S == 600
    assert (_kafka_probes.OLDEST, _kafka_probes.OPEN_S) == ((3, 0), 60)
    assert (kafka_topic.KEPT_MS, _kafka_judge.OUTAGE_MS, _kafka_judge.SKEW_MS) == (DAY_MS, DAY_MS, 60_000)
    assert (_kafka_timeout.SHORT_MS, _kafka_timeout.HELD_MS, _kafka_timeout.LONG_MS) == (60_000, 300_000, 3_600_000)
    assert (_postgres_probes.OLDEST, _mysql_probes.OLDEST_MYSQL, _mysql_probes.OLDEST_MARIADB[:2]) == (
        120000,
        (5, 7, 7),
        (10, 5),
    )
