"""A sink on trial: drivers that write epochs to it, and a reader that counts what it sees."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any

import pyarrow as pa

from pakka.contract.sink import Committer, EpochCommit, EpochEntry, SlotCommit, Writer
from pakka.errors import FencedError, PakkaError, RefusedError, UnavailableError
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Kind, Outcome
from pakka.model.prepared import Prepared, checksum_of
from pakka.testing.contract.harness import Harness
from pakka.testing.contract.verdict import Broken, require

PIPELINE, SINK = "refunds", "out"
SCHEMA = pa.schema([("refund_id", pa.string()), ("merchant", pa.string()), ("amount_paise", pa.int64())])
SHARES = (5, 4, 3)
"""Rows of each slot of an epoch, unless a case wants others. Every slot's rows come in several batches."""

Decided = tuple[Epoch, Sequence[Prepared]]


def epoch_of(number: int) -> Epoch:
    return Epoch(PIPELINE, number, Origin("query-1", number, f"offsets-{number}"))


def refunds(epoch: int, slot: int, count: int, mark: str = "") -> pa.RecordBatch:
    """Rows that no other epoch and slot has. Two marks make two sets of rows that differ in every row."""
    ids = [f"RFD-{epoch}-{slot}-{n}{mark}" for n in range(count)]
    merchants = [f"chai corner {n % 3}" for n in range(count)]
    return pa.record_batch([ids, merchants, [100 * n + slot for n in range(count)]], schema=SCHEMA)


def checksum(batch: pa.RecordBatch) -> str:
    """Order-free, as the real one; a sink only keeps it."""
    return checksum_of(sum(zlib.crc32(repr(row).encode()) for row in batch.to_pylist()))


def seen(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a reader counts them, whatever their order."""
    return Counter(tuple(sorted((name, row[name]) for name in row)) for row in rows)


def told(commit: Callable[[], Outcome]) -> Outcome:
    """What the coordinator makes of an answer: an error tells nothing about what was done, but for the ones that know."""
    try:
        return commit()
    except FencedError:
        raise
    except (RefusedError, UnavailableError) as error:
        return Outcome.retry(error.message, error.hint)
    except Exception as error:  # no answer, and the reason is kept
        return Outcome.unknown(f"{type(error).__name__}: {error}")


def commit_epoch(committer: Committer, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
    """What a sink answers for a whole epoch: the worst of its slots, then the epoch's own."""
    outcome: Outcome | None = None
    if isinstance(committer, SlotCommit):
        answers = [commit_slot(committer, epoch, record) for record in prepared]
        worst = next((o for o in answers if not o.is_final), None)
        if worst is not None:
            return worst
        outcome = COMMITTED if COMMITTED in answers or not answers else answers[0]
    if isinstance(committer, EpochCommit):
        whole = committer
        outcome = told(lambda: whole.commit_epoch(epoch, prepared))
    elif isinstance(committer, EpochEntry):
        entered = told(partial(committer.enter_epoch, epoch))
        outcome = outcome if entered.is_final else entered
    if outcome is None:
        raise Broken("its committer has neither `commit` nor `commit_epoch`: nothing could ever become visible")
    return outcome


def commit_slot(committer: SlotCommit, epoch: Epoch, record: Prepared) -> Outcome:
    """What a sink answers for one slot."""

    def ask() -> Outcome:
        (outcome,) = committer.commit(epoch, [record])
        return outcome

    return told(ask)


def as_json(records: Sequence[Prepared]) -> list[Any]:
    """Records as they cross over to another process: through text."""
    try:
        texts = [json.dumps(record.to_json()) for record in records]
    except (TypeError, ValueError) as error:
        raise Broken(f"a prepared record cannot be written as JSON: {error}") from error
    return [json.loads(text) for text in texts]


class Trial:
    """One case's sink, and all who have to do with it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.binding = Binding(PIPELINE, SINK, str(harness.place / "spool"))
        self.sink = harness.sink()
        self._opened: list[Committer] = []

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            # What went wrong first is what is told: a sink that is broken may not close either.
            with suppress(Exception) if error is not None else nullcontext():
                self.close()
        finally:
            self.harness.close()

    def close(self) -> None:
        """Close every committer; the sink itself stays as it is."""
        while self._opened:
            self._opened.pop().close()

    def restart(self) -> None:
        """All processes are gone, and new ones know nothing of them."""
        self.close()
        self.harness.restart()
        self.sink = self.harness.sink()

    def committer(self, fence: int) -> Committer:
        """A committer as `open_committer` gives it: nothing is raised yet."""
        committer = self.sink.open_committer(self.binding, fence)
        self._opened.append(committer)
        return committer

    def driver(self, fence: int, decided: Decided | None = None) -> Driver:
        """A driver that has taken the pipeline over. What is decided is only committed where it blocks the fence."""
        committer = self.committer(fence)
        driver = Driver(self, committer, fence)
        if committer.raise_fence():
            return driver
        # Something prepared under an older fence is in the way. It is settled, as the start of a run does.
        if decided is not None:
            driver.commit(*decided)
        winners = {p.slot for p in decided[1]} if decided else set()
        committer.abort([p for p in committer.pending() if p.slot not in winners])
        require(committer.raise_fence(), f"raise_fence({fence}) still answers False, with nothing pending in its way")
        return driver

    def visible(self) -> Counter[tuple[Any, ...]]:
        return seen(self.harness.rows(SCHEMA))

    def expect(self, *batches: pa.RecordBatch, when: str, upto: int = 1) -> None:
        """A reader sees exactly these rows: each once, or for a sink that may repeat, at most `upto` times."""
        wanted = seen(row for batch in batches for row in batch.to_pylist())
        found = self.visible()
        lost = [row for row in wanted if found[row] < wanted[row]]
        doubled = [row for row in wanted if found[row] > wanted[row] * upto]
        strange = [row for row in found if row not in wanted]
        if lost or doubled or strange:
            named = {"lost": lost, "doubled": doubled, "strange": strange}
            parts = [f"{len(rows)} {word}, such as {dict(rows[0])}" for word, rows in named.items() if rows]
            raise Broken(
                f"{when}, a reader must see {wanted.total()} rows and sees {found.total()}: {'; '.join(parts)}"
            )

    def expect_no_litter(self, when: str) -> None:
        left = sorted(self.harness.litter())
        require(not left, f"{when}, {len(left)} things are left staged, such as {left[:1]}")


class Driver:
    """A driver under one fence, and the writers it sends out."""

    def __init__(self, trial: Trial, committer: Committer, fence: int) -> None:
        self.trial = trial
        self.committer = committer
        self.fence = fence

    def slot(self, epoch: int, number: int = 0, attempt: int = 0) -> Slot:
        return Slot(PIPELINE, SINK, epoch, self.fence, number, attempt)

    def writer(self, slot: Slot, schema: pa.Schema = SCHEMA) -> Writer:
        return self.trial.sink.open_writer(self.trial.binding, slot, schema)

    def prepare(
        self, epoch: int, shares: Sequence[int] = SHARES, attempt: int = 0, mark: str = ""
    ) -> tuple[list[Prepared], list[pa.RecordBatch]]:
        """Every slot of an epoch, prepared, and the rows that were written."""
        batches = [refunds(epoch, number, count, mark) for number, count in enumerate(shares)]
        return [self.prepare_slot(self.slot(epoch, n, attempt), b) for n, b in enumerate(batches)], batches

    def prepare_slot(self, slot: Slot, batch: pa.RecordBatch) -> Prepared:
        return prepare_slot(self.writer(slot, batch.schema), slot, batch)

    def commit(self, epoch: Epoch | int, prepared: Sequence[Prepared]) -> Outcome:
        return commit_epoch(self.committer, epoch_of(epoch) if isinstance(epoch, int) else epoch, prepared)

    def deliver(self, epoch: int, shares: Sequence[int] = SHARES) -> list[pa.RecordBatch]:
        """Prepare and commit an epoch, which must work; the rows."""
        records, batches = self.prepare(epoch, shares)
        self.must_commit(epoch, records, "the first commit", Kind.COMMITTED)
        return batches

    def must_commit(self, epoch: Epoch | int, prepared: Sequence[Prepared], what: str, *kinds: Kind) -> None:
        """Commit, and be told one of these; any final answer, if none is named."""
        outcome = self.commit(epoch, prepared)
        allowed = kinds or (Kind.COMMITTED, Kind.ALREADY_COMMITTED)
        words = " or ".join(kind.name for kind in allowed)
        reason = f" ({outcome.reason})" if outcome.reason else ""
        require(outcome.kind in allowed, f"{what} must answer {words}, and answers {outcome.kind.name}{reason}")

    def abort(self, prepared: Sequence[Prepared], what: str) -> None:
        """Abort, which must not complain."""
        try:
            self.committer.abort(prepared)
        except PakkaError as error:
            raise Broken(f"{what} must do no harm, and raises {type(error).__name__}: {error.message}") from error

    def pending(self) -> set[Slot]:
        return {p.slot for p in self.committer.pending()}


def prepare_slot(writer: Writer, slot: Slot, batch: pa.RecordBatch) -> Prepared:
    """Write a slot's rows in batches of at most two, and prepare them."""
    for start in range(0, batch.num_rows, 2):
        writer.write(batch.slice(start, 2))
    record = writer.prepare(checksum(batch))
    require(record.slot == slot, f"prepare of `{slot}` gives back a record of `{record.slot}`")
    require(
        record.rows == batch.num_rows, f"prepare of `{slot}` was given {batch.num_rows} rows and tells {record.rows}"
    )
    return record
