"""Cases of isolation: what a reader sees, and when."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from pakka.contract.audit import ContractGuarantee
from pakka.contract.sink import EpochCommit, SlotCommit
from pakka.model.outcome import Kind
from pakka.testing.contract.moment import visiting, watching
from pakka.testing.contract.table import case
from pakka.testing.contract.trial import SHARES, Trial, commit_slot, epoch_of
from pakka.testing.contract.verdict import NotApplicable, require

_LOOKS = 60
_PATIENCE_S = 1.0
"""How long a commit stands still for a reader who waits for that very commit."""


@case(ContractGuarantee.ISOLATION)
def prepare_alone_is_invisible(trial: Trial) -> None:
    """Rows that are prepared and not committed are seen by nobody, however many processes come and go."""
    driver = trial.driver(1)
    records, _ = driver.prepare(0)
    trial.expect(when="after prepare alone")
    trial.restart()
    trial.committer(2).pending()
    trial.expect(when="after prepare and a restart")
    trial.driver(2, (epoch_of(0), [])).abort(records, "abort of what was only prepared")
    trial.expect(when="after prepare, a restart and abort")


@case(ContractGuarantee.ISOLATION)
def commit_makes_visible_once(trial: Trial) -> None:
    """Every row of every slot and batch is there after the commit, once, and as it was written; epochs add up."""
    driver = trial.driver(1)
    first = driver.deliver(0)
    trial.expect(*first, when="after the commit")
    second = driver.deliver(1, (1, 7))
    trial.expect(*first, *second, when="after the commit of a second epoch")
    trial.expect_no_litter("after the commit")


@case(ContractGuarantee.ISOLATION)
def many_writers_commit_as_one(trial: Trial) -> None:
    """A reader who looks at any moment of a commit sees the whole epoch or nothing of it."""
    driver = trial.driver(1)
    if not isinstance(driver.committer, EpochCommit):
        raise NotApplicable("it commits slot by slot, and says so: a reader may see a part for a moment")
    records, _ = driver.prepare(0)
    with watching() as course:
        driver.must_commit(0, records, "the first commit", Kind.COMMITTED)
    records, _ = driver.prepare(1)
    onlooker = _Onlooker(trial)
    with visiting(max(1, course.moments // _LOOKS), onlooker.look):
        driver.must_commit(1, records, "the second commit", Kind.COMMITTED)
    onlooker.wait()
    parts = onlooker.counts - {sum(SHARES), 2 * sum(SHARES)}
    require(
        not parts,
        f"an epoch of {sum(SHARES)} rows is committed beside another, and a reader sees {sorted(parts)} rows in between",
    )


class _Onlooker:
    """Reads in a thread of its own, one look after another. A sink may make readers wait until its transaction ends."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.counts: set[int] = set()
        self._errors: list[Exception] = []
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
            self._thread.join(_PATIENCE_S)

    def wait(self) -> None:
        """Until the last look is over. What a reader stumbled over is the harness's own, and is raised here."""
        if self._thread is not None:
            self._thread.join()
        if self._errors:
            raise self._errors[0]

    def _read(self) -> None:
        try:
            self.counts.add(self.trial.visible().total())
        except Exception as error:
            self._errors.append(error)


@case(ContractGuarantee.ISOLATION)
def slots_may_be_committed_side_by_side(trial: Trial) -> None:
    """The coordinator commits slots from several threads at once; each gets the answer to its own."""
    driver = trial.driver(1)
    committer = driver.committer
    if not isinstance(committer, SlotCommit):
        raise NotApplicable("it commits whole epochs, one after another")
    records, batches = driver.prepare(0)
    with ThreadPoolExecutor(len(records)) as pool:
        answers = list(pool.map(lambda record: commit_slot(committer, epoch_of(0), record), records))
    words = [f"{answer.kind.name} {answer.reason}".strip() for answer in answers]
    require(set(words) == {"COMMITTED"}, f"slots committed side by side must all be COMMITTED, and are {words}")
    trial.expect(*batches, when="after slots were committed side by side")


@case(ContractGuarantee.ISOLATION)
def an_empty_slot_and_an_empty_epoch_are_committed(trial: Trial) -> None:
    """Most slots of a small epoch are empty, and an epoch without any row is an epoch like any other."""
    driver = trial.driver(1)
    batches = driver.deliver(0, (0, 4, 0))
    trial.expect(*batches, when="after the commit of an epoch with empty slots")
    driver.deliver(1, (0, 0))
    driver.must_commit(2, [], "the commit of an epoch without slots", Kind.COMMITTED)
    driver.must_commit(2, [], "its repetition")
    batches += driver.deliver(3)
    trial.expect(*batches, when="after the commit of empty epochs among others")
    trial.expect_no_litter("after the commit of empty epochs")
