"""Every sink that pakka ships keeps the contract, and every waiver is one that a reader of the docs would expect."""

import pytest

from pakka.registry import SINKS
from pakka.testing import SinkContract, Waiver
from pakka.testing.contract import CASES, Beside, Golden
from tests.conformance import harnesses, record
from tests.conformance.harnesses import GOLDEN, HARNESSES
from tests.conformance.kafka import KafkaHarness
from tests.conformance.mysql import MysqlHarness
from tests.conformance.postgres import PostgresHarness
from tests.conformance.test_kafka import TestKafka as OfKafka
from tests.conformance.test_mysql import TestMysql as OfMysql
from tests.conformance.test_postgres import TestPostgres as OfPostgres

_VALUES = [name for name, case in CASES.items() if case.promise is Beside.VALUES]


class TestMemory(SinkContract):
    harness = harnesses.MemoryHarness
    waivers = (
        Waiver(
            "an_old_fence_cannot_prepare",
            "rows ride inside the record, so a writer touches nothing that is fenced; its commit is refused",
        ),
        Waiver("another_process_commits_a_prepared", "its rows live in one process, and are gone with it"),
        Waiver(
            "commit_after_abort_is_refused",
            "rows ride inside the record, so there is nothing that abort could take away; no decision names it",
        ),
    )


class TestParquet(SinkContract):
    harness = harnesses.ParquetHarness


class TestPartitioned(SinkContract):
    harness = harnesses.PartitionedHarness
    waivers = tuple(
        Waiver(case, "it is partitioned by a column that these rows do not have, and says just that")
        for case in _VALUES
    )


class TestJson(SinkContract):
    harness = harnesses.JsonHarness


class TestCsv(SinkContract):
    harness = harnesses.CsvHarness


class TestSqlite(SinkContract):
    harness = harnesses.SqliteHarness


class TestGuide(SinkContract):
    harness = harnesses.GuideHarness
    waivers = tuple(
        Waiver(case, "its table has three columns, and the page leaves it to `open_encoder` to refuse other rows")
        for case in _VALUES
    )


_FOR_PEOPLE = "it shows values to people, cut to forty characters, and nobody reads them back"


class TestConsole(SinkContract):
    harness = harnesses.ConsoleHarness
    waivers = (
        Waiver("ledger_tells_the_truth", "a terminal remembers nothing, so the sink is at-least-once"),
        Waiver(
            "a_lost_answer_is_unknown_and_ends_in_one_copy",
            "a terminal cannot say whether it has shown an epoch, so it is shown again",
        ),
        Waiver(
            "an_old_fence_overtaken_in_its_commit_changes_nothing",
            "a terminal obeys whoever writes to it: a driver overtaken in its last step still shows its epoch",
        ),
        Waiver("every_spark_type_reads_back_or_is_refused", _FOR_PEOPLE),
        Waiver("hard_numbers_read_back_or_are_refused", _FOR_PEOPLE),
        Waiver("hard_texts_read_back_or_are_refused", _FOR_PEOPLE),
        Waiver("nested_values_read_back_or_are_refused", _FOR_PEOPLE),
    )


CONTRACTS = [TestMemory, TestParquet, TestPartitioned, TestJson, TestCsv, TestSqlite, TestGuide, TestConsole]


ON_SERVERS = {"postgres": PostgresHarness, "mysql": MysqlHarness, "kafka": KafkaHarness}
SCRIPTED = [harness.name for harness in record.ON_SERVERS]
"""A golden record of theirs has a script beside it."""


@pytest.mark.parametrize("name", SINKS)
def test_a_registered_sink_has_a_harness(name):
    assert name in {**HARNESSES, **ON_SERVERS}, (
        f"sink `{name}` is registered and nothing tests its contract: write a harness for it"
    )


@pytest.mark.parametrize("name", [*HARNESSES, *ON_SERVERS])
def test_a_harness_is_run_by_a_contract(name):
    harness = {**HARNESSES, **ON_SERVERS}[name]
    assert [c for c in (*CONTRACTS, OfPostgres, OfMysql, OfKafka) if c.harness is harness], (
        f"no SinkContract runs the harness of `{name}`"
    )


PROMISES = {
    "memory": "exactly-once, spooled",
    "parquet": "exactly-once, published",
    "json": "exactly-once, published",
    "csv": "exactly-once, published",
    "sqlite": "exactly-once, spooled",
    "postgres": "exactly-once, prepared",
    "mysql": "exactly-once, prepared",
    "kafka": "exactly-once, spooled",
    "console": "at-least-once, spooled",
}


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_declares_what_the_docs_say_of_it(name, tmp_path):
    guarantee = {**HARNESSES, **ON_SERVERS}[name](tmp_path).sink().guarantee()
    assert f"{guarantee.level}, {guarantee.way.value}" == PROMISES[name]


@pytest.mark.parametrize("name", [*HARNESSES, *SCRIPTED, "kafka"])
def test_a_harness_has_a_golden_record_of_a_release(name):
    golden = Golden.read(GOLDEN / f"{name}.json")
    assert golden.version
    assert len(golden.rows) == sum(p.rows for p in golden.prepared) == 8
    assert (GOLDEN / f"{name}.sql").exists() == (name in SCRIPTED)


def test_only_at_least_once_sinks_waive_what_exactly_once_needs(tmp_path):
    needed = {name for name in CASES if name.startswith(("commit_twice", "a_lost_answer", "ledger", "many_writers"))}
    for contract in CONTRACTS:
        waived = needed & {w.case for w in contract.waivers}
        level = str(contract.harness(tmp_path / contract.__name__).sink().guarantee().level)
        assert not waived or level == "at-least-once", contract.__name__
