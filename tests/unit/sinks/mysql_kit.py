"""A MySQL sink in a fresh database, and a driver that takes epochs through it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pakka.contract.sink import Committer
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding, Slot
from pakka.model.outcome import COMMITTED, Outcome
from pakka.model.prepared import Prepared
from pakka.sinks.mysql import MysqlSink
from pakka.testing.contract.trial import commit_epoch
from tests.fixtures.mysql import branches, query

SUM = f"{7:016x}"


def epoch(number: int) -> Epoch:
    return Epoch("refunds", number, Origin("query", number, f"offsets-{number}"))


def rows(**columns: Any) -> pa.RecordBatch:
    """`rows(id=[1, 2])`, or with arrays where the type matters."""
    arrays = {n: c if isinstance(c, pa.Array) else pa.array(c) for n, c in columns.items()}
    return pa.record_batch(list(arrays.values()), names=list(arrays))


@dataclass
class Site:
    """One sink of one pipeline."""

    url: str
    spool: Path
    sink: MysqlSink

    @classmethod
    def of(cls, url: str, spool: Path, table: str = "refund", **options: Any) -> "Site":
        return cls(url, spool, MysqlSink(url, table, **options))

    def but(self, **options: Any) -> "Site":
        return replace(self, sink=replace(self.sink, **options))

    @property
    def binding(self) -> Binding:
        return Binding("refunds", "out", str(self.spool))

    def ask(self, statement: str, *values: Any) -> list[Any]:
        return query(self.url, statement, *values)

    def driver(self, fence: int = 1) -> Committer:
        committer = self.sink.open_committer(self.binding, fence)
        assert committer.raise_fence()
        return committer

    def slot(self, number: int, fence: int = 1, slot: int = 0, attempt: int = 0) -> Slot:
        return Slot("refunds", "out", number, fence, slot, attempt)

    def prepare(self, slot: Slot, *batches: pa.RecordBatch) -> Prepared:
        writer = self.sink.open_writer(self.binding, slot, batches[0].schema)
        try:
            for batch in batches:
                writer.write(batch)
            return writer.prepare(SUM)
        except BaseException:
            writer.discard()
            raise

    def commit(self, driver: Committer, number: int, prepared: Sequence[Prepared]) -> Outcome:
        return commit_epoch(driver, epoch(number), prepared)

    def deliver(self, number: int, *batches: pa.RecordBatch, fence: int = 1) -> None:
        """A whole epoch of one slot, which must work."""
        driver = self.driver(fence)
        try:
            record = self.prepare(self.slot(number, fence), *batches)
            assert self.commit(driver, number, [record]) == COMMITTED
        finally:
            driver.close()

    def prepared_branches(self) -> list[str]:
        return [gtrid for gtrid, _ in branches(self.url) if gtrid.startswith("pakka.")]
