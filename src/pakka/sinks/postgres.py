"""The PostgreSQL sink: two-phase commit with the server's own prepared transactions, or a whole epoch in one transaction.

Two ways, one ledger. `prepared`: every slot copies its rows into the target from its executor, in a transaction that is
prepared and then committed by the driver, in parallel. `spooled`: rows wait in pakka's spool, and the driver applies the
epoch in one transaction; for `upsert` and `mirror`, where two slots with one key would wait for each other, and for servers
and poolers that cannot prepare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from pakka.contract.audit import Probe, Scratch
from pakka.model.id import Binding, Slot
from pakka.postgres_line import Address, Line
from pakka.sinks._postgres_applier import PostgresApplier, check_target, deletes_in
from pakka.sinks._postgres_clerk import BEGIN, PostgresClerk
from pakka.sinks._postgres_column import Place, Target
from pakka.sinks._postgres_error import told
from pakka.sinks._postgres_facts import Pooler, read_pooler
from pakka.sinks._postgres_probes import Subject, postgres_probes
from pakka.sinks._postgres_writer import PostgresWriter, lines_to
from pakka.sinks._spool import Encoder
from pakka.sinks._sql import SqlSink


@dataclass(frozen=True)
class PostgresSink(SqlSink):
    """Add rows to a table of a PostgreSQL database, update them by key, or mirror changes."""

    name: ClassVar[str] = "postgres"
    transaction: ClassVar[str] = "prepared transaction"
    own_tables: ClassVar[tuple[str, ...]] = ("pakka_fence", "pakka_ledger")

    @cached_property
    def address(self) -> Address:
        return Address.parse(self.url, "postgres")

    @cached_property
    def where(self) -> Target:
        return Target.parse(self.table)

    def why_spooled(self, slots: int | None) -> tuple[bool, str]:
        with told("postgres", self.address):
            if read_pooler(self.connect) is Pooler.TRANSACTION:
                why = "a pooler in transaction mode stands before the server, and a slot that is prepared keeps a session of its own"
                return True, why
        with told("postgres", self.address), lines_to(self.address, self.url).lend() as line, line.within():
            ((most,),) = line.ask("SELECT current_setting('max_prepared_transactions')::int")
        of_slots = f", and an epoch has up to {slots} slots" if slots else ""
        return most < (slots or 1), f"the server's max_prepared_transactions is {most}{of_slots}"

    def open_prepared_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> PostgresWriter:
        return PostgresWriter(self, binding, slot, schema)

    def open_clerk(self, binding: Binding) -> PostgresClerk:
        return PostgresClerk(self.address, self.where, binding)

    def open_encoder(self, binding: Binding, schema: pa.Schema) -> Encoder:
        """Rows are checked against the table as it is, and spooled as they are: it may change before they are applied."""
        place = Place(binding, str(self.address), str(self.where))
        with told(binding, self.address), lines_to(self.address, self.url).lend() as line, line.within():
            fit = check_target(self, place, line, schema)

        def check(batch: pa.RecordBatch) -> pa.RecordBatch:
            fit(batch, deletes_in(place, batch, self))
            return batch

        return check

    def open_applier(self, binding: Binding) -> PostgresApplier:
        return PostgresApplier(self, binding)

    @classmethod
    def from_url(cls, url: str) -> PostgresSink:
        """`postgres://...`, for an audit; it has no use for the table."""
        return cls(url, "pakka_audit")

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._postgres_scratch import PostgresScratch

        return PostgresScratch.of(self, token)

    def scratch_tokens(self) -> Sequence[str]:
        from pakka.sinks._postgres_scratch import PostgresScratch

        return PostgresScratch.tokens(self)

    def probes(self) -> Sequence[Probe]:
        subject = Subject(
            self.connect,
            self.where.table,
            self.where.schema,
            mode=self.mode,
            way=self.guarantee().way,
            is_chosen=bool(self.chosen),
            key=self.key,
            create=self.create,
            slots_needed=self.slots,
            begin=BEGIN.format(statement_s=0, lock_ms=0, idle_s=0),
        )
        return postgres_probes(subject)

    def connect(self) -> Line:
        """A connection of its own, for whoever only looks."""
        return Line(self.address)
