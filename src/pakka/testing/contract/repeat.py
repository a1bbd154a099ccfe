"""Cases of idempotence: commit and abort may be repeated freely, and an answer that was lost is not guessed."""

from __future__ import annotations

import pyarrow as pa

from pakka.contract.audit import ContractGuarantee
from pakka.errors import SinkError
from pakka.model.outcome import Kind
from pakka.model.prepared import Prepared
from pakka.testing.contract.table import case
from pakka.testing.contract.trial import Driver, Trial, epoch_of
from pakka.testing.contract.verdict import Broken, NotApplicable, require


@case(ContractGuarantee.IDEMPOTENCE)
def commit_twice_leaves_one_copy(trial: Trial) -> None:
    """The second commit, by the same driver or the next one, answers ALREADY_COMMITTED and changes nothing."""
    driver = trial.driver(1)
    records, batches = driver.prepare(0)
    driver.must_commit(0, records, "the first commit", Kind.COMMITTED)
    driver.must_commit(0, records, "the second commit", Kind.ALREADY_COMMITTED)
    trial.expect(*batches, when="after two commits")
    trial.restart()
    heir = trial.driver(2)
    heir.must_commit(0, records, "a commit by the next driver", Kind.ALREADY_COMMITTED)
    trial.expect(*batches, when="after a commit by the next driver")
    batches += heir.deliver(1)
    heir.must_commit(0, records, "a commit of an older epoch", Kind.ALREADY_COMMITTED)
    trial.expect(*batches, when="after a late commit of an older epoch")


@case(ContractGuarantee.IDEMPOTENCE)
def abort_leaves_nothing(trial: Trial) -> None:
    """After abort nothing is visible, nothing pending and nothing staged, and the epoch can run again."""
    driver = trial.driver(1)
    records, _ = driver.prepare(0)
    driver.abort(records, "abort")
    trial.expect(when="after abort")
    require(not driver.pending(), f"after abort, pending still names {len(driver.pending())} records")
    trial.expect_no_litter("after abort")
    again, batches = driver.prepare(0, attempt=1)
    driver.must_commit(0, again, "the commit of the epoch that ran again", Kind.COMMITTED)
    trial.expect(*batches, when="after an abort and a second run")


@case(ContractGuarantee.IDEMPOTENCE)
def abort_twice_is_harmless(trial: Trial) -> None:
    """What is gone already is fine, for this driver and for the next."""
    driver = trial.driver(1)
    batches = driver.deliver(0)
    records, _ = driver.prepare(1)
    driver.abort(records, "the first abort")
    driver.abort(records, "the second abort")
    trial.restart()
    heir = trial.driver(2)
    heir.abort(records, "an abort by the next driver")
    trial.expect(*batches, when="after aborts of another epoch")


@case(ContractGuarantee.IDEMPOTENCE)
def abort_after_commit_is_refused(trial: Trial) -> None:
    """What is committed stays: abort of it is refused with `SinkError`, and takes no row away."""
    driver = trial.driver(1)
    records, batches = driver.prepare(0)
    driver.must_commit(0, records, "the first commit", Kind.COMMITTED)
    _must_refuse_abort(driver, records, "a committed epoch")
    trial.expect(*batches, when="after a refused abort")
    trial.restart()
    heir = trial.driver(2)
    _must_refuse_abort(heir, records, "an epoch that an older driver has committed")
    batches += heir.deliver(1)
    _must_refuse_abort(heir, records[:1], "a committed epoch that is not the newest")
    trial.expect(*batches, when="after refused aborts and another epoch")


def _must_refuse_abort(driver: Driver, records: list[Prepared], what: str) -> None:
    try:
        driver.committer.abort(records)
    except SinkError:
        return
    raise Broken(f"abort of {what} must be refused with SinkError, and is not refused")


@case(ContractGuarantee.IDEMPOTENCE)
def commit_after_abort_is_refused(trial: Trial) -> None:
    """What was aborted is gone for good: its commit answers REFUSED, so that the epoch runs again."""
    driver = trial.driver(1)
    records, _ = driver.prepare(0)
    driver.abort(records, "abort")
    driver.must_commit(0, records, "a commit after abort", Kind.REFUSED)
    trial.expect(when="after abort and a refused commit")
    again, batches = driver.prepare(0, attempt=1)
    driver.must_commit(0, again, "the commit of the epoch that ran again", Kind.COMMITTED)
    trial.expect(*batches, when="after a refused commit and a second run")


@case(ContractGuarantee.IDEMPOTENCE)
def a_lost_answer_is_unknown_and_ends_in_one_copy(trial: Trial) -> None:
    """The sink has committed and could not say so. It must not be called undone, and the next driver finds it done."""
    driver = trial.driver(1)
    records, batches = driver.prepare(0)
    with trial.harness.cut(is_done=True) as cut:
        outcome = driver.commit(0, records)
    if not cut.is_struck:
        raise NotApplicable("its harness knows no way to lose the answer to a commit")
    require(
        outcome.is_final or outcome.kind is Kind.UNKNOWN,
        f"a commit whose answer was lost must be UNKNOWN, and is answered {outcome.kind.name} ({outcome.reason})",
    )
    _must_end_in_one_copy(trial, records, batches, "a lost answer")


@case(ContractGuarantee.IDEMPOTENCE)
def a_lost_request_is_not_called_committed(trial: Trial) -> None:
    """The line broke before the sink could commit. An answer of COMMITTED would lose the epoch."""
    driver = trial.driver(1)
    records, batches = driver.prepare(0)
    with trial.harness.cut(is_done=False) as cut:
        outcome = driver.commit(0, records)
    if not cut.is_struck:
        raise NotApplicable("its harness knows no way to lose a commit on its way")
    if outcome.is_final:
        trial.expect(*batches, when=f"after a commit that failed on its way and was answered {outcome.kind.name}")
    _must_end_in_one_copy(trial, records, batches, "a lost request")


def _must_end_in_one_copy(trial: Trial, records: list[Prepared], batches: list[pa.RecordBatch], after: str) -> None:
    trial.restart()
    heir = trial.driver(2, (epoch_of(0), records))
    heir.must_commit(0, records, f"the commit after {after}")
    trial.expect(*batches, when=f"after {after} and a second commit")
    trial.expect_no_litter(f"after {after} and a second commit")


@case(ContractGuarantee.IDEMPOTENCE)
def close_twice_is_harmless(trial: Trial) -> None:
    """A run that ends badly closes what is closed already; the sink is as usable as before."""
    driver = trial.driver(1)
    batches = driver.deliver(0)
    for _ in range(2):
        try:
            driver.committer.close()
        except Exception as error:
            raise Broken(f"close must be harmless, and raises {type(error).__name__}: {error}") from error
    batches += trial.driver(2).deliver(1)
    trial.expect(*batches, when="after close and another run")
