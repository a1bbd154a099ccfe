"""What the tests of spooled sinks share: a sink on its own ground, and checks that a broken sink must fail.

A check is a plain function over a `Site`, so that the very same lines run over a true sink, which passes, and over its
broken twins, which must not.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from pakka import points
from pakka.contract.sink import Sink
from pakka.errors import FencedError
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Kind
from pakka.model.prepared import Prepared
from pakka.sinks import _spool
from pakka.sinks.spooled import SpooledCommitter

SCHEMA = pa.schema([("refund_id", pa.string()), ("merchant", pa.string()), ("amount_paise", pa.int64())])


class Died(BaseException):
    """The process is gone: nobody catches this, and nothing runs after it."""


def epoch(number: int, digest: str = "") -> Epoch:
    return Epoch("refunds", number, Origin("query-1", number, digest or f"offsets-{number}"))


def refunds(number: int, rows: int, start: int = 0) -> pa.RecordBatch:
    """Rows that no other epoch or slot has."""
    ids = [f"RFD-{number}-{start + i}" for i in range(rows)]
    return pa.record_batch([ids, ["chai corner"] * rows, list(range(start, start + rows))], schema=SCHEMA)


@dataclass
class Site:
    """A sink, the ground it stands on, and a reader who knows nothing of pakka."""

    sink: Sink
    path: Path
    read: Callable[[], list[tuple]]
    binding: Binding = field(init=False)

    def __post_init__(self) -> None:
        self.binding = Binding("refunds", "audit", str(self.path / "spool"))

    def driver(self, fence: int) -> SpooledCommitter:
        """A driver that has begun its run: its fence is raised."""
        committer = self.sink.open_committer(self.binding, fence)
        assert committer.raise_fence()
        return committer

    def prepare(self, number: int, fence: int, rows: tuple[int, ...] = (5, 4, 3), attempt: int = 0) -> list[Prepared]:
        """One prepared record a slot; every slot's rows come in two batches."""
        records = []
        for n, count in enumerate(rows):
            slot = Slot("refunds", "audit", number, fence, n, attempt)
            writer = self.sink.open_writer(self.binding, slot, SCHEMA)
            half = count // 2
            for start, size in ((0, half), (half, count - half)):
                writer.write(refunds(number, size, 1000 * n + start))
            records.append(writer.prepare(f"{number + n + 1:016x}"))
        return records

    def staged(self) -> list[str]:
        """All that waits in the spool: the names of attempts."""
        return sorted(p.name for p in (self.path / "spool").glob("*/fence-*/pakka.*"))


def expected(*epochs: int, rows: tuple[int, ...] = (5, 4, 3)) -> list[tuple]:
    batches = [refunds(e, count, 1000 * n) for e in epochs for n, count in enumerate(rows)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@contextmanager
def striking(at: str, strike: Callable[[], None]) -> Iterator[None]:
    """Run `strike` at a crash point."""

    def struck(point: str, _: int) -> None:
        if point == at:
            strike()

    points.arm(struck)
    try:
        yield
    finally:
        points.arm(None)


def die() -> None:
    raise Died


# --- What every spooled sink with a ledger must pass, and a broken one must not.


def check_an_older_fence_changes_nothing(site: Site) -> None:
    """The older driver has looked at the fence, and is overtaken before its transaction begins."""
    old = site.driver(1)
    records = site.prepare(0, 1)
    new = site.sink.open_committer(site.binding, 2)
    apply = old.applier.apply

    def overtaken(token, batches):
        new.applier.raise_fence(2)
        return apply(token, batches)

    old.applier.apply = overtaken
    with pytest.raises(FencedError):
        old.commit_epoch(epoch(0), records)
    assert site.read() == []
    assert new.raise_fence()
    assert new.commit_epoch(epoch(0), records) == COMMITTED
    assert site.read() == expected(0)


def check_a_reader_never_sees_a_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader looks before every batch, and after the last one while the transaction is open."""
    seen: list[int] = []
    batches = _spool.SpoolReader.batches

    def watched(self):
        for batch in batches(self):
            seen.append(len(site.read()))
            yield batch

    monkeypatch.setattr(_spool.SpoolReader, "batches", watched)
    driver = site.driver(1)
    with striking("commit.apply", lambda: seen.append(len(site.read()))):
        driver.commit_epoch(epoch(0), site.prepare(0, 1))
        driver.commit_epoch(epoch(1), site.prepare(1, 1))
    assert set(seen) == {0, 12}
    assert len(seen) == 14


def check_death_at_any_statement_leaves_one_copy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die before, and after, every call to the database in turn; the next driver must end with exactly one copy."""
    connect, rows = sqlite3.connect, (2, 1)
    fence = number = 0
    for is_answered in (True, False):
        for nth in range(1, 40):
            lives = Lives(nth, is_answered)
            fence += 1
            driver = site.driver(fence)
            driver.commit_epoch(epoch(number), site.prepare(number, fence, rows))
            number += 1
            records = site.prepare(number, fence, rows)
            driver.close()
            monkeypatch.setattr(sqlite3, "connect", lives.connect(connect))
            dying = site.sink.open_committer(site.binding, fence)
            with suppress(Died):
                dying.commit_epoch(epoch(number), records)
            monkeypatch.setattr(sqlite3, "connect", connect)
            lives.bury()
            fence += 1
            heir = site.driver(fence)
            outcome = heir.commit_epoch(epoch(number), records)
            heir.close()
            assert outcome.kind in (Kind.COMMITTED, Kind.ALREADY_COMMITTED)
            assert sorted(site.read()) == sorted(expected(*range(number + 1), rows=rows))
            assert site.staged() == []
            number += 1
            if not lives.is_over:
                break  # it never came to the nth call: every call has been died at
        else:
            raise AssertionError("a commit takes more calls than were tried")


@dataclass
class Lives:
    """Connections that die at the nth call: after it was carried out, if it is answered, or before."""

    nth: int
    is_answered: bool
    calls: int = 0
    opened: list[sqlite3.Connection] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.calls >= self.nth

    def call(self, method: Callable, *args):
        if self.is_over:
            raise Died
        self.calls += 1
        if self.is_over and not self.is_answered:
            raise Died
        answer = method(*args)
        if self.is_over:
            raise Died
        return answer

    def connect(self, connect: Callable) -> Callable:
        lives = self

        class Cursor(sqlite3.Cursor):
            def execute(self, *args):
                return lives.call(super().execute, *args)

            def executemany(self, *args):
                return lives.call(super().executemany, *args)

        class Connection(sqlite3.Connection):
            def execute(self, *args):
                return lives.call(super().execute, *args)

            def executemany(self, *args):
                return lives.call(super().executemany, *args)

            def commit(self):
                return lives.call(super().commit)

            def rollback(self):
                return lives.call(super().rollback)

            def cursor(self, factory=Cursor):
                return super().cursor(factory)

            def close(self):
                if lives.is_over:
                    raise Died
                super().close()

        def opened(*args, **kwargs):
            if lives.is_over:
                raise Died
            lives.opened.append(connect(*args, factory=Connection, **kwargs))
            return lives.opened[-1]

        return opened

    def bury(self) -> None:
        """What the operating system does for a dead process: its connections vanish, uncommitted."""
        for connection in self.opened:
            # A cursor that is still held would keep a closed connection, and its lock, alive.
            sqlite3.Connection.rollback(connection)
            sqlite3.Connection.close(connection)


def rows_of(path: Path, table: str) -> Callable[[], list[tuple]]:
    """An independent reader: a connection of its own, as another program would have."""

    def read() -> list[tuple]:
        if not path.exists():
            return []
        with closing(sqlite3.connect(path)) as db:
            name = '"' + table.replace('"', '""') + '"'
            if not db.execute("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", (table,)).fetchone():
                return []
            return db.execute(f"SELECT * FROM {name}").fetchall()

    return read
