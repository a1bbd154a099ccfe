"""Lines to MySQL and MariaDB: an address that never shows its password, a connection that cannot keep its thread for ever,
and rows that are streamed to the server from memory.

`LOAD DATA LOCAL` lets the server name a file that the client then sends: whoever answers in the server's place could ask for
any file of the machine. So the library is told that it may send none. `Line.load` speaks that part of the protocol itself,
has nothing to send but the bytes that it was given, and cuts the line if the server asks for anything else.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pymysql
import pymysql.connections
from pymysql.constants import CLIENT, COMMAND
from pymysql.protocol import LoadLocalPacketWrapper, OKPacketWrapper

from pakka.errors import ConfigError
from pakka.model.id import nearest
from pakka.sinks._lines import Lines

DriverError = pymysql.MySQLError
ANSWER_S = 60.0
"""How long one answer may take. A frozen server, or a line that swallows every packet, ends nothing by itself."""
BULK_ANSWER_S = 600.0
"""The same for what moves many rows in one statement."""
_CONNECT_S = 10
_LOCK_WAIT_S = 10
_PACKET_BYTES = 1 << 20
_TAKES_BULK = 1 << 2
_BULK_EXECUTE = 0xFA
_WITH_TYPES = 128
_STREAM = "pakka"
"""What the server has to ask for; not the name of any file."""
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket")

# Strict, so that nothing is cut or rounded to fit; in UTC, so that no value depends on where the server stands.
_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00', sql_notes = 1, "
    f"innodb_lock_wait_timeout = {_LOCK_WAIT_S}, lock_wait_timeout = {_LOCK_WAIT_S}, wait_timeout = 3600, "
    "net_read_timeout = 60, net_write_timeout = 60"
)

BAD_TLS = 2026
LOST = frozenset({0, 2002, 2003, 2006, 2013, 2014, 2055})
"""The line itself is gone: whether the last statement was carried out is not known."""

Row = tuple[Any, ...]
Values = Sequence[object] | Mapping[str, object]


@dataclass(frozen=True)
class Address:
    """Where a database is and how to get in. Its text has no password."""

    user: str
    password: str
    host: str
    port: int
    database: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> Address:
        """`mysql://USER:PASSWORD@HOST:3306/DATABASE`, or `mariadb://...`. No message of this quotes the URL."""
        looks = "it should look like `mysql://USER:PASSWORD@HOST:3306/DATABASE`, with `%40` for an `@` in a password"
        try:
            parts = urlsplit(url)
            port, options = parts.port or 3306, tuple(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError:
            raise ConfigError("mysql: the URL cannot be read", hint=looks) from None
        database = unquote(parts.path.lstrip("/"))
        if parts.scheme not in ("mysql", "mariadb") or not parts.username or not database or "\0" in unquote(url):
            raise ConfigError("mysql: the URL lacks its scheme, its user or its database", hint=looks)
        for name, _ in options:
            if name not in _OPTIONS:
                raise ConfigError(f"mysql: the URL has an unknown option {name!r}", hint=nearest(name, _OPTIONS))
        password = unquote(parts.password or "")
        return cls(unquote(parts.username), password, parts.hostname or "localhost", port, database, options)

    def __str__(self) -> str:
        place = dict(self.options).get("unix_socket") or f"{self.host}:{self.port}"
        return f"mysql://{self.user}@{place}/{self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """The library's, but for two things. Where no certificate is to be checked, it reads those of all authorities in the world
    for every connection, which takes longer than all the rest of it. And it greets MariaDB as if it were MySQL, and then may
    not send many rows of parameters at once.
    """

    _is_greeting = False

    @property
    def is_mariadb(self) -> bool:
        """By what answers here: a pooler that speaks for a server cannot do all that the server can."""
        return "mariadb" in self.server_version.lower()

    def _request_authentication(self) -> None:
        if self.is_mariadb:
            self.client_flag &= ~CLIENT.LONG_PASSWORD  # which only a client of MySQL has
            self._is_greeting = True
        super()._request_authentication()
        self._is_greeting = False

    def write_packet(self, payload: bytes) -> None:
        if self._is_greeting and payload[9:32] == bytes(23):
            payload = payload[:28] + struct.pack("<I", _TAKES_BULK) + payload[32:]
        super().write_packet(payload)

    def _create_ssl_ctx(self, options: dict[str, Any]) -> ssl.SSLContext:
        made: ssl.SSLContext = super()._create_ssl_ctx(options) if options else _unchecked()
        return made


@cache
def _unchecked() -> ssl.SSLContext:
    """Secret to whoever listens, and not proof of who answers: for that there is `ssl_ca`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Done(NamedTuple):
    """What the server says of a statement that changes rows."""

    rows: int
    warnings: int


class Line:
    """One connection in autocommit, with a strict session."""

    def __init__(self, address: Address, answer_s: float = ANSWER_S) -> None:
        options: dict[str, Any] = dict(address.options)
        if "ssl_ca" in options:
            options |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
        try:
            self._db = _Connection(
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password.encode(),
                database=address.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=_CONNECT_S,
                read_timeout=answer_s,
                write_timeout=answer_s,
                client_flag=CLIENT.LOCAL_FILES,
                local_infile=False,  # by the library: see above
                init_command=_SESSION,
                program_name="pakka",
                **options,
            )
        except OSError as error:
            raise pymysql.OperationalError(BAD_TLS, f"a file for TLS cannot be used: {error}") from error
        # No gap locks: a writer's rows keep nobody from writing beside them.
        self.do("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        with suppress(OSError, AttributeError):  # a system without these, or a Unix socket
            for name, value in _KEEPALIVE.items():
                self._db._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    @property
    def is_open(self) -> bool:
        return bool(self._db.open)

    def is_alive(self) -> bool:
        """Whether the server still answers here. One that was restarted has forgotten its lines, and does not say so."""
        try:
            self._db.ping(reconnect=False)
        except (pymysql.Error, OSError):
            self.cut()
            return False
        return True

    def ask(self, statement: str, values: Values = ()) -> list[Row]:
        """Run a statement, and bring all its rows."""
        with self._guarded(), self._db.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def do(self, statement: str | bytes, values: Values = ()) -> Done:
        """Run a statement that changes rows. One in bytes is sent as it is."""
        with self._guarded():
            if isinstance(statement, bytes):
                rows = self._db.query(statement)
            else:
                with self._db.cursor() as cursor:
                    rows = cursor.execute(statement, values or None)
            return Done(rows, self._db._result.warning_count)

    def load(self, into: str, chunks: Iterable[memoryview]) -> Done:
        """`LOAD DATA LOCAL INFILE ... {into}`, with these bytes for the file."""
        with self._guarded():
            self._db._execute_command(COMMAND.COM_QUERY, f"LOAD DATA LOCAL INFILE '{_STREAM}' {into}")
            packet = self._db._read_packet()
            if not packet.is_load_local_packet():
                raise StrangeServer("the server did not ask for the rows that it was offered")
            if LoadLocalPacketWrapper(packet).filename != _STREAM.encode():
                raise StrangeServer("the server asked for a file of this machine; nothing was sent")
            for chunk in chunks:
                for at in range(0, len(chunk), _PACKET_BYTES):
                    self._send(chunk[at : at + _PACKET_BYTES])
            self._send(memoryview(b""))
            return self._done()

    @property
    def takes_bulk(self) -> bool:
        return bool(self._db.is_mariadb)

    def bulk(self, statement: str, types: bytes, chunks: Iterable[pa.Buffer]) -> Done:
        """A statement, for each row of parameters in these chunks. While the server is at one of them the next is made."""
        with self._guarded():
            self._db._execute_command(COMMAND.COM_STMT_PREPARE, statement)
            head = self._number_of_prepared() + struct.pack("<H", _WITH_TYPES) + types
            answers: list[Done] = []
            is_sent = False
            for chunk in chunks:
                if is_sent:
                    answers.append(self._done())
                self._db._execute_command(_BULK_EXECUTE, head + chunk.to_pybytes())
                is_sent = True
            if is_sent:
                answers.append(self._done())
            self._db._execute_command(COMMAND.COM_STMT_CLOSE, head[:4])
            return Done(sum(done.rows for done in answers), sum(done.warnings for done in answers))

    def _number_of_prepared(self) -> bytes:
        """What the server calls the statement that it has prepared. Of its parameters it says nothing that is not known."""
        told = self._db._read_packet().get_all_data()
        (parameters,) = struct.unpack("<H", told[7:9])
        for _ in range(parameters + 1 if parameters else 0):
            self._db._read_packet()
        return bytes(told[1:5])

    def _done(self) -> Done:
        done = OKPacketWrapper(self._db._read_packet())
        return Done(done.affected_rows, done.warning_count)

    def close(self) -> None:
        """Twice is harmless."""
        with suppress(pymysql.Error):
            self._db.close()

    def cut(self) -> None:
        """Without a word to the server: what it is doing for this line is rolled back when it notices."""
        self._db._force_close()

    def _send(self, payload: memoryview) -> None:
        # Header and rows go separately, so that the rows are not copied once more.
        self._db._write_bytes(struct.pack("<I", len(payload))[:3] + bytes([self._db._next_seq_id]))
        if payload:
            self._db._write_bytes(payload)
        self._db._next_seq_id = (self._db._next_seq_id + 1) % 256

    def _guarded(self) -> _Guarded:
        return _Guarded(self)


def lines_of(address: Address, answer_s: float = ANSWER_S) -> Lines[Line]:
    """Connections to this database."""
    return Lines(lambda: Line(address, answer_s), lambda line: line.is_alive())


class StrangeServer(pymysql.Error):  # type: ignore[misc]
    """What answers does not keep the protocol. The line is cut."""


class _Guarded:
    """Whatever breaks off in the middle of an exchange leaves a line on which the next answer would be the wrong one."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or (isinstance(error, pymysql.Error) and _is_answer(error)):
            return
        self.line.cut()
        if isinstance(error, RuntimeError) and "LOAD_LOCAL" in str(error):
            raise StrangeServer("the server asked for a file of this machine; nothing was sent") from None


def _is_answer(error: pymysql.Error) -> bool:
    """Whether the server itself said so, and waits for the next statement."""
    return not isinstance(error, StrangeServer) and code_of(error) not in LOST


def code_of(error: BaseException) -> int:
    """The server's number of an error; 0 where there is none."""
    if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
        return BAD_TLS  # which the library calls a server that is not there
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def text_of(error: BaseException) -> str:
    """The server's words on one line."""
    words = str(error.args[-1]) if error.args else type(error).__name__
    return "; ".join(part.strip() for part in words.splitlines() if part.strip()) or type(error).__name__
