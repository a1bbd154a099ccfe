"""The PostgreSQL sink: two-phase commit with the server's own prepared transactions, or a whole epoch in one transaction.

Two ways, one ledger. `prepared`: every slot copies its rows into the target from its executor, in a transaction that is
prepared and then committed by the driver, in parallel. `spooled`: rows wait in pakka's spool, and the driver applies the
epoch in one transaction; for `upsert` and `mirror`, where two slots with one key would wait for each other, and for servers
and poolers that cannot prepare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from pakka.contract.audit import Probe, Scratch
from pakka.contract.sink import Committer, Sink, Writer
from pakka.errors import ConfigError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.postgres_line import Address, Line
from pakka.sinks._postgres_applier import PostgresApplier, check_target, deletes_in
from pakka.sinks._postgres_column import Place, Target
from pakka.sinks._postgres_desk import BEGIN, PostgresDesk
from pakka.sinks._postgres_error import told
from pakka.sinks._postgres_probes import Subject, postgres_probes
from pakka.sinks._postgres_writer import PostgresWriter, lines_to
from pakka.sinks._spool import Encoder
from pakka.sinks._two_phase import TwoPhaseCommitter
from pakka.sinks.spooled import SpooledSink

OWN_TABLES = ("pakka_fence", "pakka_ledger")
"""The fence and the ledger, in the schema of the target."""
_HOW = {
    Way.PREPARED: "each slot's rows, its ledger row and the fence check are one prepared transaction of the server",
    Way.SPOOLED: "an epoch's rows, its ledger row and the fence check are one transaction of the server",
}


@dataclass(frozen=True)
class PostgresSink(SpooledSink):
    """Add rows to a table of a PostgreSQL database, update them by key, or mirror changes."""

    url: str = field(repr=False)
    """`postgresql://USER:PASSWORD@HOST:5432/DATABASE`; take the password from `${env:NAME}`."""
    table: str
    """`refunds`, or `sales.refunds` for another schema."""
    mode: Literal["append", "upsert", "mirror"] = "append"
    """`append` adds rows. `upsert` replaces the row of the same key. `mirror` also deletes, as `operation` says."""
    way: Literal["auto", "prepared", "spooled"] = "auto"
    """How rows wait for the decision. `auto`: prepared for `append` where the server allows it, else spooled."""
    key: tuple[str, ...] = ()
    """For `upsert` and `mirror`: the columns that name a row."""
    create: bool = True
    """Make the table if it is missing, from the types of the rows."""
    evolve: Literal["", "add_columns"] = ""
    """`add_columns`: add columns that the rows have and the table lacks."""
    operation: str = "operation"
    """For `mirror`: the column of the rows that says `insert`, `update` or `delete`. It is not stored."""
    version: str = ""
    """For `upsert` and `mirror`: a column that orders the changes of one key, such as an LSN. Older changes are passed over."""
    chosen: str = field(default="", init=False)
    """Why the way is what it is, if it was left to `auto`."""

    def __post_init__(self) -> None:
        self._check_mode()
        target = self.where
        if target.table in OWN_TABLES:
            raise ConfigError(
                f"postgres: `{self.table}` is the name of a table of pakka's own", hint="choose another one"
            )

    def _check_mode(self) -> None:
        is_keyed = self.mode != "append"
        if is_keyed != bool(self.key):
            raise ConfigError(
                f"postgres: mode `{self.mode}` with key {list(self.key)}: `upsert` and `mirror` need a key, and `append` has none",
                hint="`{mode: upsert, key: [refund_id]}`",
            )
        if is_keyed and self.way == "prepared":
            raise ConfigError(
                f"postgres: mode `{self.mode}` cannot go the `prepared` way: two slots with rows of one key would wait for each "
                "other's transaction",
                hint="leave `way` out, or set `way: spooled`",
            )
        if self.version and not is_keyed:
            raise ConfigError(
                "postgres: `version` orders changes of one key, and mode `append` has no key", hint="leave it out"
            )

    @cached_property
    def address(self) -> Address:
        return Address.parse(self.url, "postgres")

    @cached_property
    def where(self) -> Target:
        return Target.parse(self.table)

    @property
    def is_prepared(self) -> bool:
        return self.mode == "append" and self.way != "spooled"

    def guarantee(self) -> SinkGuarantee:
        way = Way.PREPARED if self.is_prepared else Way.SPOOLED
        because = f"{_HOW[way]}; {self.chosen}" if self.chosen else _HOW[way]
        return SinkGuarantee(Level.EXACTLY_ONCE, way, because)

    def target(self) -> str:
        return f"{self.address}, table {self.where}"

    def choose(self) -> Sink:
        """Ask the server whether transactions can be prepared, where that is left open."""
        if self.way != "auto" or not self.is_prepared:
            return self
        with told("postgres", self.address), lines_to(self.address, self.url).lend() as line, line.within():
            ((most,),) = line.ask("SELECT current_setting('max_prepared_transactions')::int")
        way: Literal["prepared", "spooled"] = "prepared" if most else "spooled"
        made = replace(self, way=way)
        why = f"chosen because the server's max_prepared_transactions is {most}"
        object.__setattr__(made, "chosen", why)
        return made

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        return (
            PostgresWriter(self, binding, slot, schema)
            if self.is_prepared
            else super().open_writer(binding, slot, schema)
        )

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        if self.is_prepared:
            return TwoPhaseCommitter(binding, fence, PostgresDesk(self.address, self.where, binding))
        return super().open_committer(binding, fence)

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
            # What was left open is told with the reason for the choice.
            way="auto" if self.chosen else self.way,
            key=self.key,
            create=self.create,
            begin=BEGIN.format(statement_s=0, lock_ms=0, idle_s=0),
        )
        return postgres_probes(subject)

    def connect(self) -> Line:
        """A connection of its own, for whoever only looks."""
        return Line(self.address)
