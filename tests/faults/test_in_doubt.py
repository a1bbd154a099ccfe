"""A driver dies, and a person comes to the desk: what is in doubt is told, settled from the decision, and by nothing else."""

import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from pakka.cli.alive import is_alive
from pakka.contract.sink import SlotCommit
from pakka.contract.state import Owner
from pakka.coordinator import recovery
from pakka.coordinator.doubt import Desk, Fate
from pakka.coordinator.resolve import Do, Resolve
from pakka.coordinator.retry import Retry
from pakka.errors import RefusedError, RegressError
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Slot
from pakka.spark import checkpoint
from pakka.state import open_store
from pakka.testing.crash import POINTS, Drill
from tests.faults import outputs
from tests.faults.child import KILLED, Child
from tests.faults.extent import one_store
from tests.faults.judge import read_state, read_table
from tests.faults.site import Site

pytestmark = pytest.mark.faults

MIDDLE = 1
RECOVERY = [p for p in POINTS if p.startswith("recover.")]
# No embedded sink is a server with transactions of its own.
DELIVERY = [p for p in POINTS if p not in RECOVERY and ".sql." not in p and ".kafka." not in p]
FENCED = 4


def desk_of(root: str) -> Desk:
    site = Path(root)
    return Desk("refunds", outputs.with_slips(site), None, str(site / "spool"), time.time, is_alive)


def resolve(root: str, state: str, do: str = "resolve", take_over: bool = False):
    """What `pakka indoubt resolve` does, on a site."""
    with closing(open_store(state, must_exist=True)) as store, ThreadPoolExecutor(max_workers=4) as pool:
        owner = Owner(os.uname().nodename, os.getpid(), time.time())
        at_desk = Resolve(desk_of(root), store, owner, time.sleep, pool, Retry(attempts=4, first_s=0.02))
        path = str(Path(root) / "checkpoint")
        look = lambda: checkpoint.read(path)  # noqa: E731
        return at_desk.plan(look) if do == "plan" else at_desk.resolve(look, take_over)


def resolve_in_child(root: str, state: str) -> int:
    resolve(root, state)
    return 0


def survey(site: Site):
    with closing(open_store(site.spec.state, must_exist=True)) as store:
        return desk_of(site.spec.site).survey(store)


def staged(site: Site) -> set[str]:
    """What lies prepared or half prepared in the sinks, found without pakka's code."""
    out, spool = site.root / "out", site.root / "spool"
    places = [out / ".refunds.pakka", out / ".dead.pakka", spool / "refunds.audit"]
    attempts = {p.name for place in places for p in place.glob("fence-*/pakka.*")}
    return attempts | {slot for (slot,) in read_table(out / "slips.db", "prepared", ["slot"])}


def is_decided(site: Site, epoch: int) -> bool:
    return (epoch,) in read_state(site.spec.state, "SELECT number FROM pakka_epoch")


def committed(site: Site) -> int:
    return int(read_state(site.spec.state, "SELECT committed FROM pakka_pipeline")[0][0])


def visible(site: Site, epoch: int) -> dict[str, int]:
    return {sink: site.judge.counts(sink)[epoch] for sink in site.judge.sinks}


def whole(site: Site, epoch: int) -> dict[str, int]:
    rows = site.spec.workload.batch(epoch)
    return {sink: sum(row.for_sink(sink) is not None for row in rows) for sink in site.judge.sinks}


def check_list(site: Site) -> None:
    """Each record is told once, with the fate that the decision in the state store gives it."""
    found = survey(site)
    is_open = is_decided(site, MIDDLE) and committed(site) < MIDDLE
    assert {case.fate for case in found.cases} <= {Fate.COMMIT if is_open else Fate.ABORT}
    ids = [case.doubt.id for case in found.cases]
    assert len(ids) == len(set(ids))
    held = {sink for sink, n in visible(site, MIDDLE).items() if n and sink != "slips"}
    there = {text for text in staged(site) if not is_open or Slot.parse(text).sink not in held}
    assert there <= set(ids)
    if not is_open:
        assert set(ids) == there
        assert found.is_alive is False
    assert all(case.doubt.age_s is not None for case in found.cases if case.sink != "slips" or is_open)
    assert all(case.doubt.rows is not None for case in found.cases if case.fate is Fate.COMMIT)
    assert found.troubles == ()


def resolve_and_check(site: Site) -> None:
    """All of it: listing and planning change nothing, resolving settles everything from the decision, twice is once."""
    is_open = is_decided(site, MIDDLE)
    before = site.snapshot()
    check_list(site)
    planned = resolve(site.spec.site, site.spec.state, "plan")
    assert planned.fence is None
    assert site.snapshot() == before

    done = resolve(site.spec.site, site.spec.state)
    assert done.deeds == planned.deeds
    assert done.lost == ()
    after = survey(site)
    assert (after.cases, after.unentered) == ((), ())
    assert staged(site) == set()
    assert site.judge.litter() == []
    assert visible(site, MIDDLE) == (whole(site, MIDDLE) if is_open else dict.fromkeys(site.judge.sinks, 0))
    assert committed(site) == (MIDDLE if is_open else MIDDLE - 1)

    settled = site.snapshot()
    again = resolve(site.spec.site, site.spec.state)
    assert (again.deeds, again.fence) == ((), None)
    assert site.snapshot() == settled


@one_store
@pytest.mark.parametrize("point", DELIVERY)
def test_what_a_killed_driver_left_is_told_and_settled_from_the_decision(slips_site, point):
    slips_site.crash(Drill(point, epoch=MIDDLE))
    resolve_and_check(slips_site)
    slips_site.finish()


@one_store
@pytest.mark.parametrize(("point", "nth"), [("task.prepared", 5), ("commit.sink", 3), ("commit.slot", 2)])
def test_a_driver_killed_further_on_is_no_exception(slips_site, point, nth):
    slips_site.crash(Drill(point, epoch=MIDDLE, nth=nth))
    resolve_and_check(slips_site)
    slips_site.finish()


@pytest.mark.postgres
@pytest.mark.parametrize("point", ["decide.before", "decide.after"])
def test_a_state_store_on_a_server_decides_in_the_same_way(make_site, postgres_url, point):
    site = make_site(postgres_url, sinks="tests.faults.outputs:with_slips")
    site.crash(Drill(point, epoch=MIDDLE))
    resolve_and_check(site)
    site.finish()


@one_store
@pytest.mark.parametrize("before", ["decide.before", "decide.after"])
@pytest.mark.parametrize("point", RECOVERY)
def test_resolving_that_is_killed_is_done_again(slips_site, ground, before, point):
    slips_site.crash(Drill(before, epoch=MIDDLE))
    args = (slips_site.spec.site, slips_site.spec.state)
    killed = Child(resolve_in_child, args, ground / "killed", Drill(point))
    try:
        assert killed.wait() == KILLED, killed.said
    finally:
        killed.clear_away()
    slips_site.check_whole_epochs()
    resolve(*args)
    after = survey(slips_site)
    assert (after.cases, after.unentered) == ((), ())
    slips_site.finish()


@one_store
@pytest.mark.parametrize("point", ["task.prepared", "decide.before", "decide.after", "commit.sink"])
def test_a_driver_that_still_runs_is_not_touched_without_a_word_and_then_fenced(slips_site, point):
    """It is frozen, and cannot tell. What it had not decided is gone when it wakes, what it had decided is there."""
    live = slips_site.freeze(Drill(point, epoch=MIDDLE))
    is_open = is_decided(slips_site, MIDDLE)
    before = slips_site.snapshot()
    found = survey(slips_site)
    assert found.is_alive is True
    assert {case.fate for case in found.cases} == {Fate.COMMIT if is_open else Fate.IN_FLIGHT}
    with pytest.raises(RefusedError, match=rf"its driver, process {live.pid} on .*, runs; .*nothing was changed"):
        resolve(slips_site.spec.site, slips_site.spec.state)
    assert slips_site.snapshot() == before

    done = resolve(slips_site.spec.site, slips_site.spec.state, take_over=True)
    does = {(Do.COMMIT, MIDDLE), (Do.ENTER, MIDDLE)} if is_open else {(Do.ABORT, MIDDLE), (Do.ENTER, MIDDLE - 1)}
    assert {(deed.do, deed.epoch) for deed in done.deeds} == does
    settled = slips_site.snapshot()
    live.wake()
    assert live.wait() == FENCED, live.said
    assert slips_site.snapshot() == settled
    slips_site.finish()


@one_store
def test_a_driver_between_two_epochs_has_nothing_in_doubt_and_is_left_alone(slips_site):
    live = slips_site.freeze(Drill("begin", epoch=MIDDLE))
    found = survey(slips_site)
    assert (found.cases, found.unentered) == ((), (0,))
    before = slips_site.snapshot()
    for take_over in (False, True):
        assert resolve(slips_site.spec.site, slips_site.spec.state, take_over=take_over).fence is None
    assert slips_site.snapshot() == before
    live.wake()
    assert live.wait() == 0, live.said
    slips_site.check()


def forget(site: Site) -> None:
    """The state store is there, and knows nothing any more."""
    with closing(sqlite3.connect(site.spec.state.removeprefix("sqlite:///"))) as db:
        db.execute("DELETE FROM pakka_epoch")
        db.execute("DELETE FROM pakka_pipeline")
        db.commit()


@pytest.fixture
def embedded(make_site, ground) -> Site:
    return make_site(f"sqlite:///{ground / 'state.db'}", sinks="tests.faults.outputs:with_slips")


@pytest.mark.parametrize("point", ["decide.before", "decide.after", "commit.slot"])
def test_without_its_decisions_all_is_settled_as_recovery_would(embedded, point):
    """The sinks vouch for the epoch before. What was decided is no longer known to be: it is undone and runs again."""
    embedded.crash(Drill(point, epoch=MIDDLE))
    forget(embedded)
    assert {case.fate for case in survey(embedded).cases} == {Fate.ABORT}
    planned = resolve(embedded.spec.site, embedded.spec.state, "plan")
    assert {(deed.do, deed.epoch) for deed in planned.deeds} == {(Do.ABORT, MIDDLE), (Do.ENTER, MIDDLE - 1)}
    done = resolve(embedded.spec.site, embedded.spec.state)
    assert done.deeds == planned.deeds
    assert survey(embedded).is_clear
    embedded.finish()


@pytest.mark.parametrize("do", ["plan", "resolve"])
def test_what_recovery_refuses_is_refused_before_anything_is_changed(embedded, do):
    embedded.crash(Drill("decide.after", epoch=MIDDLE))
    forget(embedded)
    (embedded.root / "checkpoint" / "metadata").unlink()
    before = embedded.snapshot()
    with pytest.raises(RegressError, match="state store and checkpoint are empty, but sinks hold epochs up to 0"):
        resolve(embedded.spec.site, embedded.spec.state, do)
    assert embedded.snapshot() == before


# Twins that resolve by guess. Each is right about some crashes, which is why people do it by hand.


def presume_commit(stations, decided, fence):
    """What is prepared was meant to be committed."""
    winners = {p.slot for d in decided for p in d.prepared}
    for station in stations:
        records = [p for p in station.committer.pending() if p.slot not in winners]
        if records and isinstance(station.committer, SlotCommit):
            number = records[0].slot.epoch
            station.committer.commit(Epoch("refunds", number, Origin("guessed", number, "")), records)
    return ()


def presume_abort(self, state, stations):
    """What is old is dead."""
    for station in stations:
        station.committer.abort(station.committer.pending())
    return {}


GUESSES = {
    "what is prepared is committed": ("abort_undecided", presume_commit, "decide.before"),
    "what is prepared is aborted": ("_commit_open", presume_abort, "decide.after"),
    "what is undecided is left": ("abort_undecided", lambda *_: (), "decide.before"),
}


@pytest.mark.parametrize(("name", "guess", "point"), GUESSES.values(), ids=GUESSES)
def test_a_twin_that_resolves_by_guess_is_caught(embedded, monkeypatch, name, guess, point):
    embedded.crash(Drill(point, epoch=MIDDLE))
    monkeypatch.setattr(recovery if hasattr(recovery, name) else recovery.Recovery, name, guess)
    with pytest.raises(AssertionError):
        resolve_and_check(embedded)
