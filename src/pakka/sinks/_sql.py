"""What the sinks of SQL servers have in common: their options, which of them go together, and the two ways of a slot."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa

from pakka.contract.sink import Committer, Sink, Writer
from pakka.errors import ConfigError
from pakka.model.guarantee import Level, SinkGuarantee, Way
from pakka.model.id import Binding, Slot
from pakka.model.word import check_words
from pakka.sinks._sql_applier import SqlApplier
from pakka.sinks._sql_committer import PreparedWay, SpooledWay
from pakka.sinks._two_phase import Clerk
from pakka.sinks.spooled import SpooledSink


@dataclass(frozen=True)
class SqlSink(SpooledSink):
    """Add rows to a table of a SQL server, update them by key, or mirror changes."""

    url: str = field(repr=False)
    """Where the database is, and how to get in; take the password from `${env:NAME}`."""
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
    slots: int | None = field(default=None, init=False)
    """How many slots an epoch has at most, where the pipeline says so."""

    name: ClassVar[str]
    """What the sink is registered as."""
    transaction: ClassVar[str]
    """What the server calls a transaction that it has prepared."""
    own_tables: ClassVar[tuple[str, ...]]
    """Names that the target may not have."""

    def __post_init__(self) -> None:
        check_words(self.name, self)
        is_keyed = self.mode != "append"
        if is_keyed != bool(self.key):
            raise ConfigError(
                f"{self.name}: mode `{self.mode}` with key {list(self.key)}: `upsert` and `mirror` need a key, and `append` has none",
                hint="`{mode: upsert, key: [refund_id]}`",
            )
        if is_keyed and self.way == "prepared":
            raise ConfigError(
                f"{self.name}: mode `{self.mode}` cannot go the `prepared` way: two slots with rows of one key would wait for each "
                "other's transaction",
                hint="leave `way` out, or set `way: spooled`",
            )
        if self.version and not is_keyed:
            raise ConfigError(
                f"{self.name}: `version` orders changes of one key, and mode `append` has no key", hint="leave it out"
            )
        if self.where.table.lower() in self.own_tables:
            raise ConfigError(
                f"{self.name}: `{self.table}` is the name of a table of pakka's own", hint="choose another one"
            )

    @property
    @abstractmethod
    def address(self) -> Any:
        """The URL in parts. Its text has no password."""

    @property
    @abstractmethod
    def where(self) -> Any:
        """The table by its full name."""

    @abstractmethod
    def why_spooled(self, slots: int | None) -> tuple[bool, str]:
        """Whether rows of `append` had better be spooled, and why or why not: the server is asked."""

    @abstractmethod
    def open_prepared_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        """A writer that ends in a prepared transaction."""

    @abstractmethod
    def open_clerk(self, binding: Binding) -> Clerk:
        """Fence, ledger and prepared transactions on the server."""

    @abstractmethod
    def open_applier(self, binding: Binding) -> SqlApplier[Any]:
        """What applies spooled epochs."""

    @property
    def is_prepared(self) -> bool:
        return self.mode == "append" and self.way != "spooled"

    def guarantee(self) -> SinkGuarantee:
        if self.is_prepared:
            way, how = Way.PREPARED, f"each slot's rows, its ledger row and the fence check are one {self.transaction}"
        else:
            way, how = Way.SPOOLED, "an epoch's rows, its ledger row and the fence check are one transaction"
        because = f"{how} of the server"
        return SinkGuarantee(Level.EXACTLY_ONCE, way, f"{because}; {self.chosen}" if self.chosen else because)

    def target(self) -> str:
        return f"{self.address}, table {self.where}"

    def choose(self, slots: int | None = None) -> Sink:
        """Ask the server which way is safe with it, where that is left open. A choice that was made stays."""
        made, chosen = replace(self), self.chosen
        if self.way == "auto" and self.is_prepared:
            is_spooled, why = self.why_spooled(slots)
            made, chosen = replace(self, way="spooled" if is_spooled else "prepared"), f"chosen because {why}"
        object.__setattr__(made, "chosen", chosen)
        object.__setattr__(made, "slots", slots)
        return made

    def open_writer(self, binding: Binding, slot: Slot, schema: pa.Schema) -> Writer:
        if self.is_prepared:
            return self.open_prepared_writer(binding, slot, schema)
        return super().open_writer(binding, slot, schema)

    def open_committer(self, binding: Binding, fence: int) -> Committer:
        if self.is_prepared:
            return PreparedWay(binding, fence, self.open_clerk(binding))
        return SpooledWay(binding, fence, self.open_applier(binding))
