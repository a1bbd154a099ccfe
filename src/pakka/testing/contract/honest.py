"""Cases of honesty: what a sink says of itself, in every phase of an epoch."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from pakka.contract.doubt import Doubting
from pakka.contract.sink import Committer, Entry, EpochCommit, EpochEntry, Ledger, Sink, SlotCommit, Writer
from pakka.model.guarantee import Level, SinkGuarantee
from pakka.model.outcome import Kind
from pakka.model.prepared import Prepared, add_checksums
from pakka.testing.contract.table import Beside, case
from pakka.testing.contract.trial import Driver, Trial, as_json, commit_slot, epoch_of, refunds, told
from pakka.testing.contract.verdict import Broken, NotApplicable, require


@case(Beside.HONESTY)
def it_has_the_shape_of_the_contract(trial: Trial) -> None:
    """Sink, writer and committer have their methods; the committer has a power to commit, and one to call an epoch whole."""
    require(isinstance(trial.sink, Sink), f"{type(trial.sink).__name__} lacks methods of `Sink`")
    driver = trial.driver(1)
    writer = driver.writer(driver.slot(0))
    require(isinstance(writer, Writer), f"{type(writer).__name__} lacks methods of `Writer`")
    writer.discard()
    committer: object = driver.committer
    require(isinstance(committer, Committer), f"{type(committer).__name__} lacks methods of `Committer`")
    has_power = isinstance(committer, SlotCommit | EpochCommit)
    require(has_power, f"{type(committer).__name__} has neither `commit` nor `commit_epoch`")
    is_told = isinstance(committer, EpochCommit | EpochEntry)
    require(
        is_told,
        f"{type(committer).__name__} commits slot by slot, and has no `enter_epoch` to learn that an epoch is whole",
    )
    guarantee: object = trial.sink.guarantee()
    require(isinstance(guarantee, SinkGuarantee), f"guarantee() gives {guarantee!r}, not a SinkGuarantee")


@case(Beside.HONESTY)
def looking_changes_nothing(trial: Trial) -> None:
    """Making a sink, opening a committer and asking it are free of effect: an older driver's look must not fence a newer."""
    trial.sink.target()
    newer = trial.committer(9)
    newer.ledger()
    newer.pending()
    require(trial.committer(1).ledger().fence == 0, "a committer was opened and asked, and the sink has seen a fence")
    driver = trial.driver(1)
    records, batches = driver.prepare(0)
    litter = sorted(trial.harness.litter())
    onlooker = trial.committer(2)
    onlooker.ledger()
    onlooker.pending()
    require(
        sorted(trial.harness.litter()) == litter, "a committer was opened and asked, and what is staged has changed"
    )
    driver.must_commit(0, records, "a commit after somebody has looked")
    trial.expect(*batches, when="after somebody has looked")


@case(Beside.HONESTY)
def a_committer_may_be_called_from_any_thread(trial: Trial) -> None:
    """Calls come one after another, and not always from the thread that opened the committer."""
    driver = trial.driver(1)
    batches: list[pa.RecordBatch] = []
    for number in range(2):
        records, rows = driver.prepare(number)
        with ThreadPoolExecutor(1) as thread:
            try:
                thread.submit(driver.must_commit, number, records, "a commit from another thread").result()
                thread.submit(driver.committer.ledger).result()
                thread.submit(driver.committer.abort, driver.committer.pending()).result()
            except Broken:
                raise
            except Exception as error:
                raise Broken(f"a call from another thread raises {type(error).__name__}: {error}") from error
        batches += rows
    trial.expect(*batches, when="after commits from two threads")


@case(Beside.HONESTY)
def pending_tells_the_truth(trial: Trial) -> None:
    """`pending` names what is staged, finished or not, and nothing else, in every phase and after a restart."""
    driver = trial.driver(1)
    _expect_pending(trial, driver, [], [], "before anything is staged")
    records, _ = driver.prepare(0, (5, 0, 3))
    full = [p for p in records if p.rows]
    _expect_pending(trial, driver, full, records, "after prepare")
    staged = len(trial.harness.litter())
    half = driver.writer(driver.slot(1, 7))
    half.write(refunds(1, 7, 4))
    begun = Prepared(driver.slot(1, 7), 0, add_checksums(()))
    is_staged = len(trial.harness.litter()) > staged
    _expect_pending(
        trial, driver, [*full, begun] if is_staged else full, [*records, begun], "while another writer is at work"
    )
    trial.restart()
    onlooker = Driver(trial, trial.committer(2), 2)
    _expect_pending(trial, onlooker, [*full, begun] if is_staged else full, [*records, begun], "after a restart")
    heir = trial.driver(2, (epoch_of(0), records))
    heir.must_commit(0, records, "the commit by the next driver")
    _expect_pending(trial, heir, [begun] if trial.harness.litter() else [], [begun], "after the commit")
    heir.abort(heir.committer.pending(), "abort of what is pending")
    _expect_pending(trial, heir, [], [], "after commit and abort")
    trial.expect_no_litter("after all that was pending is settled")


def _expect_pending(trial: Trial, driver: Driver, at_least: list[Prepared], at_most: list[Prepared], when: str) -> None:
    pending = driver.pending()
    if not trial.harness.litter():
        require(not pending, f"{when}, nothing is staged, and pending names {len(pending)} records")
        return
    missing = {p.slot for p in at_least} - pending
    strange = pending - {p.slot for p in at_most}
    require(not missing, f"{when}, pending does not name {', '.join(sorted(map(str, missing)))}")
    require(not strange, f"{when}, pending names {', '.join(sorted(map(str, strange)))}, which is not staged")


@case(Beside.HONESTY)
def what_is_in_doubt_is_what_is_pending(trial: Trial) -> None:
    """A committer that can tell more than `pending` tells it of the same records, and changes nothing by telling."""
    driver = trial.driver(1)
    if not isinstance(driver.committer, Doubting):
        raise NotApplicable("its committer can tell no more than `pending`")
    _expect_in_doubt(trial.committer(1), "before anything is staged")
    records, batches = driver.prepare(0, (5, 0, 3))
    litter = sorted(trial.harness.litter())
    _expect_in_doubt(trial.committer(9), "after prepare, to somebody with another fence")
    require(sorted(trial.harness.litter()) == litter, "it was asked what is in doubt, and what is staged has changed")
    trial.restart()
    heir = trial.driver(2, (epoch_of(0), records))
    _expect_in_doubt(heir.committer, "after a restart")
    heir.must_commit(0, records, "the commit by the next driver")
    trial.expect(*batches, when="after somebody has asked what is in doubt")
    undecided, _ = heir.prepare(1, attempt=1)
    heir.abort(undecided, "abort")
    _expect_in_doubt(heir.committer, "after commit and abort")


def _expect_in_doubt(committer: Committer, when: str) -> None:
    pending = {p.slot for p in committer.pending()}
    told = [d for d in committer.in_doubt() if d.slot is not None] if isinstance(committer, Doubting) else []
    slots = {d.slot for d in told}
    require(
        slots == pending, f"{when}, pending names {len(pending)} records, and {len(slots & pending)} of them are told"
    )
    ids = {d.id for d in told}
    require(len(ids) == len(told), f"{when}, {len(told)} records are told under {len(ids)} ids")
    is_possible = all(d.age_s is None or d.age_s >= 0 for d in told)
    require(is_possible, f"{when}, a record is told that is not yet there")


@case(Beside.HONESTY)
def ledger_tells_the_truth(trial: Trial) -> None:
    """The ledger knows the fence and the newest committed epoch with rows and checksum, and nothing that is not committed."""
    _expect_ledger(trial.committer(1).ledger(), 0, None, "before the first fence")
    driver = trial.driver(1)
    _expect_ledger(driver.committer.ledger(), 1, None, "after the fence was raised")
    records, _ = driver.prepare(0)
    _expect_ledger(driver.committer.ledger(), 1, None, "after prepare")
    driver.must_commit(0, records, "the first commit")
    first = _entry(0, records)
    _expect_ledger(driver.committer.ledger(), 1, first, "after the commit")
    undecided, _ = driver.prepare(1)
    _expect_ledger(driver.committer.ledger(), 1, first, "after prepare of the next epoch")
    driver.abort(undecided, "abort")
    _expect_ledger(driver.committer.ledger(), 1, first, "after abort of the next epoch")
    trial.restart()
    _expect_ledger(trial.committer(2).ledger(), 1, first, "after a restart")
    heir = trial.driver(2)
    _expect_ledger(heir.committer.ledger(), 2, first, "after the next driver raised its fence")
    heir.must_commit(0, records, "a repeated commit")
    _expect_ledger(heir.committer.ledger(), 2, first, "after a repeated commit")
    last, _ = heir.prepare(1, (2, 0), attempt=1)
    heir.must_commit(1, last, "the commit of the next epoch")
    _expect_ledger(heir.committer.ledger(), 2, _entry(1, last), "after the commit of the next epoch")
    if isinstance(heir.committer, EpochCommit):
        heir.must_commit(2, [], "the commit of an epoch without slots")
        _expect_ledger(heir.committer.ledger(), 2, _entry(2, []), "after the commit of an epoch without slots")


@case(Beside.HONESTY)
def an_epoch_in_part_is_not_called_whole(trial: Trial) -> None:
    """A sink that commits slot by slot says which ones it holds: a driver that has lost the decision adds only the others."""
    driver = trial.driver(1)
    committer = driver.committer
    if not isinstance(committer, SlotCommit) or isinstance(committer, EpochCommit):
        raise NotApplicable("it makes whole epochs visible, and never a part")
    records, _ = driver.prepare(0)
    first = records[0]
    require(commit_slot(committer, epoch_of(0), first).is_final, "the commit of one slot of three is not final")
    trial.restart()
    _expect_part(trial.committer(2).ledger(), [first], "after the commit of one slot of three")
    heir = trial.driver(2, (epoch_of(0), records))
    heir.must_commit(0, records, "the commit of the others")
    last = heir.committer.ledger().last
    require(
        last is not None and last.slots is None, "every slot is visible and entered, and the epoch is not called whole"
    )
    heir.must_commit(1, [], "an epoch without slots")
    last = heir.committer.ledger().last
    is_entered = last is not None and last.epoch == epoch_of(1) and last.slots is None
    require(is_entered, "an epoch without slots was entered, and the ledger does not know it")


@case(Beside.HONESTY)
def an_epoch_accepted_as_whole_refuses_no_slot(trial: Trial) -> None:
    """A person accepts that the rest of an epoch is lost. From then on it is whole: a slot of it that is refused would run again."""
    driver = trial.driver(1)
    committer = driver.committer
    if not isinstance(committer, SlotCommit) or isinstance(committer, EpochCommit):
        raise NotApplicable("it makes whole epochs visible, and never a part")
    records, batches = driver.prepare(0)
    require(commit_slot(committer, epoch_of(0), records[0]).is_final, "the commit of one slot of three is not final")
    driver.abort(records[1:], "abort of the others")
    trial.restart()
    _accept(trial.driver(2).committer)
    for fence in (3, 4):
        trial.restart()
        _expect_accepted(trial.driver(fence).committer, records)
    rows = [batches[0], *trial.driver(5).deliver(1)]
    trial.expect(*rows, when="after an epoch that was accepted in part, and the next one")


def _expect_accepted(committer: Committer, records: list[Prepared]) -> None:
    assert isinstance(committer, SlotCommit)
    for record in records:
        kind = commit_slot(committer, epoch_of(0), record).kind
        what = f"the commit of slot {record.slot.number} of an epoch that was accepted with slot 0 alone"
        require(kind is Kind.ALREADY_COMMITTED, f"{what} must answer ALREADY_COMMITTED, and answers {kind.name}")
    last = committer.ledger().last
    require(last is not None and last.slots is None, "an epoch that was accepted is not called whole")


def _accept(committer: Committer) -> None:
    assert isinstance(committer, EpochEntry)
    entered = told(partial(committer.enter_epoch, epoch_of(0)))
    require(
        entered.is_final, f"an epoch must be entered as it is, and {entered.kind.name} is answered ({entered.reason})"
    )


def _expect_part(ledger: Ledger, records: list[Prepared], when: str) -> None:
    wanted = {p.slot.number: (p.rows, p.checksum) for p in records}
    held = dict(ledger.last.slots or {}) if ledger.last is not None else {}
    require(held == wanted, f"{when}, the ledger must tell slots {sorted(wanted)}, and tells {sorted(held) or 'none'}")


def _entry(number: int, records: list[Prepared]) -> Entry:
    return Entry(epoch_of(number), sum(p.rows for p in records), add_checksums(p.checksum for p in records))


def _expect_ledger(ledger: Ledger, fence: int, last: Entry | None, when: str) -> None:
    require(ledger.keeps_epochs, "its ledger keeps no epochs")
    require(ledger.fence == fence, f"{when}, the ledger must tell fence {fence}, and tells {ledger.fence}")
    if last is None or ledger.last is None:
        told, true = ("no epoch" if entry is None else _words(entry) for entry in (ledger.last, last))
        require(told == true, f"{when}, the ledger must tell {true}, and tells {told}")
        return
    told, true = _words(ledger.last), _words(last)
    require(told == true, f"{when}, the ledger must tell {true}, and tells {told}")


def _words(entry: Entry) -> str:
    return f"epoch {entry.epoch.number} of {entry.epoch.origin}, {entry.rows} rows, checksum {entry.checksum}"


@case(Beside.HONESTY)
def a_sink_without_a_ledger_is_not_exactly_once(trial: Trial) -> None:
    """Exactly-once needs a memory in the sink itself: one that keeps no epochs must declare at-least-once."""
    is_exact = trial.sink.guarantee().level is Level.EXACTLY_ONCE
    driver = trial.driver(1)
    driver.deliver(0)
    ledger = driver.committer.ledger()
    remembers = ledger.keeps_epochs and ledger.last is not None
    require(remembers or not is_exact, "it declares exactly-once, and remembers no epoch that it has committed")


@case(Beside.HONESTY)
def it_travels_to_the_executors(trial: Trial) -> None:
    """The sink pickles, and what comes out of the pickle is the same sink."""
    try:
        copy = pickle.loads(pickle.dumps(trial.sink))
    except Exception as error:
        raise Broken(f"the sink cannot be pickled: {type(error).__name__}: {error}") from error
    require(copy.target() == trial.sink.target(), f"a pickled copy has target {copy.target()}")
    driver = trial.driver(1)
    trial.sink = copy
    batches = driver.deliver(0)
    trial.expect(*batches, when="after a commit of what a pickled copy has written")


@case(Beside.HONESTY)
def it_shows_no_secret(trial: Trial) -> None:
    """No secret is in anything that is logged, shown or stored: the sink's texts, its records, its errors."""
    driver = trial.driver(1)
    records, _ = driver.prepare(0)
    driver.must_commit(0, records, "the first commit")
    texts = {
        "repr of the sink": repr(trial.sink),
        "str of the sink": str(trial.sink),
        "its target": trial.sink.target(),
        "its guarantee": repr(trial.sink.guarantee()),
        "repr of its committer": repr(driver.committer),
        "a prepared record": str(as_json(records)),
        "what is pending": str(as_json(driver.committer.pending())),
        "its ledger": repr(driver.committer.ledger()),
    }
    try:
        driver.committer.abort(records)
    except Exception as error:
        texts["the refusal of an abort"] = f"{error!r} {error}"
    shown = sorted(what for what, text in texts.items() if any(secret in text for secret in trial.harness.secrets))
    require(not shown, f"a secret is in {', '.join(shown)}")
