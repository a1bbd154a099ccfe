"""What the probes of the SQL sinks share: what an option makes of a setting, and keys, which are judged the same way."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pakka.contract.audit import Finding
from pakka.model.guarantee import Way
from pakka.probing import BREAKS, FINE, WARNS

OLD_S = 3600.0
"""A prepared transaction of this age has been forgotten, or its pipeline is down."""
OWN_KEYS = {
    "pakka_fence": "pipeline, sink",
    "pakka_ledger": "pipeline, sink, epoch, slot, fence, attempt",
}
"""pakka's own tables beside the target, and their primary keys."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The options of a sink that change what a setting means."""

    mode: Literal["append", "upsert", "mirror"] = "append"
    way: Way = Way.PREPARED
    """The way that is really taken."""
    is_chosen: bool = False
    """The sink itself chose it, by what the server had to say."""
    key: tuple[str, ...] = ()
    create: bool = True
    slots_needed: int | None = None
    """How many slots an epoch has; None: as many as Spark has cores, which are taken to be those of this machine."""

    @property
    def is_prepared(self) -> bool:
        return self.way is Way.PREPARED


def likely_slots(known: int | None) -> int:
    """How many slots an epoch has. If nobody says, Spark makes as many as it has cores: on one machine, all of them."""
    return known or os.cpu_count() or 1


def cannot_prepare(terms: Terms, finding: Finding, otherwise: str) -> Finding:
    """What is found of a sink that prepares, for whichever way this one goes: one that chose the spool for it is as safe, and slower.

    `otherwise`: why it does not matter to a sink that spools anyway.
    """
    if terms.is_prepared:
        # A choice is made when a run begins; here the server has changed since.
        way_out = "run again, which takes the spool" if terms.is_chosen else "set `way: spooled`"
        return replace(finding, fix=f"{finding.fix}; or {way_out}")
    if terms.is_chosen:
        why = f"{finding.why}; so rows wait in the spool: the same guarantee, and slower"
        return replace(finding, severity=WARNS, why=why)
    return replace(finding, severity=FINE, why=otherwise, fix="")


def no_table(name: str) -> Finding:
    """There is none, and the sink may not make it."""
    why = "there is no such table, and `create: false` forbids to make it"
    return Finding(name, BREAKS, "no table", why, "make the table, or set `create: true`")


def unique_key(key: Sequence[str], table: str | None, flaws: Mapping[str, str]) -> Finding:
    """Whether the server itself keeps one row a key. Names are given as SQL has them.

    `flaws` has every unique index on just these columns, and why it does not do all the same; empty if it does.
    """
    name, listed = "unique key", ", ".join(key)
    if not key:
        return Finding(name, FINE, "not needed", "rows are added, and none is looked for by key")
    if table is None:
        return Finding(name, FINE, "no table yet", f"pakka makes it with the key ({listed})")
    good = [index for index, flaw in flaws.items() if not flaw]
    if good:
        return Finding(name, FINE, good[0], "the server itself keeps one row a key")
    fix = f"ALTER TABLE {table} ADD PRIMARY KEY ({listed})"
    if not flaws:
        why = f"nothing keeps ({listed}) unique, so a row is not found by its key and is added a second time or refused"
        return Finding(name, BREAKS, "none", why, fix)
    index, flaw = next(iter(flaws.items()))
    return Finding(name, BREAKS, index, f"{flaw}, so it does not keep one row a key ({listed})", fix)


def may_be_null(column: str) -> str:
    """A flaw of a unique index."""
    return f"column {column} may be NULL, and the index takes two NULLs for different"


def own_keys(own: Sequence[str], keyed: Collection[str]) -> Finding:
    """Whether those of pakka's own tables that are there still have their primary keys."""
    name, bare = "keys of pakka's tables", [table for table in own if table not in keyed]
    if not bare:
        return Finding(name, FINE, "primary keys", "the server itself refuses an id that was used")
    why = "its primary key is gone, as after a copy with CREATE TABLE AS: an id that was used is not refused"
    fix = "; ".join(f"ALTER TABLE {table} ADD PRIMARY KEY ({OWN_KEYS[table.rpartition('.')[2]]})" for table in bare)
    return Finding(name, BREAKS, ", ".join(bare), why, fix)
