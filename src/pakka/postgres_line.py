"""Lines to PostgreSQL, for the state store and the sink: an address that never shows its password, and a connection that
cannot keep its thread for ever.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pakka.errors import ConfigError

ANSWER_S = 60.0
"""How long a whole transaction may take before its connection is cut from this side.

The server's own limits end what waits or idles there. A frozen server, or a line that swallows every packet, ends nothing.
"""
BULK = 10
"""So many times `ANSWER_S` for the answers in which a server works on all the rows that it has taken: at the end of a COPY it runs
triggers and checks foreign keys, at the end of a transaction the constraints that were put off.
"""

_TICK_S = 1.0
_IDLE_TICKS = 30

# What the URL says itself goes before these.
_CONNECT = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "pakka",
    # Text in a binary COPY is read in the client's encoding, which the environment may have set.
    "client_encoding": "utf8",
}

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Address:
    """Where a database is and how to get in. Its text has no password."""

    params: dict[str, Any]

    @classmethod
    def parse(cls, url: str, whose: str) -> Address:
        """`whose` begins the message if it cannot be read."""
        try:
            return cls({**_CONNECT, **conninfo_to_dict(url)})
        except (psycopg.ProgrammingError, UnicodeDecodeError):
            # The text of the error may quote the password, so it is neither shown nor chained.
            raise ConfigError(
                f"{whose}: the PostgreSQL URL cannot be read",
                hint="it should look like `postgresql://USER:PASSWORD@HOST:5432/DATABASE`, with `%40` for an `@` in a password",
            ) from None

    def __str__(self) -> str:
        user, host, port = (str(self.params.get(k) or "") for k in ("user", "host", "port"))
        place = f"{user}@{host}" if user else host
        return f"postgresql://{place}{':' if port else ''}{port}/{self.params.get('dbname') or ''}"

    def __repr__(self) -> str:
        return f"Address({self})"

    def scrub(self, text: str) -> str:
        """A server's message on one line, without the password."""
        text = "; ".join(line.strip() for line in text.splitlines() if line.strip())
        secret = str(self.params.get("password") or "")
        for form in {secret, quote(secret, safe="")} - {""}:
            text = text.replace(form, "***")
        return text


class Deadline:
    """Does something if what is inside takes longer than so many times `ANSWER_S`, and remembers that it did."""

    def __init__(self, strike: Callable[[], None] = lambda: None, times: float = 1) -> None:
        self.is_over = False
        self._strike = strike
        self._times = times

    def __enter__(self) -> Deadline:
        _watch.add(self, time.monotonic() + ANSWER_S * self._times)
        return self

    def __exit__(self, *_: object) -> None:
        _watch.remove(self)

    def end(self) -> None:
        self.is_over = True
        self._strike()


class _Watch:
    """One thread for all deadlines of a process. A thread for each took 0.2 ms of the processor, as much as a question to the
    server, and an epoch has twenty of them.
    """

    def __init__(self) -> None:
        # It is held while a deadline strikes: whoever removes one knows that it will not strike later, at the next transaction.
        self._changed = threading.Condition()
        self._due: dict[Deadline, float] = {}
        self._is_awake = False

    def add(self, deadline: Deadline, at: float) -> None:
        with self._changed:
            self._due[deadline] = at
            if not self._is_awake:
                self._wake()
            elif at <= time.monotonic() + _TICK_S:
                self._changed.notify()

    def remove(self, deadline: Deadline) -> None:
        with self._changed:
            self._due.pop(deadline, None)

    def _wake(self) -> None:
        self._is_awake = True
        threading.Thread(target=self._run, name="pakka-deadline", daemon=True).start()

    def _run(self) -> None:
        """Look now and then, and end when there was nothing to look at for a while."""
        idle_ticks = 0
        with self._changed:
            try:
                while idle_ticks < _IDLE_TICKS:
                    now = time.monotonic()
                    for deadline in [d for d, at in self._due.items() if at <= now]:
                        del self._due[deadline]
                        deadline.end()
                    idle_ticks = 0 if self._due else idle_ticks + 1
                    nearest = min(self._due.values(), default=now + _TICK_S)
                    self._changed.wait(max(0.0, min(nearest - now, _TICK_S)))
            finally:
                self._is_awake = False
                if self._due:  # a strike has failed, and the others still count on it
                    self._wake()


_watch = _Watch()


def ask_at_once(
    db: psycopg.Connection[Row], statements: str, params: Sequence[object] | Mapping[str, object]
) -> list[Row]:
    """Several statements in one exchange with the server. Brings the rows of the last one that has any."""
    cursor = psycopg.ClientCursor(db)
    cursor.execute(statements, params)
    found: list[Row] = []
    while True:
        found = cursor.fetchall() if cursor.description else found
        if not cursor.nextset():
            return found


def _renew_watch() -> None:
    """A forked process has no thread but the one that forked it."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_renew_watch)


class Line:
    """One connection in autocommit. Whatever takes too long is ended by cutting it, which wakes the thread that waits."""

    def __init__(self, address: Address) -> None:
        # No server-side prepared statements: poolers that hand out another server connection lose them.
        self.db: psycopg.Connection[Row] = psycopg.connect(
            make_conninfo(**address.params), autocommit=True, prepare_threshold=None
        )
        self._socket = socket.socket(fileno=os.dup(self.db.fileno()))
        self._is_cut = False

    @property
    def is_open(self) -> bool:
        """Whether it can be used once more. A server that ends an idle session says so unasked: then there is something to
        read before anything was asked.
        """
        if self.db.closed or self._is_cut:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def ask(self, statement: str, params: Sequence[object] | Mapping[str, object] = ()) -> list[Row]:
        """Run a statement, and bring all its rows. Call it inside `within`, or another deadline."""
        self._check()
        cursor = self.db.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []

    def ask_at_once(self, statements: str, params: Sequence[object] | Mapping[str, object]) -> list[Row]:
        """The same for several statements. The first that fails ends them all."""
        self._check()
        return ask_at_once(self.db, statements, params)

    def end(self, statement: str) -> None:
        """End a transaction, and see that the server has done just that: in one that has failed it rolls back instead, and
        calls it no error.
        """
        self._check()
        told = self.db.execute(statement).statusmessage or ""
        if not told or not statement.startswith(told):
            raise psycopg.InternalError(f"{statement} was answered with {told or 'nothing'}")

    def _check(self) -> None:
        if self._is_cut:
            raise psycopg.OperationalError("the connection was given up")

    def within(self, times: float = 1) -> Deadline:
        """Cut the line if what is inside takes too long: so many times what one answer may take."""
        return Deadline(self.cut, times)

    def cut(self) -> None:
        """Wake the thread that waits for an answer: it finds its connection closed."""
        self._is_cut = True
        with suppress(OSError):  # closed in this very moment, which is what was wanted
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
        self.db.close()
