"""What PostgreSQL itself tells of prepared transactions: since when they are there, and which tables they lock.

Anybody who may connect may look. How many rows a prepared transaction holds is not to be seen from outside: its ledger row
is as invisible as its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pakka.contract.doubt import Doubt
from pakka.model.id import Slot

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Runs a statement and brings its rows: `Line.ask`."""

# Locks of a prepared transaction belong to no process. They stand under the virtual number of the session that prepared it,
# and after a restart of the server under `-1/` and its own number; the lock on its own number is among them and leads there.
# A row that it has locked stands in no list, but its table does. A table of another database has no name here. That it has read
# the catalogue keeps nobody waiting.
_PREPARED = """
SELECT p.gid,
       extract(epoch FROM clock_timestamp() - p.prepared)::float8,
       array_remove(array_agg(DISTINCT CASE WHEN c.oid IS NOT NULL THEN c.oid::regclass::text || ' ' || l.mode END), NULL)
FROM pg_prepared_xacts p
LEFT JOIN pg_locks own
       ON own.locktype = 'transactionid' AND own.transactionid = p.transaction AND own.pid IS NULL AND own.granted
LEFT JOIN pg_locks l
       ON l.virtualtransaction = own.virtualtransaction
      AND l.pid IS NULL
      AND l.locktype = 'relation'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
LEFT JOIN pg_class c
       ON c.oid = l.relation AND c.relkind IN ('r', 'p') AND c.relnamespace <> 'pg_catalog'::regnamespace
GROUP BY p.gid, p.prepared
ORDER BY p.prepared, p.gid
"""


def in_doubt(ask: Ask, slot_of: Callable[[str], Slot | None]) -> list[Doubt]:
    """Every prepared transaction of the server, oldest first. `slot_of` says which gids are ours, and of which attempt."""
    return [
        Doubt(gid, slot_of(gid), age_s=max(0.0, age_s), locks=tuple(sorted(locks)))
        for gid, age_s, locks in ask(_PREPARED)
    ]
