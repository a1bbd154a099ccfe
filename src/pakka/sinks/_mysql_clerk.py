"""The driver's side of the MySQL sink: fence, ledger and prepared branches, one statement or transaction each.

An XA transaction has a name of two parts, of 64 bytes each. The first names the epoch: `pakka.` and a hash of pipeline and
sink, its number and the fence. The second names the branch: slot, attempt and a hash of the database, because the server
keeps one list for all its databases; behind it the names as far as they fit, for whoever looks at that list.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pakka.contract.doubt import Doubt
from pakka.errors import SinkError, UnknownOutcomeError
from pakka.model.id import Binding, Slot
from pakka.sinks._columns import Place
from pakka.sinks._mysql_column import Target, check_engine, read_table
from pakka.sinks._mysql_error import told
from pakka.sinks._mysql_line import Address, DriverError, Line, code_of, lines_of, text_of
from pakka.sinks._two_phase import HEADER, Answer, Clerk, Page, Share

_PART_BYTES = 64
_RAISE_WAIT_S = 1
"""How long raising the fence waits for what is prepared. Settling it is recovery's to do, and it asks again."""
_LET_GO_S = 8.0
"""How long to wait for a writer's connection, which MariaDB needs gone before anybody else may end its branch."""
_POLL_S = 0.005
IDLE_S = 60
"""A driver that is frozen inside a transaction keeps the next one waiting for the fence: the server shows it out after this."""
_GTRID = re.compile(r"pakka\.([0-9a-f]{20})\.(\d+)\.(\d+)")
_BQUAL = re.compile(r"(\d+)\.(\d+)\.([0-9a-f]{12})\.[A-Za-z0-9_.-]*")
NO_TABLE, LOCK_WAIT, UNKNOWN_XID, ROLLED_BACK, DUPLICATE = 1146, 1205, 1397, 1402, 1062
_NO_RIGHT = (1227, 1401)
"""1401 is how MySQL refuses XA RECOVER."""
_NAME = "varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"


def ident_of(slot: Slot, database: str) -> str:
    """The name of a slot's branch: its two parts, with a comma between."""
    gtrid = f"pakka.{digest(f'{slot.pipeline}.{slot.sink}', 20)}.{slot.epoch}.{slot.fence}"
    bqual = f"{slot.number}.{slot.attempt}.{digest(database, 12)}.{slot.pipeline}.{slot.sink}"[:_PART_BYTES]
    if len(gtrid) > _PART_BYTES or _BQUAL.fullmatch(bqual) is None:
        raise SinkError(f"`{slot}` has numbers too long for the name of an XA transaction; nothing was changed")
    return f"{gtrid},{bqual}"


def slot_of(ident: str, binding: Binding, database: str) -> Slot | None:
    """The slot whose branch has this name; None if it is not of this pipeline, sink and database."""
    first, _, second = ident.partition(",")
    gtrid, bqual = _GTRID.fullmatch(first), _BQUAL.fullmatch(second)
    if gtrid is None or bqual is None:
        return None
    epoch, fence, number, attempt = (int(n) for n in (*gtrid.groups()[1:], *bqual.groups()[:2]))
    slot = Slot(binding.pipeline, binding.sink, epoch, fence, number, attempt)
    return slot if ident_of(slot, database) == ident else None


def listed(line: Line) -> list[str]:
    """The names of every prepared branch of the server, whosever they are, that have the form of ours."""
    found = []
    for _, gtrid_length, bqual_length, data in line.ask("XA RECOVER"):
        raw = data.encode() if isinstance(data, str) else bytes(data)
        parts = raw[:gtrid_length], raw[gtrid_length : gtrid_length + bqual_length]
        found.append(",".join(part.decode("ascii", "replace") for part in parts))
    return found


def why_not_listed(line: Line) -> str:
    """What the server says to a user who may not see what is prepared; empty if they may."""
    try:
        line.ask("XA RECOVER")
    except DriverError as error:
        if code_of(error) not in _NO_RIGHT:
            raise
        return text_of(error)
    return ""


def xid(ident: str) -> str:
    """The name as SQL."""
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,64},[A-Za-z0-9_.-]{1,64}", ident) is None:
        raise SinkError(f"`{ident}` is not the name of a branch of ours; nothing was changed")
    gtrid, _, bqual = ident.partition(",")
    return f"'{gtrid}','{bqual}'"


def digest(text: str, digits: int) -> str:
    """As much of a hash as a name has room for."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass(frozen=True)
class Names:
    """Where fence and ledger are: beside the target, in its database."""

    target: Target

    @property
    def own(self) -> tuple[Target, Target]:
        return self.target.beside("pakka_fence"), self.target.beside("pakka_ledger")

    @property
    def fence(self) -> str:
        return self.own[0].sql

    @property
    def ledger(self) -> str:
        return self.own[1].sql

    def create(self) -> tuple[str, str]:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.fence} (pipeline {_NAME}, sink {_NAME}, fence bigint NOT NULL, "
            "PRIMARY KEY (pipeline, sink)) ENGINE=InnoDB",
            f"CREATE TABLE IF NOT EXISTS {self.ledger} (pipeline {_NAME}, sink {_NAME}, epoch bigint, slot int, fence bigint, "
            "attempt bigint, `rows` bigint NOT NULL, checksum varchar(64) CHARACTER SET ascii NOT NULL, "
            "prepared_at datetime(6) NOT NULL DEFAULT current_timestamp(6), entry longtext CHARACTER SET utf8mb4, "
            "PRIMARY KEY (pipeline, sink, epoch, slot, fence, attempt)) ENGINE=InnoDB",
        )

    def look(self) -> str:
        """Fence, newest epoch, and the rows of one epoch or of the newest, as they are at one instant.

        The newest is the newest that has a header. A slot without one was committed by an administrator's hand: it counts when its
        epoch is committed, and until then the sink does not hold the epoch.
        """
        return f"""
            SELECT coalesce((SELECT fence FROM {self.fence} WHERE pipeline = %(pipeline)s AND sink = %(sink)s), 0),
                coalesce(n.epoch, -1), l.slot, l.fence, l.attempt, l.`rows`, l.checksum, l.entry
            FROM (SELECT (SELECT epoch FROM {self.ledger} WHERE pipeline = %(pipeline)s AND sink = %(sink)s AND slot = {HEADER}
                          ORDER BY epoch DESC LIMIT 1) AS epoch) n
            LEFT JOIN {self.ledger} l ON l.pipeline = %(pipeline)s AND l.sink = %(sink)s AND l.epoch = coalesce(%(epoch)s, n.epoch)
        """


class MysqlClerk(Clerk):
    """One sink's fence, ledger and prepared branches in one database."""

    def __init__(self, address: Address, target: Target, binding: Binding) -> None:
        self.address = address
        self.target = target
        self.names = Names(target)
        self.binding = binding
        self.lines = lines_of(address)
        self.key = {"pipeline": binding.pipeline, "sink": binding.sink}

    def look(self, epoch: int | None) -> Page:
        with told(self.binding, self.address), self.lines.lend() as line:
            return look(line, self.names, self.key, epoch)

    def raise_fence(self, fence: int) -> bool:
        with told(self.binding, self.address), self.lines.lend() as line:
            self._make_ready(line)
        with told(self.binding, self.address):
            return self._raise(fence)

    def _make_ready(self, line: Line) -> None:
        """Fence and ledger are made if they are missing. Where an engine keeps no transactions, neither they nor the rows are
        what they seem.
        """
        for target, create in (*zip(self.names.own, self.names.create(), strict=True), (self.target, "")):
            table = read_table(line, target)
            if table is not None:
                check_engine(Place(self.binding, str(self.address), str(target)), table, target)
            elif create:
                line.do(create)

    def _raise(self, fence: int) -> bool:
        try:
            with self.transaction(_RAISE_WAIT_S) as line:
                # The row's lock keeps new writers from preparing; it is held until the end.
                line.do(
                    f"INSERT INTO {self.names.fence} VALUES (%(pipeline)s, %(sink)s, %(fence)s) "
                    "ON DUPLICATE KEY UPDATE fence = greatest(fence, %(fence)s)",
                    {**self.key, "fence": fence},
                )
                # A writer's shared lock on it is gone once it has prepared: the server drops such locks then, and at a restart.
                # The lock on its own ledger row stays until its branch is settled, so all of those are waited for.
                line.ask(
                    f"SELECT count(*) FROM {self.names.ledger} WHERE pipeline = %(pipeline)s AND sink = %(sink)s LOCK IN SHARE MODE",
                    self.key,
                )
        except DriverError as error:
            if code_of(error) != LOCK_WAIT:
                raise
            return False
        return True

    def write_header(self, fence: int, epoch: int, header: str, *, keep: int) -> bool:
        with told(self.binding, self.address), self.transaction() as line:
            # A driver that settles what is in the way of its fence has not raised it yet.
            if fence_of(line, self.names, self.key, "LOCK IN SHARE MODE") > fence:
                return False
            line.do(
                f"INSERT INTO {self.names.ledger} (pipeline, sink, epoch, slot, fence, attempt, `rows`, checksum, entry) VALUES "
                f"(%(pipeline)s, %(sink)s, %(epoch)s, {HEADER}, 0, 0, 0, '{0:016x}', %(header)s) ON DUPLICATE KEY UPDATE entry = %(header)s",
                {**self.key, "epoch": epoch, "header": header},
            )
            forget(line, self.names, self.key, keep)
        return True

    def commit(self, ident: str) -> Answer:
        return self._end("COMMIT", ident)

    def roll_back(self, ident: str) -> Answer:
        return self._end("ROLLBACK", ident)

    def may_list(self) -> bool:
        with told(self.binding, self.address), self.lines.lend() as line:
            return why_not_listed(line) == ""

    def listed(self) -> Iterator[tuple[Slot, str]]:
        with told(self.binding, self.address), self.lines.lend() as line:
            found = listed(line)
        for ident in found:
            slot = slot_of(ident, self.binding, self.target.schema)
            if slot is not None:
                yield slot, ident

    def in_doubt(self) -> Sequence[Doubt]:
        with told(self.binding, self.address), self.lines.lend() as line:
            told_rows = self._uncommitted(line)
            slots = {ident: slot_of(ident, self.binding, self.target.schema) for ident in listed(line)}
        found = []
        for ident, slot in slots.items():
            age_s, rows = told_rows.get(slot, (None, None))
            found.append(Doubt(ident, slot, age_s, rows, self._locks(rows) if slot else ()))
        return found

    def _locks(self, rows: int | None) -> tuple[str, ...]:
        """What a branch of ours locks. No list of the server says which branch a lock is of; but what its writer has put into tables
        is known, and InnoDB holds each of them until the branch is settled.
        """
        tables = (*([self.target] if rows != 0 else ()), self.names.own[1])
        return tuple(f"{table} IX" for table in tables)

    def _uncommitted(self, line: Line) -> dict[Slot | None, tuple[float, int]]:
        """Age and rows by slot. The server lists names only; the ledger rows of branches can be seen by whoever asks for rows
        that are not committed.
        """
        line.do("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        try:
            found = line.ask(
                "SELECT epoch, fence, slot, attempt, timestampdiff(MICROSECOND, prepared_at, utc_timestamp(6)) / 1e6, `rows` "
                f"FROM {self.names.ledger} WHERE pipeline = %(pipeline)s AND sink = %(sink)s AND slot <> {HEADER}",
                self.key,
            )
        except DriverError as error:
            if code_of(error) != NO_TABLE:
                raise
            return {}
        pipeline, sink = self.key.values()
        return {
            Slot(pipeline, sink, epoch, fence, slot, attempt): (max(0.0, float(age)), rows)
            for epoch, fence, slot, attempt, age, rows in found
        }

    def close(self) -> None:
        self.lines.close()

    def _end(self, verb: str, ident: str) -> Answer:
        statement = f"XA {verb} {xid(ident)}"
        give_up = time.monotonic() + _LET_GO_S
        with told(self.binding, self.address):
            line = self.lines.take()
        try:
            while (answer := self._send(line, statement, ident)) is Answer.BUSY and time.monotonic() < give_up:
                time.sleep(_POLL_S)
        except BaseException:
            line.close()
            raise
        self.lines.give_back(line)
        return answer

    def _send(self, line: Line, statement: str, ident: str) -> Answer:
        try:
            line.do(statement)
        except DriverError as error:
            code = code_of(error)
            if code == ROLLED_BACK:
                return Answer.GONE
            if code != UNKNOWN_XID:
                # Whether it was carried out, the ledger knows, and nobody else.
                raise UnknownOutcomeError(
                    f"{self.binding}: {self.address}: no answer to {statement}: {text_of(error)}"
                ) from error
        else:
            return Answer.DONE
        # The same is said of a branch that was never there, of one that is finished, and of one whose writer is still
        # connected. Only the last one is listed.
        with told(self.binding, self.address, f"`{ident}` stays prepared"):
            return Answer.BUSY if ident in listed(line) else Answer.GONE

    @contextmanager
    def transaction(self, lock_s: int | None = None) -> Iterator[Line]:
        """A transaction that is rolled back, with its connection, by anything that is raised inside."""
        with self.lines.lend() as line:
            line.do(f"SET SESSION innodb_lock_wait_timeout = {lock_s or 10}, wait_timeout = {IDLE_S}")
            line.do("START TRANSACTION")
            yield line
            line.do("COMMIT")


def look(line: Line, names: Names, key: dict[str, str], epoch: int | None) -> Page:
    """The fence, and the page of an epoch or of the newest one."""
    try:
        rows = line.ask(names.look(), {**key, "epoch": epoch})
    except DriverError as error:
        if code_of(error) != NO_TABLE:
            raise
        return Page()
    fence, newest = rows[0][:2]
    shares = {slot: Share(slot, *rest) for _, _, slot, *rest, _ in rows if slot is not None}
    header = next((entry for *_, slot, _, _, _, _, entry in rows if slot == HEADER), None)
    return Page(fence, newest, newest if epoch is None else epoch, header or "", shares)


def fence_of(line: Line, names: Names, key: dict[str, str], lock: str = "") -> int:
    """The fence that stands; 0 before there is one."""
    try:
        found = line.ask(
            f"SELECT fence FROM {names.fence} WHERE pipeline = %(pipeline)s AND sink = %(sink)s {lock}", key
        )
    except DriverError as error:
        if code_of(error) != NO_TABLE:
            raise
        return 0
    return int(found[0][0]) if found else 0


def forget(line: Line, names: Names, key: dict[str, str], keep: int) -> None:
    """Delete the ledger of epochs up to `keep`. A look without locks goes first: a delete that finds nothing would wait for
    the row behind what it looks for, which may be a prepared one.
    """
    old = f"FROM {names.ledger} WHERE pipeline = %(pipeline)s AND sink = %(sink)s AND epoch <= %(keep)s"
    values = {**key, "keep": keep}
    if keep >= 0 and line.ask(f"SELECT 1 {old} LIMIT 1", values):
        line.do(f"DELETE {old}", values)
