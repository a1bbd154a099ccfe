"""The interrogation: what is done to a sink, case by case, and what a reader sees of it.

Every case works on epochs of its own, so that one that fails says nothing about the next. Epochs and fences only rise, as
in a pipeline. A sink's own error is evidence against it; a system that does not answer is none, and ends the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pakka.audit.cast import Cast
from pakka.audit.driver import Driver
from pakka.audit.report import Answer, Evidence
from pakka.audit.scratch import Ground
from pakka.audit.stage import Broken, Heir, Ids, NotApplicable, Stage, watching
from pakka.contract.audit import ContractGuarantee, audit_pipeline
from pakka.contract.sink import EpochCommit
from pakka.errors import PakkaError, UnavailableError, UnknownOutcomeError
from pakka.model.epoch import Epoch
from pakka.model.outcome import Kind, Outcome
from pakka.model.prepared import Prepared

_BLOCKED_S = 0.5


def interrogate(ground: Ground, cast: Cast) -> tuple[Answer, ...]:
    """Ask for all four guarantees."""
    stage = Stage(ground, cast)
    try:
        # Outside every case: a scratch area that cannot be used at all is an error, and no evidence.
        can_commit = stage.driver().can_commit
        return tuple(
            Answer(guarantee, tuple(_evidence(stage, case, can_commit) for case in CASES[guarantee]))
            for guarantee in ContractGuarantee
        )
    finally:
        stage.close()


@dataclass(frozen=True)
class Case:
    """One thing to do to a sink. `run` returns what was seen, or raises."""

    done: str
    run: Callable[[Stage], str]
    needs_commit: bool = True


def _evidence(stage: Stage, case: Case, can_commit: bool) -> Evidence:
    if case.needs_commit and not can_commit:
        return Evidence(case.done, "the sink has no commit: its writers show rows at once", None)
    try:
        return Evidence(case.done, case.run(stage), True)
    except Broken as error:
        return Evidence(case.done, str(error), False)
    except NotApplicable as error:
        return Evidence(case.done, str(error), None)
    except UnavailableError:
        raise
    except PakkaError as error:
        return Evidence(case.done, f"it raised {type(error).__name__}: {_plain(stage, error.message)}", False)
    except Exception as error:  # whatever a sink raises where the contract knows no error is evidence against it
        return Evidence(case.done, f"it raised {type(error).__name__}: {_plain(stage, str(error))}", False)


def _plain(stage: Stage, text: str) -> str:
    """An error without the names that are different at each audit."""
    token = stage.ground.binding.pipeline.removeprefix(audit_pipeline(""))
    return text.replace(stage.ground.binding.spool, "spool").replace(f"-{token}", "").replace(token, "")


# Isolation.


def nothing_before_commit(stage: Stage) -> str:
    driver = stage.driver()
    epoch, ids = stage.next_epoch(), stage.rows(slots=2)
    written = [driver.write(epoch, number, rows) for number, rows in enumerate(ids)]
    stage.expect([], "after write")
    records = [writer.prepare(checksum) for writer, checksum in written]
    stage.expect([], "after prepare")
    # Or they would be litter in the cases that look for it.
    driver.committer.abort(records)
    return "a reader saw no row after write, and none after prepare"


def none_or_all(stage: Stage) -> str:
    driver = stage.driver()
    epoch, ids = stage.next_epoch(), stage.rows(slots=2, rows=20)
    records = driver.prepare(epoch, ids)
    whole = {0, 40} if isinstance(driver.committer, EpochCommit) else {0, 20, 40}
    with watching(stage) as seen:
        _must_commit(driver, epoch, records)
    stage.expect(ids, "after commit")
    if set(seen) - whole:
        raise Broken("a reader who looked while the epoch was committed saw a part of it")
    if 20 in whole:
        return "a reader who looked while the epoch was committed saw whole slots; this sink commits slot by slot"
    return "a reader who looked while the epoch was committed saw none of its rows, then all of them"


# Prepare/commit separation.


def finished_by_another(stage: Stage) -> str:
    epoch, ids = stage.next_epoch(), stage.rows(slots=2)
    records = _prepared_by_the_dead(stage, "prepared", epoch, ids)
    stage.expect([], "after the process that prepared was killed")
    _must_commit(stage.driver((epoch, records)), epoch, records)
    stage.expect(ids, "after another process has committed what the dead one prepared")
    return "the process that prepared was killed; another one committed the record, and a reader sees every row once"


def undone_by_another(stage: Stage) -> str:
    before = stage.ground.stored()
    epoch, ids = stage.next_epoch(), stage.rows()
    records = _prepared_by_the_dead(stage, "undecided", epoch, ids)
    driver = stage.driver()
    driver.committer.abort(_pending(driver, epoch) or records)
    stage.expect([], "after another process has aborted what the dead one prepared")
    _must_leave_nothing(stage, driver, epoch, before)
    return (
        "the process that prepared was killed; another one found what was pending and aborted it, and nothing is left"
    )


# Idempotent commit and abort.


def commit_twice(stage: Stage) -> str:
    driver = stage.driver()
    epoch, ids = stage.next_epoch(), stage.rows()
    records = driver.prepare(epoch, ids)
    _must_commit(driver, epoch, records)
    _must_commit(driver, epoch, records)
    stage.expect(ids, "after the second commit")
    _must_commit(stage.driver(), epoch, records)
    stage.expect(ids, "after a commit by the next driver")
    return "commit was repeated by the same driver and by the next one, and a reader sees every row once"


def killed_in_commit(stage: Stage) -> str:
    epoch, ids = stage.next_epoch(), stage.rows()
    actor = stage.cast["committing"]
    actor.begin(stage.ground.scratch.sink, stage.ground.binding, stage.next_fence())
    records = actor.prepare(epoch, ids)
    actor.commit_and_die(epoch, records)
    _must_commit(stage.driver((epoch, records)), epoch, records)
    stage.expect(ids, "after a commit whose answer was lost was repeated")
    return "a process was killed between its commit and the answer; the next one repeated it, and a reader sees every row once"


def abort_twice(stage: Stage) -> str:
    driver = stage.driver()
    before = stage.ground.stored()
    epoch, ids = stage.next_epoch(), stage.rows()
    records = driver.prepare(epoch, ids)
    driver.committer.abort(records)
    driver.committer.abort(records)
    stage.expect([], "after abort")
    _must_leave_nothing(stage, driver, epoch, before)
    return "abort was repeated; a reader sees no row, and nothing of it is stored any more"


def abort_after_commit(stage: Stage) -> str:
    driver = stage.driver()
    epoch, ids = stage.next_epoch(), stage.rows()
    records = driver.prepare(epoch, ids)
    _must_commit(driver, epoch, records)
    try:
        driver.committer.abort(records)
    except PakkaError:
        stage.expect(ids, "after an abort of the committed epoch was refused")
        return "an abort of a committed epoch is refused, and its rows stay"
    stage.expect(ids, "after an abort of the committed epoch")
    raise Broken("an abort of a committed epoch was not refused: whoever asked believes that its rows are gone")


# Duplicate-id rejection.


def zombie(stage: Stage) -> str:
    epoch, ids = stage.next_epoch(), stage.rows(mark="zombie")
    actor = stage.cast["zombie"]
    actor.begin(stage.ground.scratch.sink, stage.ground.binding, stage.next_fence())
    records = actor.prepare(epoch, ids)
    heir = stage.driver()
    answer = _refusal(lambda: actor.commit(epoch, records))
    stage.expect([], "after an older driver woke up and committed")
    if answer is not None:
        raise Broken(f"an older driver woke up and committed, and was answered `{answer}`")
    mine = stage.rows(mark="heir")
    heir.committer.abort(_pending(heir, epoch))
    _must_commit(heir, epoch, heir.prepare(epoch, mine))
    stage.expect(mine, "after the new driver has committed the epoch")
    if _refusal(lambda: actor.prepare(stage.next_epoch(), stage.rows(mark="late"))) is not None:
        raise Broken("an older driver woke up and could still prepare")
    return "an older driver woke up in another process: its prepare and its commit were refused, and nothing of it is visible"


def overtaken(stage: Stage) -> str:
    epoch, ids = stage.next_epoch(), stage.rows()
    actor = stage.cast["overtaken"]
    actor.begin(stage.ground.scratch.sink, stage.ground.binding, stage.next_fence())
    records = actor.prepare(epoch, ids)
    if not actor.commit_and_stop(epoch, records):
        raise NotApplicable("the sink names no moment right before its rows become visible (`pakka.points`)")
    # Much longer than a fence takes to be raised here: then something is in its way, and that can only be the commit.
    patience_s = _BLOCKED_S + 5 * stage.raise_s
    heir = Heir(stage, (epoch, records))
    is_past = heir.wait(patience_s)
    answer = _refusal(actor.go_on)
    if is_past and heir.driver().has_settled:
        stage.expect(ids, "after the new driver has finished the commit under way, and the older one went on")
        return (
            "the new driver finished the commit under way before it raised its fence, and a reader sees every row once"
        )
    if is_past:
        stage.expect([], "after an older driver was overtaken in the middle of its commit and went on")
        if answer is not None:
            raise Broken(f"an older driver was overtaken in the middle of its commit, and was answered `{answer}`")
    _must_commit(heir.driver(), epoch, records)
    stage.expect(ids, "after the new driver has committed the epoch")
    if is_past:
        return "an older driver was overtaken in the middle of its commit: it was refused, and nothing of it is visible"
    return "the fence could not be raised past a commit under way; it was raised after it, and a reader sees every row once"


def used_id(stage: Stage) -> str:
    driver = stage.driver()
    epoch, first, second = stage.next_epoch(), stage.rows(mark="first"), stage.rows(mark="second")
    records = driver.prepare(epoch, first, attempt=1)
    refused = _refusal(lambda: driver.prepare(epoch, second, attempt=1)) is None
    _must_commit(driver, epoch, records)
    stage.expect(first, "after an id was used a second time with other rows")
    how = "it was refused" if refused else "it was of no effect"
    return f"an id was used a second time with other rows: {how}, and a reader sees the first rows once"


def committed_epoch_again(stage: Stage) -> str:
    driver = stage.driver()
    epoch, ids = stage.next_epoch(), stage.rows(mark="first")
    _must_commit(driver, epoch, driver.prepare(epoch, ids, attempt=1))
    heir = stage.driver()
    again = heir.prepare(epoch, stage.rows(mark="second"), attempt=2)
    outcome = heir.commit(epoch, again)
    stage.expect(ids, "after a committed epoch was committed again with new records")
    if outcome.kind is Kind.COMMITTED:
        raise Broken("a committed epoch was committed again with new records, and the answer was `committed`")
    return f"a committed epoch came again with new records: the answer was `{outcome.kind.value}`, and a reader sees it once"


CASES: dict[ContractGuarantee, tuple[Case, ...]] = {
    ContractGuarantee.ISOLATION: (
        Case("write and prepare, and look", nothing_before_commit, needs_commit=False),
        Case("commit, and look all the time", none_or_all),
    ),
    ContractGuarantee.SEPARATION: (
        Case("prepare, SIGKILL, commit from another process", finished_by_another),
        Case("prepare, SIGKILL, abort from another process", undone_by_another),
    ),
    ContractGuarantee.IDEMPOTENCE: (
        Case("commit twice, and once more as the next driver", commit_twice),
        Case("SIGKILL after the commit and before its answer, commit again", killed_in_commit),
        Case("abort twice", abort_twice),
        Case("abort what is committed", abort_after_commit),
    ),
    ContractGuarantee.REJECTION: (
        Case("wake an older driver in another process", zombie),
        Case("overtake an older driver in the middle of its commit", overtaken),
        Case("use an id twice", used_id),
        Case("commit a committed epoch with new records", committed_epoch_again),
    ),
}


def _must_commit(driver: Driver, epoch: Epoch, records: Sequence[Prepared]) -> Outcome:
    outcome = driver.commit(epoch, records)
    if not outcome.is_final:
        reason = f" ({outcome.reason})" if outcome.reason else ""
        raise Broken(f"commit was answered `{outcome.kind.value}`{reason}")
    return outcome


def _pending(driver: Driver, epoch: Epoch) -> list[Prepared]:
    return [p for p in driver.committer.pending() if p.slot.epoch == epoch.number]


def _must_leave_nothing(stage: Stage, driver: Driver, epoch: Epoch, before: frozenset[str]) -> None:
    if _pending(driver, epoch):
        raise Broken("after abort, the sink still names the records as pending")
    left = stage.ground.stored() - before
    # A fence that was raised meanwhile renames a directory or rewrites a row, and is no litter.
    if len(left) > len(before - stage.ground.stored()):
        raise Broken("after abort, something of the records is still stored")


def _prepared_by_the_dead(stage: Stage, part: str, epoch: Epoch, ids: Ids) -> list[Prepared]:
    actor = stage.cast[part]
    actor.begin(stage.ground.scratch.sink, stage.ground.binding, stage.next_fence())
    records = actor.prepare(epoch, ids)
    actor.kill()
    return records


def _refusal(act: Callable[[], object]) -> object | None:
    """None if the sink said no; else its answer. Whether a no is true, a reader sees next."""
    try:
        answer = act()
    except UnavailableError:
        raise
    except UnknownOutcomeError:
        return Kind.UNKNOWN.value
    except Exception:  # the contract has several errors for a no, and a sink of one's own may have others
        return None
    return None if answer in (Kind.REFUSED.value, Kind.RETRY.value) else answer
