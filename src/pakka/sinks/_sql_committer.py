"""Committers of SQL servers, each of which also finds what a run has left that went the other way.

The way may change between two runs: a person changes it, or `auto` chooses another one because the server's settings have
changed. What is not decided is undone by whichever run comes next. What is decided is finished the way it was prepared: a run
of the other way refuses, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pakka.contract.doubt import Doubt
from pakka.contract.sink import Ledger
from pakka.errors import SinkError, UnavailableError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding
from pakka.model.outcome import Outcome
from pakka.model.prepared import Prepared
from pakka.sinks._spool import spool_errors, staging_of
from pakka.sinks._sql_applier import SqlApplier
from pakka.sinks._staging import not_aborted
from pakka.sinks._two_phase import Clerk, TwoPhaseCommitter, is_of_server
from pakka.sinks.spooled import SpooledCommitter


class PreparedWay(TwoPhaseCommitter):
    """Settles prepared transactions, and sweeps the spool of a run that had one."""

    def __init__(self, binding: Binding, fence: int, clerk: Clerk) -> None:
        super().__init__(binding, fence, clerk)
        self.staging = staging_of(binding, fence)

    def ledger(self) -> Ledger:
        told = super().ledger()
        with spool_errors(self.staging):
            return replace(told, fence=max(told.fence, self.staging.seen()))

    def raise_fence(self) -> bool:
        is_raised = super().raise_fence()
        if is_raised:
            with spool_errors(self.staging):
                # A spool is never made here. One that is there is taken from the driver that had it, with its writers.
                if self.staging.seen():
                    self.staging.raise_fence()
                    self.staging.sweep(self.clerk.look(None).newest)
        return is_raised

    def abort(self, prepared: Sequence[Prepared]) -> None:
        super().abort([record for record in prepared if is_of_server(record)])
        spooled = [record.slot for record in prepared if not is_of_server(record)]
        newest = self.clerk.look(None).newest if spooled else -1
        for slot in spooled:
            if slot.epoch <= newest:
                raise not_aborted(self.binding, slot)
            with spool_errors(self.staging):
                self.staging.remove(slot)

    def pending(self) -> Sequence[Prepared]:
        with spool_errors(self.staging):
            spooled = self.staging.pending()
        return [*super().pending(), *spooled]

    def in_doubt(self) -> Sequence[Doubt]:
        with spool_errors(self.staging):
            spooled = self.staging.in_doubt(self.staging.slots())
        return [*super().in_doubt(), *spooled]


class SpooledWay(SpooledCommitter):
    """Applies spooled epochs, and rolls back what a run has prepared on the server."""

    def __init__(self, binding: Binding, fence: int, applier: SqlApplier[Any]) -> None:
        super().__init__(binding, fence, applier, is_exact=True)
        self.server = TwoPhaseCommitter(binding, fence, applier.clerk)

    def raise_fence(self) -> bool:
        try:
            return super().raise_fence()
        except UnavailableError:
            if not self._prepared():
                raise
            self._check_fence(self._recall())
            return False

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        strange = next((record.slot for record in prepared if is_of_server(record)), None)
        if strange is not None and not self._is_committed(epoch, self._recall()):
            raise SinkError(
                f"{self.binding}: `{strange}` was prepared the `prepared` way, and this run's is `spooled`; nothing was changed",
                hint="set `way: prepared`, and `pakka indoubt resolve` finishes it; then change the way",
            )
        return super().commit_epoch(epoch, prepared)

    def abort(self, prepared: Sequence[Prepared]) -> None:
        super().abort([record for record in prepared if not is_of_server(record)])
        self.server.abort([record for record in prepared if is_of_server(record)])

    def pending(self) -> Sequence[Prepared]:
        return [*super().pending(), *self._prepared()]

    def in_doubt(self) -> Sequence[Doubt]:
        prepared = self.server.in_doubt() if self.server.clerk.may_list() else ()
        return [*super().in_doubt(), *(doubt for doubt in prepared if doubt.slot is not None)]

    def _prepared(self) -> Sequence[Prepared]:
        # Who may not see what is prepared has not prepared it. If the right was taken away since, the fence cannot be raised.
        return self.server.pending() if self.server.clerk.may_list() else ()
