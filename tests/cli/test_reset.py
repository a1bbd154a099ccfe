"""`pakka reset`: a dry run that says what follows, and then does it. What it does is tested with the coordinator."""

import json
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pyarrow import dataset

from pakka.config import load
from pakka.errors import RegressError
from pakka.sinks.memory import MemorySink, Space
from pakka.sinks.postgres import PostgresSink
from pakka.state import open_store
from tests.unit.coordinator.stage import Stage

STATE = "sqlite:///.pakka/state.db"


@pytest.fixture
def space() -> str:
    return f"space-{uuid.uuid4()}"


@pytest.fixture
def delivered(refunds, space) -> Stage:
    """Pipeline `refunds` has delivered epochs 0 to 2, and its checkpoint is gone."""
    refunds.write_text(refunds.read_text().replace("space: refunds", f"space: {space}"))
    with closing(open_store(STATE)) as store:
        stage = Stage({"refunds": MemorySink(space)}, store)
        stage.run(2)
        return stage


def state():
    with closing(open_store(STATE, must_exist=True)) as store:
        return store.read("refunds")


def test_a_dry_run_says_what_would_be_done(pakka, delivered, current_directory):
    result = pakka("reset", "refunds", "--checkpoint")
    assert result.exit_code == 0
    assert (
        result.stdout
        == f"""\
reset of pipeline `refunds`, if done:
  1. take the fence of pipeline `refunds`: a driver that still runs (the last was process 1 on host) will stop
  2. deliver batch 0 of the checkpoint at {current_directory}/.pakka/checkpoints/refunds as epoch 3

what follows:
  - the checkpoint is new: Spark reads the source from its beginning, and rows delivered before are delivered again
"""
    )
    assert result.stderr == "nothing was changed; add --yes to do it\n"
    assert (state().fence, state().is_reset) == (1, False)


def test_with_yes_it_is_done(pakka, delivered):
    result = pakka("reset", "refunds", "--checkpoint", "--yes")
    assert (result.exit_code, result.stderr) == (0, "done\n")
    assert result.stdout.startswith("reset of pipeline `refunds`:\n  1. take the fence")
    assert (state().fence, state().base, state().is_reset) == (2, 3, True)


def test_the_checkpoint_is_read_without_spark(pakka, delivered, current_directory):
    checkpoint = current_directory / ".pakka" / "checkpoints" / "refunds"
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/1"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text("v1\n{}")
    (checkpoint / "metadata").write_text('{"id": "q-1"}')
    assert pakka("reset", "refunds", "--checkpoint", "--yes").exit_code == 0
    assert state().base == 1


def test_programs_get_the_plan(pakka, delivered):
    told = json.loads(pakka("reset", "refunds", "--checkpoint", "--json").stdout)
    assert (told["pipeline"], told["accept"], told["is_done"]) == ("refunds", "checkpoint", False)
    assert len(told["steps"]) == 2
    assert len(told["follows"]) == 1
    told = json.loads(pakka("reset", "refunds", "--checkpoint", "--json", "--yes").stdout)
    assert told["is_done"] is True


def test_a_sink_is_accepted(pakka, delivered, space):
    Space._named.pop(space)
    result = pakka("reset", "refunds", "--sink", "refunds", "--yes")
    assert result.exit_code == 0
    assert f"enter epoch 2 in the ledger of sink `refunds` (memory:{space}), with no rows" in result.stdout
    assert Space.named(space).ledger["refunds", "refunds"].epoch.number == 2


@pytest.mark.postgres
def test_a_table_with_prepared_transactions_is_accepted(pakka, refunds, postgres_url):
    refunds.write_text(
        refunds.read_text().replace("memory: {space: refunds}", f"postgres: {{url: '{postgres_url}', table: refunds}}")
    )
    with closing(open_store(STATE)) as store, psycopg.connect(postgres_url, autocommit=True) as db:
        stage = Stage({"refunds": PostgresSink(postgres_url, "refunds", way="prepared")}, store)
        stage.run(1)
        db.execute("DELETE FROM refunds WHERE id >= 6")
        db.execute("DELETE FROM pakka_ledger WHERE epoch = 1")
        with pytest.raises(RegressError, match="holds only epochs up to 0") as raised:
            stage.run(2)
        assert "`pakka reset refunds --sink refunds`" in raised.value.hint
        result = pakka("reset", "refunds", "--sink", "refunds", "--yes")
        assert (result.exit_code, result.stderr) == (0, "done\n")
        stage.run(2)
        assert db.execute("SELECT id FROM refunds ORDER BY id").fetchall() == [
            (i,) for i in [*range(6), *range(12, 18)]
        ]


def test_a_pipeline_is_forgotten(pakka, delivered, space):
    Space._named.pop(space)
    assert pakka("reset", "refunds", "--forget", "--yes").exit_code == 0
    assert state() is None


def test_a_refusal_changes_nothing(pakka, delivered):
    result = pakka("reset", "refunds", "--forget", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "error: pipeline `refunds` cannot be forgotten: sink `refunds` holds epochs up to 2"
    )
    assert state().committed == 2


@pytest.mark.parametrize("words", [(), ("--checkpoint", "--sink", "refunds"), ("--forget", "--sink", "refunds")])
def test_one_thing_is_accepted_at_a_time(pakka, delivered, words):
    result = pakka("reset", "refunds", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: one of --checkpoint, --sink NAME and --forget is needed\n\nhint: the error of `pakka run` says which one\n"
    )


def test_the_file_is_asked_for_if_it_has_another_name(pakka, refunds, delivered):
    refunds.rename("other.yml")
    result = pakka("reset", "refunds", "--checkpoint")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: there is no refunds.yaml in the current directory, and the pipeline file is needed\n\n"
        "hint: pakka reset refunds --file FILE ...\n"
    )
    assert pakka("reset", "refunds", "--checkpoint", "--file", "other.yml").exit_code == 0


def test_a_yml_file_is_found_too(pakka, refunds, delivered):
    refunds.rename("refunds.yml")
    assert pakka("reset", "refunds", "--checkpoint").exit_code == 0


def test_the_file_of_another_pipeline_is_refused(pakka, refunds, delivered):
    result = pakka("reset", "orders", "--checkpoint", "--file", "refunds.yaml")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: the file describes pipeline `refunds`, not `orders`\n\nhint: name its file with `--file FILE`\n"
    )


# The sinks that a pipeline file can name, with what a person would delete to lose their output.
REAL = {
    "parquet": ("parquet: {path: out/rows}", ["out/rows"]),
    "parquet with its staging": ("parquet: {path: out/rows}", ["out/rows", "out/.rows.pakka"]),
    "json": ("json: {path: out/rows}", ["out/rows"]),
    "sqlite": ("sqlite: {path: out/rows.db, table: rows}", ["out/rows.db"]),
}


@pytest.mark.parametrize(("sink", "outputs"), REAL.values(), ids=REAL)
def test_a_deleted_output_of_a_real_sink_is_refused_then_accepted_and_goes_on(pakka, refunds, sink, outputs):
    refunds.write_text(refunds.read_text().replace("memory: {space: refunds}", sink))
    sinks = {name: output.sink for name, output in load(refunds).outputs.items()}
    with closing(open_store(STATE)) as store:
        stage = Stage(sinks, store)
        stage.run(2)
        for path in map(Path, outputs):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with pytest.raises(RegressError) as error:
            stage.run(3)
    assert "`pakka reset refunds --sink refunds`" in error.value.hint
    assert pakka("reset", "refunds", "--sink", "refunds", "--yes").exit_code == 0
    with closing(open_store(STATE)) as store:
        stage.store = store
        stage.run(4)
        assert store.read("refunds").committed == 4
    if "sqlite" in sink:
        with closing(sqlite3.connect("out/rows.db")) as db:
            ids = [i for (i,) in db.execute("SELECT id FROM rows")]
    else:
        ids = dataset.dataset("out/rows", format=sink.partition(":")[0]).to_table()["id"].to_pylist()
    assert sorted(ids) == [i for i in stage.ids(4) if i not in stage.ids(2)]
