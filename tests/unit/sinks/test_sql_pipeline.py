"""A pipeline into a real PostgreSQL and MariaDB: what it says when the server refuses what is decided, and how it goes on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from pakka.contract.sink import Sink
from pakka.coordinator.doubt import Case, Desk, Fate
from pakka.coordinator.epoch import Harvest
from pakka.errors import FencedError, RegressError, SinkError, UnavailableError
from pakka.model.epoch import Epoch
from pakka.model.guarantee import Way
from pakka.model.id import Binding
from pakka.sinks._postgres_writer import _lines as postgres_lines
from pakka.sinks.mysql import MysqlSink
from pakka.sinks.postgres import PostgresSink
from pakka.testing.store import MemoryStore
from tests.fixtures import mysql, postgres
from tests.unit.coordinator.stage import Crash, Stage, crash_at

PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
TABLE = "CREATE TABLE refunds (id bigint PRIMARY KEY, CONSTRAINT small CHECK (id < 9))"


@dataclass(frozen=True)
class Base:
    """A database: a sink into its table `refunds`, and a client who knows nothing of pakka."""

    make: Callable[..., Sink]
    ask: Callable[[str], list[Any] | None]
    prepared: Callable[[], list[Any]]

    def stage(self, **options: Any) -> Stage:
        return Stage({"book": self.make(**options)})

    def staged(self) -> tuple[int, int]:
        """How many slots wait on the server, and how many in the spool."""
        return len(self.prepared()), len([*Path("spool").glob("*/fence-*/pakka.*")])

    def ids(self) -> list[int]:
        return [i for (i,) in self.ask("SELECT id FROM refunds ORDER BY id") or ()]


@pytest.fixture(autouse=True)
def no_line_is_left():
    yield
    for lines in postgres_lines.values():
        lines.close()
    postgres_lines.clear()


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mysql")])
def base(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the stage has its spool in the current directory
    url = request.getfixturevalue(f"{request.param}_url")
    if request.param == "mysql":
        make, ask_mysql = partial(MysqlSink, url, "refunds"), partial(mysql.query, url)
        yield Base(make, ask_mysql, lambda: mysql.branches(url))
        return

    def ask(statement: str) -> list[Any] | None:
        with psycopg.connect(url, autocommit=True) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else None

    yield Base(partial(PostgresSink, url, "refunds"), ask, lambda: ask(PREPARED) or [])


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


# --- The way changes between two runs

STAGED = {"prepared": (2, 0), "spooled": (0, 2)}
CHANGES = pytest.mark.parametrize(("former", "way"), [("prepared", "spooled"), ("spooled", "prepared")])


def in_doubt(stage: Stage) -> tuple[Case, ...]:
    found = Desk("refunds", stage.sinks, 2, "spool", lambda: 0.0, lambda _: False).survey(stage.store)
    assert not found.troubles
    return found.cases


@CHANGES
def test_what_was_left_undecided_is_told_and_undone_by_a_run_that_goes_the_other_way(base, former, way):
    stage = base.stage(way=former)
    with crash_at("decide.before", nth=2), pytest.raises(Crash):
        stage.run(1)
    assert base.staged() == STAGED[former]
    stage.sinks = {"book": base.make(way=way)}
    assert [(case.slot.epoch, case.slot.number, case.fate) for case in in_doubt(stage)] == [
        (1, 0, Fate.ABORT),
        (1, 1, Fate.ABORT),
    ]
    assert base.staged() == STAGED[former]
    stage.run(2)
    assert (base.ids(), base.staged()) == (stage.ids(2), (0, 0))
    # 2. And back.
    stage.sinks = {"book": base.make(way=former)}
    stage.run(3)
    assert (base.ids(), base.staged()) == (stage.ids(3), (0, 0))


@CHANGES
def test_what_is_decided_is_left_to_the_way_it_was_prepared(base, former, way):
    stage = base.stage(way=former)
    with crash_at("decide.after", nth=2), pytest.raises(Crash):
        stage.run(1)
    stage.sinks = {"book": base.make(way=way)}
    told = f"epoch 1 is decided and not yet visible: .* was prepared the `{former}` way, and this run's is `{way}`"
    with pytest.raises(SinkError, match=told) as raised:
        stage.run(2)
    assert raised.value.hint.startswith(f"set `way: {former}`, and `pakka indoubt resolve` finishes it")
    assert [case.fate for case in in_doubt(stage)] == [Fate.COMMIT] * 2
    assert (base.ids(), base.staged()) == (stage.ids(0), STAGED[former])
    stage.sinks = {"book": base.make(way=former)}
    stage.run(1)
    stage.sinks = {"book": base.make(way=way)}
    stage.run(2)
    assert (base.ids(), base.staged()) == (stage.ids(2), (0, 0))


@CHANGES
def test_an_epoch_whose_decision_is_open_and_that_is_committed_is_no_reason_to_refuse_the_other_way(base, former, way):
    stage = base.stage(way=former)
    # Epoch 0 is acknowledged and its decision still open, and epoch 1 is left undecided.
    with crash_at("decide.before", nth=2), pytest.raises(Crash):
        stage.run(1)
    assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
    stage.sinks = {"book": base.make(way=way)}
    stage.run(1)
    assert (base.ids(), base.staged()) == (stage.ids(1), (0, 0))


@CHANGES
def test_a_driver_of_the_other_way_that_was_taken_over_from_changes_nothing(base, former, way):
    stage = base.stage(way=former)
    old = stage.driver()
    old.start(stage.checkpoint())

    def overtaken(epoch: Epoch, fence: int) -> Harvest:
        harvest = stage.prepare(epoch, fence)
        heir.sinks = {"book": base.make(way=way)}
        heir.run(0)
        return harvest

    heir = base.stage()
    heir.store = stage.store
    with pytest.raises(FencedError):
        old.deliver(stage.origin(0), overtaken)
    assert (base.ids(), base.staged()) == (stage.ids(0), (0, 0))
    heir.run(1)
    assert (base.ids(), base.staged()) == (stage.ids(1), (0, 0))


@pytest.mark.postgres
def test_auto_that_chooses_another_way_after_the_server_was_set_otherwise_undoes_what_was_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with postgres.running_server(postgres.need_binaries(), max_prepared_transactions="0") as server:
        sink = PostgresSink(server.create_database(), "refunds")
        stage = Stage({"book": sink.choose(2)})
        assert stage.sinks["book"].guarantee().way is Way.SPOOLED
        with crash_at("decide.before", nth=2), pytest.raises(Crash):
            stage.run(1)
        server.stop()
        server.settings["max_prepared_transactions"] = "2"
        server.restart()
        stage.sinks = {"book": sink.choose(2)}
        assert stage.sinks["book"].guarantee().way is Way.PREPARED
        with crash_at("decide.before", nth=2), pytest.raises(Crash):
            stage.run(2)
        assert not [*Path("spool").glob("*/fence-*/pakka.*")]
        # 2. More slots than the server prepares.
        stage.sinks = {"book": sink.choose(3)}
        assert stage.sinks["book"].guarantee().way is Way.SPOOLED
        stage.run(3)
        with psycopg.connect(sink.url) as db:
            assert [i for (i,) in db.execute("SELECT id FROM refunds ORDER BY id")] == stage.ids(3)
            assert db.execute(PREPARED).fetchall() == []


@pytest.mark.mysql
def test_a_user_who_may_not_see_what_is_prepared_is_not_let_past_it(mysql_server, mysql_url, tmp_path, monkeypatch):
    if mysql_server.is_mariadb:
        pytest.skip("every user of MariaDB sees what is prepared")
    monkeypatch.chdir(tmp_path)
    database = mysql.database_of(mysql_url)
    with mysql_server.admin() as db, db.cursor() as cursor:
        cursor.execute(f"CREATE USER {database}@'%' IDENTIFIED BY 'ink'")
        cursor.execute(f"GRANT ALL ON {database}.* TO {database}@'%'")
    stage = Stage({"book": MysqlSink(mysql_url, "refunds", way="prepared")})
    with crash_at("decide.before", nth=2), pytest.raises(Crash):
        stage.run(1)
    theirs = MysqlSink(f"mysql://{database}:ink@{mysql_url.rpartition('@')[2]}", "refunds")
    stage.sinks = {"book": theirs.choose(2)}
    assert stage.sinks["book"].guarantee().way is Way.SPOOLED
    assert in_doubt(stage) == ()
    with pytest.raises(UnavailableError, match="the fence cannot be raised") as raised:
        stage.run(1)
    assert "let an administrator see what is prepared" in raised.value.hint
    with mysql_server.admin() as db, db.cursor() as cursor:
        cursor.execute(f"GRANT XA_RECOVER_ADMIN ON *.* TO {database}@'%'")
    assert len(in_doubt(stage)) == 2
    stage.run(2)
    assert [i for (i,) in mysql.query(mysql_url, "SELECT id FROM refunds ORDER BY id")] == stage.ids(2)
    assert mysql.branches(mysql_url) == []
