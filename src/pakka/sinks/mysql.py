"""The MySQL and MariaDB sink: two-phase commit with the server's own XA transactions, or a whole epoch in one transaction.

Two ways, one ledger. `prepared`: every slot loads its rows into the target from its executor, in a branch that is prepared
and then committed by the driver, in parallel. `spooled`: rows wait in pakka's spool, and the driver applies the epoch in
one transaction; for `upsert` and `mirror`, where two slots with one key would wait for each other, and for servers whose
prepared branches do not outlive everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from pakka.contract.audit import Probe, Scratch
from pakka.model.id import Binding, Slot
from pakka.sinks._columns import Place
from pakka.sinks._mysql_applier import MysqlApplier
from pakka.sinks._mysql_clerk import MysqlClerk, why_not_listed
from pakka.sinks._mysql_column import Target
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_line import Address, Line
from pakka.sinks._mysql_load import Server
from pakka.sinks._mysql_probes import Subject, mysql_probes
from pakka.sinks._mysql_table import fit_to, make_ready, stored_schema
from pakka.sinks._mysql_writer import MysqlWriter
from pakka.sinks._spool import Encoder
from pakka.sinks._sql import SqlSink

_SINCE = {True: ((10, 5), "10.5"), False: ((8, 0, 30), "8.0.30")}
"""From which version on a prepared branch outlives its connection, and the binary log a crash; MariaDB, and MySQL."""


@dataclass(frozen=True)
class MysqlSink(SqlSink):
    """Add rows to a table of a MySQL or MariaDB database, update them by key, or mirror changes."""

    name: ClassVar[str] = "mysql"
    transaction: ClassVar[str] = "prepared XA transaction"
    own_tables: ClassVar[tuple[str, ...]] = ("pakka_fence", "pakka_ledger", "pakka_rows", "pakka_ranks")

    @cached_property
    def address(self) -> Address:
        return Address.parse(self.url)

    @cached_property
    def where(self) -> Target:
        return Target.parse(self.table, self.address.database)

    def why_spooled(self, slots: int | None) -> tuple[bool, str]:
        with told("mysql", self.address), closing(self.connect()) as line:
            trouble = why_not_prepared(line)
        return bool(trouble), trouble or "the server keeps prepared XA transactions"

    def open_prepared_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> MysqlWriter:
        return MysqlWriter(self, binding, slot, schema)

    def open_clerk(self, binding: Binding) -> MysqlClerk:
        return MysqlClerk(self.address, self.where, binding)

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
            way=self.guarantee().way,
            is_chosen=bool(self.chosen),
            key=self.key,
            create=self.create,
            slots_needed=self.slots,
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
    refusal = why_not_listed(line)
    return f"this user may not see what is prepared ({refusal})" if refusal else ""
