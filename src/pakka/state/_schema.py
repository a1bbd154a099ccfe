"""The tables, as numbered steps: step 1 makes version 1, step 2 would make version 2 of it, and so on.

A step is never edited once released; a change is a new step. A driver of the version before may still be running while a
newer one migrates, until its next write is fenced, so a step must leave the older statements working: add, do not rename.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pakka.errors import RefusedError

Execute = Callable[..., list[tuple[Any, ...]]]
"""Run one statement with its parameters; the rows, if it has any."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE pakka_pipeline (
            name TEXT PRIMARY KEY,
            fence BIGINT NOT NULL,
            owner TEXT,
            committed BIGINT NOT NULL,
            origin TEXT,
            base BIGINT NOT NULL,
            is_reset SMALLINT NOT NULL,
            totals TEXT NOT NULL
        )
        """,
        # One row an epoch: open if its number is above `committed` of its pipeline, settled if not. That one number is the
        # only place where it is said. `prepared` is NULL once settled.
        """
        CREATE TABLE pakka_epoch (
            pipeline TEXT NOT NULL,
            number BIGINT NOT NULL,
            fence BIGINT NOT NULL,
            origin TEXT NOT NULL,
            counts TEXT NOT NULL,
            sinks TEXT NOT NULL,
            prepared TEXT,
            decided_at DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (pipeline, number)
        )
        """,
    ),
)


def version_of(execute: Execute, has_meta: str) -> int:
    """The version of the tables at this place; 0 if there are none. `has_meta` asks the catalogue for `pakka_meta`."""
    if not execute(has_meta):
        return 0
    ((version,),) = execute("SELECT version FROM pakka_meta")
    return int(version)


def check_version(place: str, version: int, known: int) -> None:
    """Refuse tables that a newer pakka has made: what it means by them is not known here."""
    if version > known:
        raise RefusedError(
            f"state store {place}: its tables are of version {version} and this pakka knows version {known}; nothing was changed",
            hint="run the newer pakka that made them",
        )


def migrate(execute: Execute, version: int, steps: Sequence[Sequence[str]]) -> None:
    """Take the tables from `version` to the newest. The caller holds the transaction and the lock."""
    if version == 0:
        execute("CREATE TABLE pakka_meta (version BIGINT NOT NULL)")
        execute("INSERT INTO pakka_meta (version) VALUES (0)")
    for step in steps[version:]:
        for statement in step:
            execute(statement)
    execute("UPDATE pakka_meta SET version = ?", (len(steps),))
