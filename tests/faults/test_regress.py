"""Something was deleted or restored from a copy: pakka goes on without loss or duplicate, or refuses before it writes."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from pakka.testing.crash import POINTS, Drill
from tests.faults.extent import one_store, sample
from tests.faults.site import Site

pytestmark = pytest.mark.faults

TABLES = ("pakka_pipeline", "pakka_epoch", "pakka_meta")
DONE = Drill("begin", epoch=2)
"""A place at which epochs 0 and 1 are done and acknowledged, and 2 is planned."""


def copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.copy")


def keep(*paths: Path) -> None:
    """Make a copy, as a backup would."""
    for path in paths:
        if path.is_dir():
            shutil.copytree(path, copy_of(path))
        elif path.exists():
            shutil.copy2(path, copy_of(path))


def restore(*paths: Path) -> None:
    delete(*paths)
    for path in paths:
        if copy_of(path).exists():
            copy_of(path).rename(path)


def delete(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def on_server(url: str, *statements: str) -> None:
    with psycopg.connect(url) as db:
        for statement in statements:
            db.execute(statement.encode())


def files_of(database: Path) -> list[Path]:
    return [database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm")]


def state_files(site: Site) -> list[Path]:
    return files_of(Path(site.spec.state.removeprefix("sqlite:///")))


def delete_state(site: Site) -> None:
    if site.spec.state.startswith("sqlite"):
        delete(*state_files(site))
    else:
        on_server(site.spec.state, *(f"DROP TABLE {table}" for table in TABLES))


def keep_state(site: Site) -> None:
    if site.spec.state.startswith("sqlite"):
        # A copy of a database that is in use would be none.
        with closing(sqlite3.connect(state_files(site)[0])) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        keep(*state_files(site))
    else:
        on_server(site.spec.state, *(f"CREATE TABLE copy_of_{table} AS TABLE {table}" for table in TABLES))


def restore_state(site: Site) -> None:
    if site.spec.state.startswith("sqlite"):
        restore(*state_files(site))
    else:
        on_server(
            site.spec.state,
            *(f"DELETE FROM {table}" for table in TABLES),
            *(f"INSERT INTO {table} TABLE copy_of_{table}" for table in TABLES),
        )


def expect_refusal(site: Site, *words: str) -> None:
    """The run must refuse, with these words, and leave every output as it was; a second time as well."""
    before = site.outputs()
    for _ in range(2):
        child = site.run(code=1)
        assert "RegressError" in child.said
        assert "nothing was changed" in child.said
        for word in words:
            assert word in child.said
        assert site.outputs() == before


# What may happen to a pipeline, and then: which command the refusal names.

OUT: dict[str, Callable[[Site], list[Path]]] = {
    "refunds": lambda site: [site.root / "out" / "refunds"],
    "refunds with its staging area": lambda site: [site.root / "out" / "refunds", site.root / "out" / ".refunds.pakka"],
    "dead_letters": lambda site: [site.root / "out" / "dead"],
    "audit": lambda site: files_of(site.root / "out" / "audit.db"),
    "audit with its spool": lambda site: [*files_of(site.root / "out" / "audit.db"), site.root / "spool"],
}


@one_store
@pytest.mark.parametrize("output", OUT)
def test_a_deleted_output_is_refused(site, output):
    site.crash(DONE)
    delete(*OUT[output](site))
    expect_refusal(site, f"`pakka reset refunds --sink {output.split()[0]}`")


@one_store
@pytest.mark.parametrize("output", OUT)
def test_an_output_restored_from_an_older_copy_is_refused(site, output):
    site.crash(Drill("begin", epoch=1))
    keep(*OUT[output](site))
    site.crash(DONE)
    restore(*OUT[output](site))
    expect_refusal(site, f"`pakka reset refunds --sink {output.split()[0]}`")


@one_store
@pytest.mark.parametrize("output", OUT)
def test_an_output_that_lost_the_very_last_epoch_is_refused(site, output):
    """Spark was told that it is done and will not run it again; the state store has not yet been told."""
    last = site.spec.workload.batches - 1
    site.crash(Drill("begin", epoch=last))
    keep(*OUT[output](site))
    site.crash(Drill("acknowledge.before", epoch=last))
    site.acknowledge(last)
    restore(*OUT[output](site))
    expect_refusal(site, f"`pakka reset refunds --sink {output.split()[0]}`")


def test_a_deleted_checkpoint_is_refused(site):
    site.crash(DONE)
    delete(site.root / "checkpoint")
    expect_refusal(site, "is new, but epochs up to 1 were delivered", "`pakka reset refunds --checkpoint`")


def test_the_checkpoint_of_another_pipeline_is_refused(site, make_site, ground):
    site.crash(DONE)
    other = make_site(f"sqlite:///{ground}/other.db", pipeline="invoices")
    other.run()
    delete(site.root / "checkpoint")
    shutil.copytree(other.root / "checkpoint", site.root / "checkpoint")
    expect_refusal(site, "belongs to query", "`pakka reset refunds --checkpoint`")


def test_a_checkpoint_restored_from_an_older_copy_is_refused(site):
    site.crash(Drill("begin", epoch=0))
    keep(site.root / "checkpoint")
    site.crash(DONE)
    restore(site.root / "checkpoint")
    expect_refusal(site, "is older than the pipeline", "`pakka reset refunds --checkpoint`")


def test_state_and_checkpoint_deleted_are_refused_while_sinks_hold_epochs(site):
    site.crash(DONE)
    delete(site.root / "checkpoint")
    delete_state(site)
    expect_refusal(site, "sinks hold epochs up to 1", "`pakka reset refunds --checkpoint`")


def test_state_and_outputs_deleted_are_refused_while_the_checkpoint_has_passed_epochs(site):
    site.crash(DONE)
    delete(site.root / "out", site.root / "spool")
    delete_state(site)
    expect_refusal(site, "has acknowledged 2 epochs", "`pakka reset refunds --checkpoint`")


def test_a_pipeline_of_which_all_was_deleted_begins_anew(site):
    site.crash(DONE)
    delete(site.root / "checkpoint", site.root / "out", site.root / "spool")
    delete_state(site)
    site.finish()


# Every moment at which the state store may be lost: with nothing under way, with litter, with a decision, half committed.
MOMENTS = [
    ("begin", 1),
    ("task.prepared", 5),
    ("decide.before", 1),
    ("decide.after", 1),
    ("commit.sink", 2),
    ("commit.sink", 3),
    ("commit.slot", 2),
    ("commit.slot", 3),
    ("commit.publish", 1),
    ("commit.applied", 1),
    ("commit.after", 1),
    ("acknowledge.before", 1),
]


def lose_the_state(site, drill):
    site.crash(drill)
    delete_state(site)
    site.finish()


@pytest.mark.parametrize(("point", "nth"), MOMENTS)
def test_a_deleted_state_store_is_made_up_for_by_the_ledgers(slips_site, point, nth):
    lose_the_state(slips_site, Drill(point, epoch=1, nth=nth))


@one_store
@pytest.mark.parametrize(("point", "nth"), MOMENTS)
def test_a_state_store_deleted_in_the_very_first_epoch_is_made_up_for(slips_site, point, nth):
    lose_the_state(slips_site, Drill(point, epoch=0, nth=nth))


RECOVERY = [p for p in POINTS if p.startswith("recover.")]
RELAPSES = list(
    itertools.product(MOMENTS, [*RECOVERY, "begin", "prepared", "decide.after", "commit.sink", "acknowledge.before"])
)


@one_store
@pytest.mark.parametrize(("moment", "point"), sample(RELAPSES, 8), ids=str)
def test_a_driver_killed_while_it_makes_up_for_a_lost_state_store_is_recovered(slips_site, moment, point):
    slips_site.crash(Drill(moment[0], epoch=1, nth=moment[1]))
    delete_state(slips_site)
    slips_site.crash(Drill(point))
    slips_site.finish()


@pytest.mark.parametrize(("point", "nth"), MOMENTS)
def test_a_state_store_restored_from_an_older_copy_is_made_up_for_by_the_ledgers(slips_site, point, nth):
    slips_site.crash(Drill("begin", epoch=0))
    keep_state(slips_site)
    slips_site.crash(Drill(point, epoch=1, nth=nth))
    restore_state(slips_site)
    slips_site.finish()


def test_a_state_store_with_an_older_decision_than_the_sinks_is_made_up_for(site):
    """The copy calls epoch 0 decided and open, while the sinks hold epoch 1."""
    site.crash(Drill("decide.after", epoch=0))
    keep_state(site)
    site.crash(Drill("acknowledge.before", epoch=1))
    restore_state(site)
    site.finish()


# What was prepared and decided is gone: the epoch runs again, and only what is missing is added.


@one_store
@pytest.mark.parametrize("point", ["decide.after", "commit.sink"])
@pytest.mark.parametrize("gone", ["spool", "out/.refunds.pakka", "out/.dead.pakka"])
def test_decided_rows_that_somebody_deleted_are_made_again(site, point, gone):
    site.crash(Drill(point, epoch=1, nth=2 if point == "commit.sink" else 1))
    delete(site.root / gone)
    site.finish()
