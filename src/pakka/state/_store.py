"""What a state store does, over any SQL engine that has transactions; `sqlite` and `postgres` say how to reach one.

Every write is one transaction. It locks the pipeline's row, checks the fence under that lock, and only then changes
anything, so a newer driver takes its fence either before (and this write is refused) or after (and sees this write).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pakka.contract.state import Decision, EpochRow, Owner, PipelineState
from pakka.errors import BugError, FencedError, PakkaError, UnknownOutcomeError, UsageError
from pakka.model.epoch import Count, Epoch
from pakka.state import _schema, _sql

WINDOW = 1000
"""Settled epochs kept for `status` and `verify`, counted by their numbers."""

T = TypeVar("T")


class SqlStore(ABC):
    """A state store in SQL tables. One connection, used by one thread at a time.

    `totals` of a state are those of settled epochs, the same ones that `committed` speaks of; each open decision has its
    own count. An epoch that was adopted has no counts, no sinks and the time 0, since all of that was lost.
    """

    begin_write: ClassVar[str]
    begin_read: ClassVar[str]
    lock_row: ClassVar[str] = ""
    """What makes a SELECT lock its row; nothing where a write locks everything."""
    has_meta: ClassVar[str]
    """Asks the catalogue whether `pakka_meta` is there."""
    lock_schema: ClassVar[str] = "SELECT 1"
    """Keeps other processes from migrating at the same time, where beginning a write does not."""
    driver_error: ClassVar[type[Exception]]

    def __init__(self, *, must_exist: bool) -> None:
        self._must_exist = must_exist
        self._is_closed = False
        self._guard = threading.RLock()
        with self._guard, self._deadline():
            self._connect_and_check()

    # What an engine has to say.

    @abstractmethod
    def describe(self) -> str:
        """Where this store is, in words a user knows, with no secret."""

    @abstractmethod
    def is_shared(self) -> bool:
        """Can drivers on several machines reach it?"""

    @abstractmethod
    def _connect(self) -> None:
        """Open the one connection."""

    @abstractmethod
    def _is_connected(self) -> bool:
        """Is there a connection that is worth a try?"""

    @abstractmethod
    def _drop(self) -> None:
        """Close the connection; what was not committed is rolled back by that."""

    @abstractmethod
    def _execute(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; raises the driver's own errors."""

    @abstractmethod
    def _reason_of(self, error: Exception) -> str:
        """A driver's error in words, with no secret."""

    @abstractmethod
    def _error_of(self, error: Exception) -> PakkaError:
        """What a driver's error means if it came before COMMIT was sent, so that nothing can have been written."""

    def _deadline(self) -> AbstractContextManager[None]:
        """Bounds the time a transaction may take, where the engine cannot promise an answer."""
        return nullcontext()

    # What a driver does.

    def take_fence(self, pipeline: str, owner: Owner, at_least: int = 1) -> PipelineState:
        def work() -> PipelineState:
            self._execute(_sql.ADD_PIPELINE, (pipeline, _sql.count_json(Count())))
            state = self._locked(pipeline)
            assert state is not None
            fence = max(state.fence + 1, at_least)
            self._execute(_sql.TAKE_FENCE, (fence, _sql.owner_json(owner), pipeline))
            return self._with_open(replace(state, fence=fence, owner=owner))

        return self._write(f"a new fence of pipeline `{pipeline}`", work)

    def decide(self, decision: Decision) -> None:
        pipeline, number = decision.epoch.pipeline, decision.epoch.number
        params = _sql.epoch_params(decision)

        def work() -> None:
            state = self._owned(pipeline, decision.fence)
            older = self._open_counts(state)
            if number <= (older[-1].number if older else state.committed):
                # Deciding again after a lost answer is how the coordinator asks whether it was written.
                self._check_same(decision)
                return
            if older or state.is_reset:
                self._advance(replace(state, is_reset=False), older)
            self._execute(_sql.ADD_EPOCH, params)

        self._write(f"the decision of epoch {number} of pipeline `{pipeline}`", work)

    def amend(self, decision: Decision) -> None:
        pipeline, number = decision.epoch.pipeline, decision.epoch.number
        params, origin = _sql.amend_params(decision), decision.epoch.origin

        def work() -> None:
            state = self._owned(pipeline, decision.fence)
            if (number, origin) not in [(o.number, o.origin) for o in self._open_counts(state)]:
                raise self._bug(pipeline, f"epoch {number} ({origin}) is not open and cannot be amended")
            self._execute(_sql.AMEND, params)

        self._write(f"the amended decision of epoch {number} of pipeline `{pipeline}`", work)

    def settle(self, pipeline: str, fence: int, epoch: int) -> None:
        def work() -> None:
            state = self._owned(pipeline, fence)
            open_ = self._open_counts(state)
            if epoch > (open_[-1].number if open_ else state.committed):
                raise self._bug(pipeline, f"epoch {epoch} was never decided and cannot be committed")
            settled = [o for o in open_ if o.number <= epoch]
            if settled:
                self._advance(state, settled)

        self._write(f"the end of epoch {epoch} of pipeline `{pipeline}`", work)

    def adopt(self, pipeline: str, fence: int, epoch: Epoch, base: int) -> None:
        origin, nothing = _sql.origin_json(epoch.origin), _sql.count_json(Count())

        def work() -> None:
            state = self._owned(pipeline, fence)
            known = Epoch(pipeline, state.committed, state.origin) if state.origin else None
            if epoch.number <= state.committed and epoch != known:
                raise self._bug(pipeline, f"epoch {epoch.number} cannot be adopted, {state.committed} is committed")
            self._execute(_sql.REBASE, (base, int(state.is_reset), pipeline))
            if epoch == known:
                return
            # Open decisions up to `epoch` are committed like all before it, and their counts are known. Only one of the same
            # number from other offsets is not what the sinks hold.
            older = [o for o in self._open_counts(state) if o.number <= epoch.number]
            if older and older[-1].number == epoch.number and older[-1].origin != epoch.origin:
                older.pop()
                self._execute(_sql.PRUNE, (pipeline, epoch.number - 1, epoch.number))
            if not older or older[-1].number < epoch.number:
                self._execute(_sql.ADD_EPOCH, (pipeline, epoch.number, fence, origin, nothing, "{}", None, 0.0))
                older.append(_sql.OpenCount(epoch.number, epoch.origin, Count()))
            self._advance(state, older)

        self._write(f"the adoption of epoch {epoch.number} by pipeline `{pipeline}`", work)

    # What a person does.

    def reset(self, pipeline: str, base: int) -> None:
        def work() -> None:
            self._execute(_sql.ADD_PIPELINE, (pipeline, _sql.count_json(Count())))
            self._locked(pipeline)
            self._execute(_sql.REBASE, (base, 1, pipeline))

        self._write(f"the reset of pipeline `{pipeline}`", work)

    def forget(self, pipeline: str) -> None:
        def work() -> None:
            self._locked(pipeline)
            self._execute(_sql.FORGET_EPOCHS, (pipeline,))
            self._execute(_sql.FORGET_PIPELINE, (pipeline,))

        self._write(f"the removal of pipeline `{pipeline}`", work)

    def read(self, pipeline: str) -> PipelineState | None:
        def work() -> PipelineState | None:
            rows = self._execute(_sql.PIPELINE, (pipeline,))
            return self._with_open(_sql.pipeline_of(rows[0])) if rows else None

        return self._read(work)

    def pipelines(self) -> Sequence[str]:
        return sorted(name for (name,) in self._read(lambda: self._execute(_sql.NAMES)))

    def window(self, pipeline: str, limit: int = 100) -> Sequence[EpochRow]:
        rows = self._read(lambda: self._execute(_sql.WINDOW, (pipeline, max(limit, 0))))
        return [_sql.epoch_row_of(pipeline, row) for row in rows]

    def find(self, pipeline: str, epoch: int) -> EpochRow | None:
        rows = self._read(lambda: self._execute(_sql.FIND, (pipeline, epoch)))
        return _sql.epoch_row_of(pipeline, rows[0]) if rows else None

    def close(self) -> None:
        with self._guard:
            self._is_closed = True
            self._drop()

    # Inside a transaction.

    def _locked(self, pipeline: str) -> PipelineState | None:
        rows = self._execute(_sql.PIPELINE + self.lock_row, (pipeline,))
        return _sql.pipeline_of(rows[0]) if rows else None

    def _owned(self, pipeline: str, fence: int) -> PipelineState:
        """Lock the pipeline, and make sure that `fence` is still the one that owns it."""
        state = self._locked(pipeline)
        if state is not None and state.fence == fence:
            return state
        if state is not None and state.fence > fence:
            raise FencedError.of(f"pipeline `{pipeline}`", pipeline, fence, state.fence)
        raise FencedError.replaced(pipeline, fence, self.describe(), state.fence if state else None)

    def _with_open(self, state: PipelineState) -> PipelineState:
        rows = self._execute(_sql.OPEN, (state.pipeline, state.committed))
        return replace(state, open=tuple(_sql.decision_of(state.pipeline, row) for row in rows))

    def _open_counts(self, state: PipelineState) -> list[_sql.OpenCount]:
        return [_sql.open_count_of(row) for row in self._execute(_sql.OPEN_COUNTS, (state.pipeline, state.committed))]

    def _advance(self, state: PipelineState, settled: Sequence[_sql.OpenCount]) -> None:
        """Move `committed` over these open epochs: fold their counts, drop their records, and prune the window.

        All at or below `committed - WINDOW` is already gone, so that only what falls out now has to be deleted.
        """
        name, before = state.pipeline, state.committed
        after = settled[-1].number if settled else before
        origin = settled[-1].origin if settled else state.origin
        totals = sum((s.counts for s in settled), state.totals)
        self._execute(
            _sql.ADVANCE,
            (after, origin and _sql.origin_json(origin), int(state.is_reset), _sql.count_json(totals), name),
        )
        if after > before:
            self._execute(_sql.DROP_PREPARED, (name, before, after))
            self._execute(_sql.PRUNE, (name, before - WINDOW, after - WINDOW))

    def _check_same(self, decision: Decision) -> None:
        pipeline, number = decision.epoch.pipeline, decision.epoch.number
        rows = self._execute(_sql.DECIDED, (pipeline, number))
        if rows and _sql.is_same(decision, rows[0]):
            return
        before = f"by fence {rows[0][0]} with other records" if rows else "or passed over, too long ago to compare"
        raise self._bug(pipeline, f"epoch {number} was decided before, {before}; it is not decided again")

    def _bug(self, pipeline: str, what: str) -> BugError:
        return BugError(
            f"pipeline `{pipeline}`: {what}; nothing was changed",
            hint="this is a bug in pakka; stop the pipeline and keep its state store and checkpoint",
        )

    # Around a transaction.

    def _write(self, what: str, work: Callable[[], T]) -> T:
        with self._guard, self._deadline():
            result = self._begin_and_do(self.begin_write, work)
            try:
                self._execute("COMMIT")
            except self.driver_error as error:
                # COMMIT was sent. It may have been done, may be done yet, or not at all: only asking again can tell.
                self._drop()
                raise UnknownOutcomeError(
                    f"state store {self.describe()}: no answer to COMMIT of {what}: {self._reason_of(error)}; whether "
                    "it is written is unknown",
                    hint="do not guess; run the pipeline again when the state store answers, and it reads what is there",
                ) from error
            except BaseException:
                self._drop()
                raise
            return result

    def _read(self, work: Callable[[], T]) -> T:
        def work_and_end() -> T:
            result = work()
            self._execute("COMMIT")
            return result

        with self._guard, self._deadline():
            return self._begin_and_do(self.begin_read, work_and_end)

    def _begin_and_do(self, begin: str, work: Callable[[], T]) -> T:
        """All of a transaction up to its COMMIT."""
        if self._is_closed:
            raise BugError(f"state store {self.describe()}: used after close; nothing was changed")
        with self._or_drop():
            self._begin(begin)
            return work()

    @contextmanager
    def _or_drop(self) -> Iterator[None]:
        """Any error on the way to COMMIT drops the connection, which rolls back; a driver's error is put into our words."""
        try:
            yield
        except self.driver_error as error:
            self._drop()
            raise self._error_of(error) from error
        except BaseException:
            self._drop()
            raise

    def _begin(self, begin: str) -> None:
        if self._is_connected():
            try:
                self._execute(begin)
                return
            except self.driver_error:
                if self._is_connected():
                    raise
        # None yet, or it was cut while it stood idle, with nothing asked over it: a new one may do.
        self._drop()
        self._connect_and_check()
        self._execute(begin)

    def _connect_and_check(self) -> None:
        """Connect, and see to it that the tables are those this code knows."""
        with self._or_drop():
            self._connect()
            known = len(_schema.STEPS)
            version = _schema.version_of(self._execute, self.has_meta)
            _schema.check_version(self.describe(), version, known)
            if version < known:
                self._migrate(version)

    def _migrate(self, version: int) -> None:
        if self._must_exist:
            raise self._absent() if version == 0 else self._outdated(version)
        self._execute(self.begin_write)
        self._execute(self.lock_schema)
        # Another process may have been faster.
        version = _schema.version_of(self._execute, self.has_meta)
        _schema.check_version(self.describe(), version, len(_schema.STEPS))
        if version < len(_schema.STEPS):
            _schema.migrate(self._execute, version, _schema.STEPS)
        self._execute("COMMIT")

    def _absent(self) -> UsageError:
        return UsageError(
            f"there is no state at {self.describe()}",
            hint="the first `pakka run` of a pipeline makes it; or name the right place with `state:`",
        )

    def _outdated(self, version: int) -> UsageError:
        return UsageError(
            f"state store {self.describe()}: its tables are of version {version}, older than version {len(_schema.STEPS)}",
            hint="the next `pakka run` brings them up to date",
        )
