"""What MySQL and MariaDB say when something goes wrong, as what a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pakka.errors import PakkaError, SinkError, UnavailableError
from pakka.sinks._mysql_line import BAD_TLS, LOST, Address, DriverError, StrangeServer, code_of, text_of

_RIGHTS = "let the user of `url` do it: `GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER ON database.* TO user`"
_FULL = "make room on the server's disk, then run again"
_ENDED = "run again; a time-out of the server, or an administrator, has ended the statement"
_KEPT = "send such rows to the dead letters by a rule, or change the table; if rows may come again, use `mode: upsert` with their key"
_READS = "this server only reads, as a replica does; name the primary in `url`"

_HINTS = {
    1044: "let the user of `url` use that database, or name another one in `url`",
    1045: "see that user and password of `url` are right; take the password from `${env:NAME}`",
    1698: "see that user and password of `url` are right; take the password from `${env:NAME}`",
    1049: "make the database first, or name another one in `url`",
    1142: _RIGHTS,
    1143: _RIGHTS,
    1227: _RIGHTS,
    1370: _RIGHTS,
    1401: "let the user of `url` see what is prepared: `GRANT XA_RECOVER_ADMIN ON *.* TO user`; or use `way: spooled`",
    1153: "raise `max_allowed_packet` of the server, or keep such rows out by a rule",
    1146: "make the table first, or set `create: true`",
    1273: "make the table yourself, with a collation of its key that the server has; pakka's own came with MySQL 8.0.17",
    1290: _READS,
    1792: _READS,
    1836: _READS,
    1665: "set `binlog_format` of the server to ROW or MIXED",
    1048: _KEPT,
    1062: _KEPT,
    1216: _KEPT,
    1217: _KEPT,
    1451: _KEPT,
    1452: _KEPT,
    BAD_TLS: "see that `ssl_ca`, `ssl_cert` and `ssl_key` of `url` name the right files, and that the certificate is of that host",
    3750: "this server wants a primary key in every table; make the table yourself, with one",
    3819: _KEPT,
    4025: _KEPT,
}
_PASSING = {
    1021: _FULL,
    1026: _FULL,
    1030: _FULL,
    1041: _FULL,
    1114: _FULL,
    1040: "raise `max_connections` of the server, or let the pipeline have fewer `slots`",
    1129: "`FLUSH HOSTS` on the server: it has counted too many errors from here",
    1203: "raise `max_user_connections`, or let the pipeline have fewer `slots`",
    1226: "raise the limits of this user, or let the pipeline have fewer `slots`",
    1205: "let the other transaction end, then run again; `pakka indoubt list` shows what is prepared here",
    1213: "run again; if it happens again, see who else writes to the table",
    1614: "run again; if it happens again, see who else writes to the table",
    1053: "run again when the server is back",
    1317: _ENDED,
    1927: _ENDED,
    1969: _ENDED,
    3024: _ENDED,
    4031: _ENDED,
}
_GONE = "see that the server runs, and that host and port of `url` are right"


@contextmanager
def told(subject: object, address: Address, known: str = "nothing was changed") -> Iterator[None]:
    """Turn the driver's errors into pakka's. For what changes nothing unless it ends well, or may be repeated freely."""
    try:
        yield
    except DriverError as error:
        raise told_error(subject, address, error, known) from error


def told_error(subject: object, address: Address, error: BaseException, known: str) -> PakkaError:
    code = code_of(error)
    message = f"{subject}: {address}: {text_of(error)}; {known}"
    if isinstance(error, StrangeServer):
        return SinkError(message, hint="see who answers at host and port of `url`, and let `ssl_ca` prove who it is")
    if code in _PASSING:
        return UnavailableError(message, hint=_PASSING[code])
    if code in LOST:
        return UnavailableError(message, hint=_GONE)
    return SinkError(message, hint=_HINTS.get(code, "the message is the server's own"))
