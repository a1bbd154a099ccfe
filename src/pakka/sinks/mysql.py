"""The MySQL and MariaDB sink: two-phase commit with the server's own XA transactions, or a whole epoch in one transaction.

Two ways, one ledger. `prepared`: every slot loads its rows into the target from its executor, in a branch that is prepared
and then committed by the driver, in parallel. `spooled`: rows wait in pakka's spool, and the driver applies the epoch in
one transaction; for `upsert` and `mirror`, where two slots with one key would wait for each other, and for servers whose
prepared branches do not outlive everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from pakka.contract.audit import Probe, Scratch
from pakka.contract.sink import Committer, Sink, Writer
from pakka.errors import ConfigError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.sinks._columns import Place
from pakka.sinks._mysql_applier import MysqlApplier
from pakka.sinks._mysql_column import Target
from pakka.sinks._mysql_desk import MysqlDesk
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_line import Address, DriverError, Line, code_of, text_of
from pakka.sinks._mysql_load import Server
from pakka.sinks._mysql_probes import Subject, mysql_probes
from pakka.sinks._mysql_table import fit_to, make_ready, stored_schema
from pakka.sinks._mysql_writer import MysqlWriter
from pakka.sinks._spool import Encoder
from pakka.sinks._two_phase import TwoPhaseCommitter
from pakka.sinks.spooled import SpooledSink

OWN_TABLES = ("pakka_fence", "pakka_ledger", "pakka_rows")
"""The fence and the ledger, in the database of the target, and the temporary table that rows are applied from."""
_HOW = {
    Way.PREPARED: "each slot's rows, its ledger row and the fence check are one prepared XA transaction of the server",
    Way.SPOOLED: "an epoch's rows, its ledger row and the fence check are one transaction of the server",
}
_SINCE = {True: ((10, 5), "10.5"), False: ((8, 0, 30), "8.0.30")}
"""From which version on a prepared branch outlives its connection, and the binary log a crash; MariaDB, and MySQL."""


@dataclass(frozen=True)
class MysqlSink(SpooledSink):
    """Add rows to a table of a MySQL or MariaDB database, update them by key, or mirror changes."""

    url: str = field(repr=False)
    """`mysql://USER:PASSWORD@HOST:3306/DATABASE`; take the password from `${env:NAME}`."""
    table: str
    """`refunds`, or `sales.refunds` for another database of the server."""
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
        if self.where.table.lower() in OWN_TABLES:
            raise ConfigError(f"mysql: `{self.table}` is the name of a table of pakka's own", hint="choose another one")

    def _check_mode(self) -> None:
        is_keyed = self.mode != "append"
        if is_keyed != bool(self.key):
            raise ConfigError(
                f"mysql: mode `{self.mode}` with key {list(self.key)}: `upsert` and `mirror` need a key, and `append` has none",
                hint="`{mode: upsert, key: [refund_id]}`",
            )
        if is_keyed and self.way == "prepared":
            raise ConfigError(
                f"mysql: mode `{self.mode}` cannot go the `prepared` way: two slots with rows of one key would wait for each other's "
                "transaction",
                hint="leave `way` out, or set `way: spooled`",
            )
        if self.version and not is_keyed:
            raise ConfigError(
                "mysql: `version` orders changes of one key, and mode `append` has no key", hint="leave it out"
            )

    @cached_property
    def address(self) -> Address:
        return Address.parse(self.url)

    @cached_property
    def where(self) -> Target:
        return Target.parse(self.table, self.address.database)

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
        """Ask the server whether a prepared branch is safe with it, where that is left open."""
        if self.way != "auto" or not self.is_prepared:
            return self
        with told("mysql", self.address), closing(self.connect()) as line:
            trouble = why_not_prepared(line)
        made = replace(self, way="spooled" if trouble else "prepared")
        why = f"chosen because {trouble}" if trouble else "chosen because the server keeps prepared XA transactions"
        object.__setattr__(made, "chosen", why)
        return made

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        if self.is_prepared:
            return MysqlWriter(self, binding, slot, schema)
        return super().open_writer(binding, slot, schema)

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        if self.is_prepared:
            return TwoPhaseCommitter(binding, fence, MysqlDesk(self.address, self.where, binding))
        return super().open_committer(binding, fence)

    def open_encoder(self, binding: Binding, schema: pa.Schema) -> Encoder:
        """Rows are checked against the table, and spooled as the text that it takes: less is left for the driver to do."""
        place = Place(binding, str(self.address), str(self.where))
        with told(binding, self.address), closing(self.connect()) as line:
            server = Server.of(line)
            table = make_ready(line, place, self, stored_schema(self, schema), server)
        return fit_to(place, self, schema, table, server)

    def open_applier(self, binding: Binding) -> MysqlApplier:
        return MysqlApplier(self, binding)

    @classmethod
    def from_url(cls, url: str) -> MysqlSink:
        """`mysql://...`, for an audit; it has no use for the table."""
        return cls(url, "pakka_audit")

    def scratch(self, token: str) -> Scratch:
        from pakka.sinks._mysql_scratch import MysqlScratch

        return MysqlScratch.of(self, token)

    def scratch_tokens(self) -> Sequence[str]:
        from pakka.sinks._mysql_scratch import MysqlScratch

        return MysqlScratch.tokens(self)

    def probes(self) -> Sequence[Probe]:
        subject = Subject(
            self.connect,
            self.where.schema,
            self.where.table,
            mode=self.mode,
            # What was left open is told with the reason for the choice.
            way="auto" if self.chosen else self.way,
            key=self.key,
            create=self.create,
        )
        return mysql_probes(subject)

    def connect(self) -> Line:
        """A connection of its own, for whoever only looks."""
        return Line(self.address)


def why_not_prepared(line: Line) -> str:
    """Why a branch that this server has prepared could be lost, or not be found again; empty if it is safe."""
    server = Server.of(line)
    first, words = _SINCE[server.is_mariadb]
    name = "MariaDB" if server.is_mariadb else "MySQL"
    if server.version < first:
        return f"{name} keeps prepared XA transactions safely from {words} on, and this is {'.'.join(map(str, server.version))}"
    if line.ask("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'") == [("wsrep_on", "ON")]:
        return "a Galera cluster has no XA transactions"
    try:
        line.ask("XA RECOVER")
    except DriverError as error:
        if code_of(error) not in (1227, 1401):
            raise
        return f"this user may not see what is prepared ({text_of(error)})"
    return ""
