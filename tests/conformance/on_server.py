"""Sinks of SQL servers on trial: every place is a schema of the test's own, behind a line that can be cut.

A golden record of such a sink has two halves: the records as JSON, and a script in SQL that leaves a server as the release had left
it: its tables as it made them, its fence, and what it had prepared. A paragraph of the script is one connection.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from pakka.testing.contract import Cut, Golden
from pakka.testing.contract.trial import Trial
from tests.conformance.harnesses import GOLDEN, Shipped
from tests.fixtures.proxy import Proxy
from tests.fixtures.server import PASSWORD, Server

TABLES = ("refund", "pakka_fence", "pakka_ledger")
_PLACE = "{place}"


class FromTheLastRelease:
    """What is left undecided by a release must be found by the next one, which knows no more of it than its id."""

    harness: ClassVar[type["OnServer"]]

    def test_what_the_last_release_left_undecided_is_found_and_aborted(self, tmp_path):
        harness = self.harness(tmp_path)
        with Trial(harness) as trial:
            trial.driver(1)
            harness.put_as_made_here()
            assert len(harness.litter()) == 3
            heir = trial.committer(2)
            assert not heir.raise_fence()
            assert {p.slot for p in heir.pending()} == {p.slot for p in harness.golden().prepared}
            heir.abort(heir.pending())
            assert heir.raise_fence()
            assert (harness.litter(), trial.visible()) == ([], {})


class OnServer(Shipped):
    """Rows as any client of the server reads them; staged is what the server lists as prepared."""

    way: ClassVar[str] = "prepared"
    commit_words: ClassVar[bytes]
    """What the client sends to commit."""
    server: ClassVar[Server | None] = None
    """Set by the tests that run the contract. A sink can be made and looked at without one."""
    secrets = (PASSWORD, unquote(PASSWORD))

    _ground: ClassVar[dict[int, tuple[str, Proxy]]] = {}
    """One database to connect to and one proxy for each server, by its port; every place is a schema, which is made in a moment."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        if self.server is not None:
            self.ask(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

    @property
    def schema(self) -> str:
        return f"place_{hashlib.sha256(str(self.place).encode()).hexdigest()[:16]}"

    @classmethod
    def ground(cls) -> tuple[str, Proxy]:
        assert cls.server is not None
        if cls.server.port not in cls._ground:
            cls._ground[cls.server.port] = (cls.server.create_database(), Proxy(("127.0.0.1", cls.server.port)))
        return cls._ground[cls.server.port]

    def url(self) -> str:
        """By way of the proxy; without a server one where nobody is."""
        if self.server is None:
            return f"{self.name.partition('-')[0]}://nobody@127.0.0.1:1/nowhere"
        direct, proxy = self.ground()
        return self.server.url(direct.rpartition("/")[2], proxy.port)

    @contextmanager
    def cut(self, *, is_done: bool) -> Iterator[Cut]:
        cut, (_, proxy) = Cut(), self.ground()
        before = proxy.cuts
        proxy.cut_at(self.commit_words, is_delivered=is_done)
        yield cut
        cut.is_struck = proxy.cuts > before

    def put(self, golden: Golden) -> None:
        """The spool's files, and the script: in place of the tables that this release has just made."""
        super().put(golden)
        self._play(self._script())

    def put_as_made_here(self) -> None:
        """The script as that release would have left it on this very place, which stands in the ids."""
        self._play(self.with_own_ids(self._script()))

    def _script(self) -> str:
        return (GOLDEN / f"{self.name}.sql").read_text()

    def _play(self, script: str) -> None:
        self.ask(f"DROP TABLE {self.schema}.pakka_fence, {self.schema}.pakka_ledger")
        for paragraph in script.replace(_PLACE, self.schema).strip().split("\n\n"):
            self.run(paragraph.removesuffix(";").split(";\n"))

    @classmethod
    def script_of(cls, golden: Golden, tables: Sequence[str]) -> str:
        """What `put` runs, for a release that made these tables."""
        paragraphs = [[*tables, f"INSERT INTO {_PLACE}.pakka_fence VALUES ('refunds', 'out', 1)"]]
        rows = iter(golden.rows)
        for record in golden.prepared if cls.way == "prepared" else ():
            values = [str(tuple(next(rows).values())) for _ in range(record.rows)]
            insert = [f"INSERT INTO {_PLACE}.refund VALUES {', '.join(values)}"] if values else []
            slot = record.slot
            key = (slot.pipeline, slot.sink, slot.epoch, slot.number, slot.fence, slot.attempt)
            entry = ", ".join(map(repr, (*key, record.rows, record.checksum)))
            insert.append(f"INSERT INTO {_PLACE}.pakka_ledger VALUES ({entry}, DEFAULT, NULL)")
            paragraphs.append(cls.transaction(str(record.detail["id"]), insert))
        return "\n\n".join(";\n".join(p) + ";" for p in paragraphs) + "\n"

    def tables(self) -> list[str]:
        """As they are now, as statements that make them on any place."""
        return [self.definition(table).replace(self.schema, _PLACE) for table in TABLES]

    def ask(self, statement: str) -> list[Any]:
        """One statement on a connection of its own; its rows."""
        return self.run([statement])

    @abstractmethod
    def run(self, statements: Sequence[str]) -> list[Any]:
        """On one connection, in autocommit; the rows of the last one."""

    @abstractmethod
    def definition(self, table: str) -> str:
        """The statement that makes a table, with the schema before its name."""

    @abstractmethod
    def with_own_ids(self, script: str) -> str:
        """The same with the mark of this place in each id."""

    @staticmethod
    @abstractmethod
    def transaction(ident: str, inserts: Sequence[str]) -> list[str]:
        """The statements that prepare a slot under this id, with the fence looked at under a lock."""
