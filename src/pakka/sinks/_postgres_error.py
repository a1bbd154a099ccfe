"""What PostgreSQL says when something goes wrong, as what a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from pakka.errors import PakkaError, SinkError, UnavailableError
from pakka.postgres_line import Address

# A refused connection has no SQLSTATE in psycopg, only the server's text.
_AT_THE_DOOR = {
    r"password authentication failed|no password supplied|authentication failed": "see that user and password of `url` are right; "
    "take the password from `${env:NAME}`",
    r"database .* does not exist": "make the database first, or name another one in `url`",
    r"role .* does not exist": "make the role first, or name another user in `url`",
    r"no pg_hba.conf entry|permission denied for database": "let this user connect from here: see `pg_hba.conf` of the server",
}
_HINTS: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "let the user of `url` do it: `GRANT USAGE, CREATE ON SCHEMA ...`, `GRANT INSERT, SELECT ON TABLE ...`",
    errors.ReadOnlySqlTransaction: "this server only reads, as a standby does; name the primary in `url`",
    errors.InvalidSchemaName: "make the schema first, or name another one before the dot of `table`",
    errors.IntegrityError: "send such rows to the dead letters by a rule, or change the table; if rows may come again, use "
    "`mode: upsert` with their key",
    errors.DataError: "cast the column in `select`, or keep such rows out by a rule",
    errors.FeatureNotSupported: "use `way: spooled`, which asks less of the server",
}
_PASSING: dict[type[psycopg.Error], str] = {
    errors.LockNotAvailable: "let the other transaction end, then run again; `pakka indoubt list` shows what is prepared here. Rows of "
    "one key in two slots wait for each other too: make the key unique in `process`, or use `mode: upsert`",
    errors.ObjectNotInPrerequisiteState: "run again: somebody else is at the same prepared transaction",
    errors.DeadlockDetected: "run again; if it happens again, see who else writes to the table",
    errors.SerializationFailure: "run again",
    errors.QueryCanceled: "run again; a time-out of the server, or an administrator, has ended the statement",
    errors.DiskFull: "make room on the server's disk, then run again",
    errors.TooManyConnections: "raise `max_connections`, or let the pipeline have fewer `slots`",
    # What the server says too when all its prepared transactions are taken.
    errors.OutOfMemory: "raise `max_prepared_transactions`, `max_locks_per_transaction` or the server's memory, whichever it names; or "
    "let the pipeline have fewer `slots`, or use `way: spooled`",
}


@contextmanager
def told(subject: object, address: Address, known: str = "nothing was changed") -> Iterator[None]:
    """Turn the driver's errors into pakka's. For what changes nothing unless it ends well, or may be repeated freely."""
    try:
        yield
    except psycopg.Error as error:
        raise told_error(subject, address, error, known) from error


def told_error(subject: object, address: Address, error: psycopg.Error, known: str) -> PakkaError:
    message = f"{subject}: {address}: {reason_of(error, address)}; {known}"
    for kind, hint in _PASSING.items():
        if isinstance(error, kind):
            return UnavailableError(message, hint=hint)
    for kind, hint in _HINTS.items():
        if isinstance(error, kind):
            return SinkError(message, hint=hint)
    if error.sqlstate is None:
        for pattern, hint in _AT_THE_DOOR.items():
            if re.search(pattern, str(error)):
                return SinkError(message, hint=hint)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or is_cut(error):
        return UnavailableError(message, hint="see that the server runs, and that host and port of `url` are right")
    return SinkError(message, hint="the message is the server's own")


def reason_of(error: psycopg.Error, address: Address) -> str:
    """The server's words, with the detail that names the constraint and an example row."""
    diag = error.diag
    text = diag.message_primary or str(error) or type(error).__name__
    parts = [text, diag.message_detail, f"constraint `{diag.constraint_name}`" if diag.constraint_name else None]
    return address.scrub("\n".join(part for part in parts if part))


def is_cut(error: psycopg.Error) -> bool:
    """The connection is gone, or about to be: what was asked last may have been done, and may not."""
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P", "XX", "58"))
