"""Cases of rejection: an id is used once, and an older fence has no effect after a newer one has stood."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from pakka.contract.audit import ContractGuarantee
from pakka.contract.state import Owner, PipelineState
from pakka.coordinator.epoch import Coordinator, Harvest
from pakka.coordinator.retry import Retry
from pakka.errors import FencedError, PakkaError
from pakka.model.epoch import Checkpoint, Count, Epoch, Origin
from pakka.model.outcome import Kind
from pakka.model.prepared import SlotReport
from pakka.testing.contract.moment import Strike, striking, watching
from pakka.testing.contract.table import case
from pakka.testing.contract.trial import PIPELINE, SHARES, SINK, Decided, Driver, Trial, epoch_of, refunds
from pakka.testing.contract.verdict import Broken, require
from pakka.testing.store import MemoryStore

_MOMENTS = 12
_PATIENCE_S, _PATIENCE_MOST_S = 0.2, 2.0
_PATIENCE_TIMES = 8
"""How long a driver on its way waits for the fence to be raised: so many times what raising it takes when nothing is in the
way. Its own transaction may be what holds the fence up, so that it cannot wait for ever."""


def _must_be_fenced(do: Callable[[], object], what: str) -> None:
    try:
        do()
    except FencedError:
        return
    except PakkaError as error:
        raise Broken(
            f"{what} must be refused with FencedError, and {type(error).__name__} is raised: {error}"
        ) from error
    raise Broken(f"{what} must be refused with FencedError, and is not refused")


@case(ContractGuarantee.REJECTION)
def an_old_fence_cannot_prepare(trial: Trial) -> None:
    """A task of an older driver wakes up: whether it had begun or begins now, it prepares nothing."""
    old = trial.driver(1)
    batch = refunds(0, 0, 4)
    late = old.writer(old.slot(0), batch.schema)
    late.write(batch)
    new = trial.driver(2)
    _must_be_fenced(lambda: late.prepare("0" * 16), "prepare by a writer of an older fence")
    with suppress(FencedError):
        late.discard()
    _must_be_fenced(lambda: old.prepare(1), "prepare by a writer that begins under an older fence")
    new.abort(new.committer.pending(), "abort of what older writers left")
    trial.expect_no_litter("after writers of an older fence were refused")
    trial.expect(*new.deliver(0), when="after writers of an older fence were refused")


@case(ContractGuarantee.REJECTION)
def an_old_fence_cannot_commit(trial: Trial) -> None:
    """An older driver wakes up with its decision in hand; committing it is the new driver's to do."""
    old = trial.driver(1)
    records, batches = old.prepare(0)
    new = trial.driver(2, (epoch_of(0), records))
    if not trial.visible():
        _must_be_fenced(lambda: old.commit(0, records), "commit by an older fence")
        trial.expect(when="after a commit by an older fence")
    new.must_commit(0, records, "the commit by the new fence")
    _must_be_fenced(lambda: old.commit(0, records), "commit of a committed epoch by an older fence")
    trial.expect(*batches, when="after commits by an older and a newer fence")


@case(ContractGuarantee.REJECTION)
def an_old_fence_cannot_abort(trial: Trial) -> None:
    """An older driver wakes up and aborts what the newer one is about to commit: it must have no effect."""
    old = trial.driver(1)
    records, batches = old.prepare(0)
    new = trial.driver(2, (epoch_of(0), records))
    with suppress(PakkaError):
        old.committer.abort(records)
    new.must_commit(0, records, "a commit after an older fence has tried to abort")
    trial.expect(*batches, when="after an older fence has tried to abort")


@case(ContractGuarantee.REJECTION)
def an_old_fence_cannot_come_back(trial: Trial) -> None:
    """A fence only rises: an older driver that raises its own again is refused."""
    old = trial.driver(1)
    new = trial.driver(3)
    _must_be_fenced(old.committer.raise_fence, "raise_fence(1) after raise_fence(3)")
    _must_be_fenced(trial.committer(2).raise_fence, "raise_fence(2) after raise_fence(3)")
    require(new.committer.raise_fence(), "raise_fence by the newest driver may be repeated, and answers False")
    trial.expect(*new.deliver(0), when="after older fences tried to come back")


@case(ContractGuarantee.REJECTION)
def an_old_fence_cannot_decide(trial: Trial) -> None:
    """Two drivers with a real coordinator: the older one has prepared all, is overtaken, and decides nothing."""
    store = _BoundedStore()
    with ThreadPoolExecutor(2) as pool:
        old, new = (_coordinator(trial, store, pool) for _ in range(2))
        old.start(Checkpoint("checkpoint"))
        checkpoint = Checkpoint("checkpoint", "query-1", 0, -1, {0: "offsets-0"})

        def overtaken(epoch: Epoch, fence: int) -> Harvest:
            harvest = _prepare(trial, epoch, fence)
            new.start(checkpoint)
            return harvest

        origin = epoch_of(0).origin
        _must_be_fenced(lambda: old.deliver(origin, overtaken), "an epoch of an overtaken driver")
        trial.expect(when="after an overtaken driver was refused its decision")
        new.deliver(origin, lambda epoch, fence: _prepare(trial, epoch, fence))
        trial.expect(*(refunds(0, n, rows) for n, rows in enumerate(SHARES)), when="after the newer driver delivered")
        new.stop()
    trial.expect_no_litter("after the newer driver delivered")


class _BoundedStore(MemoryStore):
    """Gives a handful of fences. A driver that finds its own fence in a sink takes a higher one, and would for ever."""

    def take_fence(self, pipeline: str, owner: Owner, at_least: int = 1) -> PipelineState:
        require(at_least < 10, "a driver only looks at the sink, and finds its own fence raised there")
        return super().take_fence(pipeline, owner, at_least)


def _coordinator(trial: Trial, store: MemoryStore, pool: ThreadPoolExecutor) -> Coordinator:
    return Coordinator(
        PIPELINE,
        {SINK: trial.sink},
        store,
        spool=trial.binding.spool,
        owner=Owner("suite", 1, 0.0),
        clock=lambda: 0.0,
        sleep=lambda _: None,
        pool=pool,
        retry=Retry(attempts=3),
    )


def _prepare(trial: Trial, epoch: Epoch, fence: int) -> Harvest:
    records, _ = Driver(trial, trial.committer(fence), fence).prepare(epoch.number)
    reports = [SlotReport(n, (p,), Count(p.rows, p.rows)) for n, p in enumerate(records)]
    return Harvest(len(reports), reports)


@case(ContractGuarantee.REJECTION)
def an_old_fence_overtaken_in_its_commit_changes_nothing(trial: Trial) -> None:
    """The fence is raised between two lines of an older driver's commit, after it has looked at the fence."""
    overtaking = _Overtaking(trial)
    for strike in overtaking.rehearse():
        overtaking.strike(strike)


class _Overtaking:
    """One driver after another is overtaken in the middle of its commit, each at another moment."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.epoch = 0
        self.rows: list[pa.RecordBatch] = []
        self.patience_s = _PATIENCE_S
        self.driver = self._take_over(1, None)

    def _take_over(self, fence: int, decided: Decided | None) -> Driver:
        began = time.monotonic()
        driver = self.trial.driver(fence, decided)
        took_s = time.monotonic() - began
        self.patience_s = min(max(self.patience_s, _PATIENCE_TIMES * took_s), _PATIENCE_MOST_S)
        return driver

    def rehearse(self) -> list[Strike]:
        records, batches = self.driver.prepare(self.epoch)
        with watching() as course:
            self.driver.must_commit(self.epoch, records, "the first commit", Kind.COMMITTED)
        self.epoch += 1
        self.rows += batches
        return course.strikes(_MOMENTS)

    def strike(self, strike: Strike) -> None:
        old, number, trial = self.driver, self.epoch, self.trial
        records, batches = old.prepare(number)
        newer = trial.committer(old.fence + 1)
        is_raised = threading.Event()

        def overtake() -> None:
            # Whatever keeps the fence from being raised now, such as a lock that gives up, the next driver raises its own.
            with suppress(Exception):
                if newer.raise_fence():
                    is_raised.set()

        thread = threading.Thread(target=overtake, daemon=True)
        is_before = False

        def act() -> None:
            nonlocal is_before
            thread.start()
            thread.join(self.patience_s)
            is_before = is_raised.is_set() and trial.visible().total() == sum(b.num_rows for b in self.rows)

        with striking(strike, act), suppress(FencedError):
            old.commit(number, records)
        if thread.ident is not None:
            thread.join()
        if is_before:
            trial.expect(
                *self.rows, when=f"after a driver was overtaken at {strike} of its commit, before it took effect"
            )
        self.driver = self._take_over(old.fence + 2, (epoch_of(number), records))
        self.driver.must_commit(number, records, f"the commit after a driver was overtaken at {strike} of its own")
        self.epoch += 1
        self.rows += batches
        trial.expect(
            *self.rows, when=f"after a driver was overtaken at {strike} of its commit, and the next one's commit"
        )


@case(ContractGuarantee.REJECTION)
def the_same_id_twice_the_first_wins(trial: Trial) -> None:
    """An id is used once. A second writer with the same id and other rows is refused, or has no effect."""
    driver = trial.driver(1)
    slot = driver.slot(0)
    first, other = refunds(0, 0, 5), refunds(0, 0, 5, "-other")
    record = driver.prepare_slot(slot, first)
    second = None
    with suppress(PakkaError):
        second = driver.prepare_slot(slot, other)
    driver.must_commit(0, [record], "the commit of an id that came twice", Kind.COMMITTED)
    trial.expect(first, when="after the commit of an id that came twice")
    if second is not None:
        outcome = driver.commit(0, [second])
        require(outcome.kind is not Kind.COMMITTED, "the second record of a used id is answered COMMITTED")
    trial.expect(first, when="after the second record of a used id")


@case(ContractGuarantee.REJECTION)
def a_used_id_adds_nothing(trial: Trial) -> None:
    """A zombie writes other rows under an id that is committed: nobody ever sees them."""
    driver = trial.driver(1)
    slot, first = driver.slot(0), refunds(0, 0, 5)
    driver.must_commit(0, [driver.prepare_slot(slot, first)], "the first commit", Kind.COMMITTED)
    with suppress(PakkaError):
        zombie = driver.prepare_slot(slot, refunds(0, 0, 6, "-zombie"))
        outcome = driver.commit(0, [zombie])
        require(outcome.kind is not Kind.COMMITTED, "the commit of a used id is answered COMMITTED")
    trial.expect(first, when="after a zombie has used a committed id again")
    trial.restart()
    heir = trial.driver(2)
    with suppress(PakkaError):
        heir.committer.abort(heir.committer.pending())
    trial.expect(first, *heir.deliver(1), when="after a zombie, and the next driver's epoch")
    trial.expect_no_litter("after a zombie, and the next driver's epoch")


@case(ContractGuarantee.REJECTION)
def an_epoch_of_another_origin_is_not_taken_for_this_one(trial: Trial) -> None:
    """A lost checkpoint counts from 0 again, with other rows: a number alone proves nothing, and is not called committed."""
    driver = trial.driver(1)
    batches = driver.deliver(0)
    records, _ = driver.prepare(0, attempt=1, mark="-other")
    stranger = replace(epoch_of(0), origin=Origin("query-2", 0, "other offsets"))
    outcome = driver.commit(stranger, records)
    require(
        not outcome.is_final,
        f"epoch 0 of one origin is committed, and epoch 0 of another is answered {outcome.kind.name}: its rows are lost",
    )
    trial.expect(*batches, when="after the commit of another epoch with the same number")


@case(ContractGuarantee.REJECTION)
def a_speculative_twin_leaves_one_copy(trial: Trial) -> None:
    """Two attempts at one slot write the same rows; one wins, the other is litter, early or late."""
    driver = trial.driver(1)
    batch = refunds(0, 0, 5)
    loser = driver.prepare_slot(driver.slot(0, attempt=0), batch)
    late = driver.writer(driver.slot(0, attempt=1), batch.schema)
    late.write(batch)
    winner = driver.prepare_slot(driver.slot(0, attempt=2), batch)
    driver.must_commit(0, [winner], "the commit of the winner", Kind.COMMITTED)
    trial.expect(batch, when="after the commit of one of three attempts")
    with suppress(PakkaError):
        late.prepare("0" * 16)
    driver.abort([loser, *driver.committer.pending()], "abort of the losers")
    trial.expect(batch, when="after the commit of one attempt and abort of the others")
    trial.expect_no_litter("after the commit of one attempt and abort of the others")
