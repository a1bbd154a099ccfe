"""The driver's side of the PostgreSQL sink: fence, ledger and prepared transactions, one statement or transaction each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import Error as PsycopgError
from psycopg import errors

from pakka.contract.doubt import Doubt
from pakka.errors import SinkError, UnknownOutcomeError
from pakka.model.id import Binding, Slot
from pakka.postgres_line import Address, Line
from pakka.sinks._lines import Lines
from pakka.sinks._postgres_column import Target, quoted
from pakka.sinks._postgres_doubt import in_doubt
from pakka.sinks._postgres_error import reason_of, told
from pakka.sinks._two_phase import HEADER, Answer, Clerk, Page, Share

_RAISE_WAIT_MS = 1000
"""How long raising the fence waits for what is prepared. Settling it is recovery's to do, and it asks again."""
_LOCK_MS = 10_000
_IDENT = re.compile(r"[A-Za-z0-9_./-]{1,199}")
_LOCK_TABLES = 7098462
"""Any number that nobody else locks: one driver at a time makes the tables."""

# Set for each transaction and not for the session, so that a pooler may stand in between. A database that acknowledges before
# it has written is told to wait for the disk here; any stronger setting is left as it is.
BEGIN = """
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL statement_timeout = '{statement_s}s';
    SET LOCAL lock_timeout = '{lock_ms}ms';
    SET LOCAL idle_in_transaction_session_timeout = '{idle_s}s';
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
"""
PLACE = """
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    (SELECT oid FROM pg_namespace WHERE nspname = coalesce(%(schema)s, current_schema()))
"""
NO_TABLES = (errors.UndefinedTable, errors.InvalidSchemaName)


@dataclass(frozen=True)
class Names:
    """Where fence and ledger are: beside the target, in its schema. Written as statements with parameters have it."""

    target: Target

    @property
    def prefix(self) -> str:
        return f"{quoted(self.target.schema)}.".replace("%", "%%") if self.target.schema else ""

    @property
    def fence(self) -> str:
        return f"{self.prefix}pakka_fence"

    @property
    def ledger(self) -> str:
        return f"{self.prefix}pakka_ledger"

    def create(self) -> str:
        return f"""
            SELECT pg_advisory_xact_lock({_LOCK_TABLES});
            CREATE TABLE IF NOT EXISTS {self.fence} (
                pipeline text, sink text, fence bigint NOT NULL, PRIMARY KEY (pipeline, sink));
            CREATE TABLE IF NOT EXISTS {self.ledger} (
                pipeline text, sink text, epoch bigint, slot integer, fence bigint, attempt bigint,
                rows bigint NOT NULL, checksum text NOT NULL, prepared_at timestamptz NOT NULL DEFAULT clock_timestamp(),
                entry text, PRIMARY KEY (pipeline, sink, epoch, slot, fence, attempt))
        """

    def look(self) -> str:
        """Fence, newest epoch, and the rows of one epoch or of the newest, as they are at one instant.

        The newest is the newest that has a header. A slot without one was committed by an administrator's hand: it counts when its
        epoch is committed, and until then the sink does not hold the epoch.
        """
        mine = "pipeline = %(pipeline)s AND sink = %(sink)s"
        return f"""
            WITH newest AS (SELECT max(epoch) AS epoch FROM {self.ledger} WHERE {mine} AND slot = {HEADER}),
            page AS (SELECT * FROM {self.ledger} WHERE {mine} AND epoch = coalesce(%(epoch)s, (SELECT epoch FROM newest)))
            SELECT coalesce((SELECT fence FROM {self.fence} WHERE {mine}), 0), coalesce((SELECT epoch FROM newest), -1),
                page.slot, page.fence, page.attempt, page.rows, page.checksum, page.entry
            FROM (SELECT 1) AS one LEFT JOIN page ON true
        """


def lines_of(address: Address) -> Lines[Line]:
    """Connections to this database."""
    return Lines(lambda: Line(address), lambda line: line.is_open)


class PostgresClerk(Clerk):
    """One sink's fence, ledger and prepared transactions in one database."""

    def __init__(self, address: Address, target: Target, binding: Binding) -> None:
        self.address = address
        self.names = Names(target)
        self.binding = binding
        self.lines = lines_of(address)
        self.key = {"pipeline": binding.pipeline, "sink": binding.sink}

    def look(self, epoch: int | None) -> Page:
        with told(self.binding, self.address), self.lines.lend() as line, line.within():
            return look(line, self.names, self.key, epoch)

    def raise_fence(self, fence: int) -> bool:
        with told(self.binding, self.address):
            try:
                return self._raise(fence)
            except NO_TABLES:
                with self.transaction() as line:
                    line.ask(self.names.create().replace("%%", "%"))
            return self._raise(fence)

    def _raise(self, fence: int) -> bool:
        try:
            with self.transaction(_RAISE_WAIT_MS) as line:
                line.ask(
                    f"INSERT INTO {self.names.fence} AS f VALUES (%(pipeline)s, %(sink)s, %(fence)s) ON CONFLICT (pipeline, sink) "
                    "DO UPDATE SET fence = excluded.fence WHERE f.fence < excluded.fence",
                    {**self.key, "fence": fence},
                )
        except errors.LockNotAvailable:
            return False
        return True

    def write_header(self, fence: int, epoch: int, header: str, *, keep: int) -> bool:
        mine = "pipeline = %(pipeline)s AND sink = %(sink)s"
        ledger = self.names.ledger
        # The commit of any slot after it, which waits for the disk, takes this one along. The mark that the epoch is whole may
        # be lost with the server: its slots vouch for it. An epoch without slots has nothing else.
        statements = f"""
            {BEGIN.format(statement_s=30, lock_ms=_LOCK_MS, idle_s=10)};
            SELECT set_config('synchronous_commit', 'off', true) WHERE NOT %(is_whole)s
                OR EXISTS (SELECT 1 FROM {ledger} WHERE {mine} AND epoch = %(epoch)s AND slot <> {HEADER});
            WITH held AS (SELECT fence FROM {self.names.fence} WHERE {mine} FOR SHARE),
            ours AS (SELECT 1 WHERE coalesce((SELECT fence FROM held), 0) <= %(fence)s),
            old AS (DELETE FROM {ledger} WHERE {mine} AND epoch <= %(keep)s AND EXISTS (SELECT 1 FROM ours))
            INSERT INTO {ledger} (pipeline, sink, epoch, slot, fence, attempt, rows, checksum, entry)
            SELECT %(pipeline)s, %(sink)s, %(epoch)s, {HEADER}, 0, 0, 0, '{0:016x}', %(header)s FROM ours
            ON CONFLICT (pipeline, sink, epoch, slot, fence, attempt) DO UPDATE SET entry = excluded.entry
            RETURNING true AS is_entered;
            COMMIT
        """
        values = {**self.key, "epoch": epoch, "fence": fence, "keep": keep, "header": header}
        with told(self.binding, self.address), self.lines.lend() as line, line.within():
            return bool(line.ask_at_once(statements, {**values, "is_whole": Page(header=header).is_whole}))

    def commit(self, ident: str) -> Answer:
        return self._end("COMMIT", ident)

    def roll_back(self, ident: str) -> Answer:
        return self._end("ROLLBACK", ident)

    def listed(self) -> Iterator[tuple[Slot, str]]:
        for doubt in self.in_doubt():
            if doubt.slot is not None:
                yield doubt.slot, doubt.id

    def in_doubt(self) -> list[Doubt]:
        with told(self.binding, self.address), self.lines.lend() as line, line.within():
            place = place_of(line, self.names.target)
            return in_doubt(line.ask, lambda gid: self._slot_of(gid, place))

    def _slot_of(self, gid: str, place: str) -> Slot | None:
        """The attempt, if it is one of this pipeline and sink, in this database and schema."""
        text, _, where = gid.partition("/")
        slot = Slot.parse(text) if where == place else None
        is_mine = slot is not None and (slot.pipeline, slot.sink) == (self.binding.pipeline, self.binding.sink)
        return slot if is_mine else None

    def close(self) -> None:
        self.lines.close()

    def _end(self, verb: str, ident: str) -> Answer:
        if not _IDENT.fullmatch(ident):
            raise SinkError(f"{self.binding}: `{ident}` is not an id of ours; nothing was changed")
        with told(self.binding, self.address):
            line = self.lines.take()
        try:
            with line.within():
                line.end(f"{verb} PREPARED '{ident}'")
        except errors.UndefinedObject:
            answer = Answer.GONE
        except errors.ObjectNotInPrerequisiteState:
            answer = Answer.BUSY
        except errors.InsufficientPrivilege as error:
            line.close()
            raise SinkError(
                f"{self.binding}: {self.address}: {reason_of(error, self.address)}; `{ident}` stays prepared",
                hint="run as the user who prepared it, or as a superuser",
            ) from error
        except PsycopgError as error:
            # Whether it was carried out, the ledger knows, and nobody else.
            line.close()
            raise UnknownOutcomeError(
                f"{self.binding}: {self.address}: no answer to {verb} PREPARED '{ident}': {reason_of(error, self.address)}"
            ) from error
        except BaseException:
            line.close()
            raise
        else:
            answer = Answer.DONE
        self.lines.give_back(line)
        return answer

    @contextmanager
    def transaction(self, lock_ms: int = _LOCK_MS) -> Iterator[Line]:
        """A transaction that is rolled back, with its connection, by anything that is raised inside."""
        with self.lines.lend() as line, line.within():
            line.ask(BEGIN.format(statement_s=30, lock_ms=lock_ms, idle_s=10))
            yield line
            line.end("COMMIT")


def look(line: Line, names: Names, key: dict[str, str], epoch: int | None) -> Page:
    """The fence, and the page of an epoch or of the newest one."""
    try:
        rows = line.ask(names.look(), {**key, "epoch": epoch})
    except NO_TABLES:
        return Page()
    fence, newest = rows[0][:2]
    shares = {slot: Share(slot, *rest) for _, _, slot, *rest, _ in rows if slot is not None}
    header = next((entry for *_, slot, _, _, _, _, entry in rows if slot == HEADER), None)
    return Page(fence, newest, newest if epoch is None else epoch, header or "", shares)


def fence_of(line: Line, names: Names, key: dict[str, str], lock: str = "") -> int:
    """The fence that stands; 0 before there is one."""
    found = line.ask(
        f"SELECT fence FROM {names.fence} WHERE pipeline = %(pipeline)s AND sink = %(sink)s {lock}", {**key}
    )
    return int(found[0][0]) if found else 0


def place_of(line: Line, target: Target) -> str:
    """Which database and schema: ids of prepared transactions are shared by the whole server."""
    ((database, schema),) = line.ask(f"SELECT {PLACE}", {"schema": target.schema})
    return f"{database}.{schema}"
