"""A pipeline into a real PostgreSQL and MariaDB: what it says when the server refuses what is decided, and how it goes on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from pakka.contract.sink import Sink
from pakka.errors import RegressError, SinkError
from pakka.model.id import Binding
from pakka.sinks._postgres_writer import _lines as postgres_lines
from pakka.sinks.mysql import MysqlSink
from pakka.sinks.postgres import PostgresSink
from pakka.testing.store import MemoryStore
from tests.fixtures import mysql
from tests.unit.coordinator.stage import Crash, Stage, crash_at

TABLE = "CREATE TABLE refunds (id bigint PRIMARY KEY, CONSTRAINT small CHECK (id < 9))"


@dataclass(frozen=True)
class Base:
    """A database: a sink into its table `refunds`, and a client who knows nothing of pakka."""

    make: Callable[..., Sink]
    ask: Callable[[str], list[Any] | None]

    def stage(self, **options: Any) -> Stage:
        return Stage({"book": self.make(**options)})

    def ids(self) -> list[int]:
        return [i for (i,) in self.ask("SELECT id FROM refunds ORDER BY id") or ()]


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mysql")])
def base(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the stage has its spool in the current directory
    url = request.getfixturevalue(f"{request.param}_url")
    if request.param == "mysql":
        yield Base(lambda **options: MysqlSink(url, "refunds", **options), lambda words: mysql.query(url, words))
        return

    def ask(statement: str) -> list[Any] | None:
        with psycopg.connect(url, autocommit=True) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else None

    yield Base(lambda **options: PostgresSink(url, "refunds", **options), ask)
    for lines in postgres_lines.values():
        lines.close()
    postgres_lines.clear()


def test_a_constraint_that_breaks_after_the_decision_says_what_to_change_and_the_next_run_finishes(base):
    base.ask(TABLE)
    stage = base.stage(mode="upsert", key=("id",))
    stage.run(0)
    # Epoch 1 has ids 6 to 11, and nobody can see before its commit that the table takes them up to 8 only.
    with pytest.raises(SinkError) as raised:
        stage.run(1)
    assert "epoch 1 is decided and not yet visible" in raised.value.message
    assert "small" in raised.value.message
    sinks, _, ours = raised.value.hint.partition("; epoch 1 is decided")
    assert "change the table" in sinks
    assert ours == (
        " and its rows stay as they are: once the sink takes them, `pakka indoubt resolve refunds`, or the next `pakka run`, "
        "finishes it; do not replay by hand"
    )
    assert base.ids() == stage.ids(0)
    # 2. It is true: nothing else helps, and that does.
    with pytest.raises(SinkError, match="small"):
        stage.run(1)
    base.ask("ALTER TABLE refunds DROP CONSTRAINT small")
    stage.run(2)
    assert base.ids() == stage.ids(2)


@pytest.mark.postgres
def test_a_right_that_is_missing_after_the_decision_says_who_has_it(postgres_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at = urlsplit(postgres_url)
    clerk = f"clerk_{at.path.removeprefix('/')}"
    stage = Stage({"book": PostgresSink(postgres_url, "refunds", way="prepared")})
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {clerk} LOGIN PASSWORD 'ink'")
        db.execute(f"GRANT ALL ON refunds, pakka_fence, pakka_ledger TO {clerk}")
    ours = stage.sinks
    stage.sinks = {"book": replace(ours["book"], url=f"postgresql://{clerk}:ink@{at.hostname}:{at.port}{at.path}")}
    with pytest.raises(SinkError, match=r"epoch 0 is decided and not yet visible: .* stays prepared") as raised:
        stage.run(0)
    assert raised.value.hint.startswith("run as the user who prepared it, or as a superuser; epoch 0 is decided")
    stage.sinks = ours
    stage.run(1)
    with psycopg.connect(postgres_url) as db:
        assert [i for (i,) in db.execute("SELECT id FROM refunds ORDER BY id")] == stage.ids(1)


def refused(stage: Stage, upto: int, words: str) -> None:
    """The run is refused, and says which command accepts the table as it is."""
    with pytest.raises(RegressError, match=words) as raised:
        stage.run(upto)
    assert "`pakka reset refunds --sink book`" in raised.value.hint


@pytest.mark.parametrize("is_settled", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("copy", ["older", "empty"])
def test_a_table_restored_from_an_older_copy_is_accepted_and_nothing_comes_twice(base, copy, is_settled):
    stage = base.stage(way="prepared")
    if is_settled:
        stage.run(1)
    else:
        with crash_at("begin", nth=3), pytest.raises(Crash):
            stage.run(2)  # epoch 1 is acknowledged, and its decision is still open
    lost = "refunds WHERE id >= 6", "pakka_ledger WHERE epoch = 1"
    for rows in lost if copy == "older" else ("refunds", "pakka_ledger", "pakka_fence"):
        base.ask(f"DELETE FROM {rows}")
    kept = base.ids()
    refused(stage, 2, "sink `book` holds (only epochs up to 0|nothing) of this pipeline")
    stage.reset().accept_sink("book").apply()
    stage.run(3)
    assert base.ids() == kept + [i for i in stage.ids(3) if i not in stage.ids(1)]
    # 2. The next start finds nothing to settle or to refuse.
    stage.run(4)
    assert base.ids() == kept + [i for i in stage.ids(4) if i not in stage.ids(1)]


def test_an_epoch_in_part_whose_rest_is_lost_and_comes_out_differently_is_accepted_as_it_is(base):
    stage = base.stage(way="prepared")
    with crash_at("decide.after"), pytest.raises(Crash):
        stage.run(0)
    committer = stage.sinks["book"].open_committer(Binding("refunds", "book", "spool"), 1)
    for record in committer.pending():
        if record.slot.number == 1:
            committer.clerk.roll_back(record.detail["id"])  # as an administrator does
    committer.close()
    stage.rows = 4
    refused(stage, 0, "epoch 0 had to run again, and sink `book` holds 3 rows")
    stage.reset().accept_sink("book").apply()
    stage.run(1)
    assert base.ids() == [0, 1, 2, *range(8, 16)]


def test_an_epoch_in_part_that_no_decision_names_is_accepted_as_it_is(base):
    stage = base.stage(way="prepared")
    with crash_at("commit.slot", nth=2), pytest.raises(Crash):
        stage.run(0)
    stage.store, stage.rows = MemoryStore(), 4
    refused(stage, 0, "epoch 0 had to run again, and sink `book` holds 3 rows")
    stage.reset().accept_sink("book").apply()
    stage.run(1)
    assert base.ids() == [0, 1, 2, *range(8, 16)]
