"""Cases of separation: what one process has prepared, another one finishes or undoes."""

from __future__ import annotations

import pyarrow as pa

from pakka.contract.audit import ContractGuarantee
from pakka.contract.sink import EpochCommit
from pakka.model.guarantee import Level
from pakka.model.outcome import Kind
from pakka.model.prepared import Prepared
from pakka.testing.contract.moment import Course, Strike
from pakka.testing.contract.process import Errand, elsewhere
from pakka.testing.contract.table import Beside, case
from pakka.testing.contract.trial import SHARES, Decided, Trial, as_json, epoch_of, refunds, seen
from pakka.testing.contract.verdict import Broken, NotApplicable, require

_COMMIT_KILLS, _PREPARE_KILLS, _RAISE_KILLS = 8, 4, 3


@case(ContractGuarantee.SEPARATION)
def a_new_process_finds_what_is_pending_and_finishes_it(trial: Trial) -> None:
    """A driver dies between prepare and commit; the next one has the decision, and the sink has the rows."""
    records, batches = trial.driver(1).prepare(0)
    is_staged = bool(trial.harness.litter())
    trial.restart()
    pending = {p.slot for p in trial.committer(2).pending()}
    missing = {p.slot for p in records} - pending
    require(not (is_staged and missing), f"after a restart, pending does not name {len(missing)} prepared records")
    heir = trial.driver(2, (epoch_of(0), records))
    heir.must_commit(0, records, "the commit by the next driver")
    trial.expect(*batches, when="after a restart and the commit")
    require(not heir.pending(), "after the commit by the next driver, pending still names records")
    trial.expect_no_litter("after the commit by the next driver")


@case(ContractGuarantee.SEPARATION)
def a_prepared_of_another_process_commits_here(trial: Trial) -> None:
    """Writers are other processes, on other machines: all that comes back from them is JSON."""
    driver = trial.driver(1)
    answer = elsewhere(Errand.of(trial, 1).prepare, 0, SHARES)
    records = [Prepared.from_json(record) for record in answer.value]
    trial.expect(when="after prepare in another process")
    driver.must_commit(0, records, "the commit of what another process prepared", Kind.COMMITTED)
    trial.expect(*_whole(0), when="after the commit of what another process prepared")


@case(ContractGuarantee.SEPARATION)
def another_process_commits_a_prepared(trial: Trial) -> None:
    """A new driver on another machine has the pickled sink and the decision's JSON, and nothing else."""
    records, batches = trial.driver(1).prepare(0)
    trial.close()
    outcome = elsewhere(Errand.of(trial, 1).commit, epoch_of(0).to_json(), as_json(records)).value
    require(outcome.kind is Kind.COMMITTED, f"another process commits, and is told {outcome.kind.name}")
    trial.expect(*batches, when="after the commit in another process")
    trial.driver(2).must_commit(0, records, "a second commit, here", Kind.ALREADY_COMMITTED)
    trial.expect(*batches, when="after a commit in another process and one here")


@case(ContractGuarantee.SEPARATION)
def a_prepared_of_the_last_release_commits(trial: Trial) -> None:
    """An upgrade may come between prepare and commit: records of the last release are read, and finished."""
    golden = trial.harness.golden()
    if golden is None:
        raise NotApplicable("there is no golden record: it has not been released yet")
    trial.driver(1)
    trial.harness.put(golden)
    records = golden.prepared
    heir = trial.driver(2, (golden.epoch, records))
    heir.must_commit(golden.epoch, records, f"the commit of a record of release {golden.version}")
    wanted, found = seen(golden.rows), trial.visible()
    require(wanted == found, f"release {golden.version} had prepared {wanted.total()} rows, and {found} are visible")
    trial.expect_no_litter(f"after the commit of what release {golden.version} had prepared")


@case(ContractGuarantee.SEPARATION)
def a_writer_that_died_leaves_nothing(trial: Trial) -> None:
    """A task is killed while it writes. What it left can be aborted, and the epoch runs again."""
    trial.driver(1)
    answer = elsewhere(Errand.of(trial, 1).die_writing, 0, 50)
    require(answer.is_killed, "a writer was to be killed while it writes, and was not")
    trial.restart()
    heir = trial.driver(2)
    trial.expect(when="after a writer was killed")
    heir.abort(heir.committer.pending(), "abort of what a killed writer left")
    trial.expect_no_litter("after a writer was killed, and abort")
    trial.expect(*heir.deliver(0), when="after a writer was killed, and a second run")


@case(ContractGuarantee.SEPARATION)
def a_writer_that_gave_up_leaves_nothing(trial: Trial) -> None:
    """`discard` undoes an attempt at any time, more than once, and no other attempt."""
    driver = trial.driver(1)
    kept, batches = driver.prepare(0, (4,))
    staged = set(trial.harness.litter())
    for number, stage in enumerate(("begun", "written", "prepared"), start=1):
        batch = refunds(0, number, 6)
        writer = driver.writer(driver.slot(0, number), batch.schema)
        if stage != "begun":
            writer.write(batch)
        if stage == "prepared":
            writer.prepare("0" * 16)
        writer.discard()
        writer.discard()
        left = set(trial.harness.litter()) - staged
        require(not left, f"a writer that was {stage} and gave up leaves {sorted(left)[:1]} staged")
    driver.must_commit(0, kept, "the commit beside writers that gave up", Kind.COMMITTED)
    trial.expect(*batches, when="after the commit beside writers that gave up")


@case(Beside.HONESTY)
def the_declared_guarantee_is_the_one_a_kill_test_observes(trial: Trial) -> None:
    """A process is killed at many moments of prepare, commit and recovery; the next one recovers, and rows are counted."""
    killings = _Killings(trial)
    killings.of_commit()
    killings.of_prepare()
    killings.of_raise()
    require(killings.kills > 0, "no process could be killed while it worked on the sink: nothing was observed")


class _Killings:
    """One killed process after another, on one sink: each has an epoch and a fence of its own."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.fence = 1
        self.epoch = 0
        self.kills = 0
        self.driver = trial.driver(1)
        self.rows: list[pa.RecordBatch] = []
        is_exact = trial.sink.guarantee().level is Level.EXACTLY_ONCE
        # A sink that may repeat shows an epoch again for each driver that finishes it.
        self.upto = 1 if is_exact else 2

    def of_commit(self) -> None:
        rehearsal = self._commit_elsewhere(None)
        for strike in rehearsal.strikes(_COMMIT_KILLS):
            self._commit_elsewhere(strike)

    def of_prepare(self) -> None:
        rehearsal = self._prepare_elsewhere(None)
        for strike in rehearsal.strikes(_PREPARE_KILLS):
            self._prepare_elsewhere(strike)

    def of_raise(self) -> None:
        rehearsal = self._raise_elsewhere(None)
        for strike in rehearsal.strikes(_RAISE_KILLS):
            self._raise_elsewhere(strike)

    def _commit_elsewhere(self, strike: Strike | None) -> Course:
        records, batches = self.driver.prepare(self.epoch)
        errand = Errand.of(self.trial, self.fence)
        self.trial.restart()
        parcel = as_json(records)
        answer = elsewhere(
            errand.commit, epoch_of(self.epoch).to_json(), parcel, strike=strike, is_watched=strike is None
        )
        when = f"after a kill at {strike} of commit" if answer.is_killed else "after a commit in another process"
        if answer.is_killed and isinstance(self.driver.committer, EpochCommit):
            self._expect_all_or_nothing(batches, when)
        self._next_driver((epoch_of(self.epoch), records))
        self.driver.must_commit(self.epoch, records, f"the commit {when}")
        self.rows += batches
        self._count(answer.is_killed, f"{when}, and recovery")
        return answer.course

    def _prepare_elsewhere(self, strike: Strike | None) -> Course:
        errand = Errand.of(self.trial, self.fence)
        self.trial.restart()
        answer = elsewhere(errand.prepare, self.epoch, SHARES, strike=strike, is_watched=strike is None)
        when = f"after a kill at {strike} of prepare" if answer.is_killed else "after prepare in another process"
        self._next_driver(None)
        self._count(answer.is_killed, f"{when}, and recovery")
        return answer.course

    def _raise_elsewhere(self, strike: Strike | None) -> Course:
        """A driver is killed while it takes over an epoch that is decided and not committed."""
        records, batches = self.driver.prepare(self.epoch)
        self.fence += 1
        errand = Errand.of(self.trial, self.fence)
        self.trial.restart()
        answer = elsewhere(errand.raise_fence, strike=strike, is_watched=strike is None)
        when = (
            f"after a kill at {strike} of raise_fence" if answer.is_killed else "after raise_fence in another process"
        )
        self._next_driver((epoch_of(self.epoch), records))
        self.driver.must_commit(self.epoch, records, f"the commit {when}")
        self.rows += batches
        self._count(answer.is_killed, f"{when}, and recovery")
        return answer.course

    def _next_driver(self, decided: Decided | None) -> None:
        self.fence += 1
        self.driver = self.trial.driver(self.fence, decided)

    def _count(self, is_killed: bool, when: str) -> None:
        self.kills += is_killed
        self.epoch += 1
        self.driver.abort(self.driver.committer.pending(), f"abort of what is pending {when}")
        self.trial.expect(*self.rows, when=when, upto=self.upto)
        self.trial.expect_no_litter(when)

    def _expect_all_or_nothing(self, batches: list[pa.RecordBatch], when: str) -> None:
        found = self.trial.visible()
        wanted = seen(row for batch in batches for row in batch.to_pylist())
        part = [row for row in wanted if found[row]]
        if part and len(part) < len(wanted):
            raise Broken(f"{when}, a reader sees {len(part)} of the {len(wanted)} rows of an epoch")


def _whole(epoch: int) -> list[pa.RecordBatch]:
    return [refunds(epoch, number, rows) for number, rows in enumerate(SHARES)]
