"""The COPY of the PostgreSQL sink without its protocol: no fence, no ledger, no prepare. A crash leaves half an epoch, or two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from bench.sql import TABLE
from pakka.model.id import Binding
from pakka.postgres_line import Address
from pakka.sinks._postgres_clerk import BEGIN
from pakka.sinks._postgres_column import Fit, Place, Target, read_table
from pakka.sinks._postgres_copy import CopyStream, SteadyWriter
from pakka.sinks._postgres_writer import lines_to
from pakka.spark.decimals import restored


@dataclass(frozen=True)
class PlainCopy:
    """Takes the rows of one slot and commits them at once. Spark calls it as a task; the URL has a password."""

    url: str = field(repr=False)
    wire: pa.Schema | None = None
    """What the rows are if they cross to Python as pakka's do, with a hash as the last column, to be added up."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hashes = [0]
        rows = self.write(batches if self.wire is None else _added_up(batches, self.wire, hashes))
        yield pa.record_batch([pa.array([f"{rows} rows, {hashes[0]}"])], names=["answer"])

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """The encoder, the connection, its settings and the look at the table are those of the sink."""
        address, target = Address.parse(self.url, "plain"), Target(None, TABLE)
        place = Place(Binding("bench", "plain", ""), str(address), TABLE)
        rest = iter(batches)
        first = next(rest, None)
        if first is None:
            return 0
        with lines_to(address, self.url).lend() as line:
            line.ask(BEGIN.format(statement_s=0, lock_ms=0, idle_s=0))
            table = read_table(line.db, target)
            assert table is not None
            fit = Fit(place, first.schema, table)
            stream = CopyStream(fit.schema)
            with line.db.cursor() as cursor:
                with cursor.copy(stream.statement(target.sql, fit.columns), writer=SteadyWriter(cursor)) as copy:
                    copy.write(stream.start())
                    for batch in chain([first], rest):
                        copy.write(stream.write(fit(batch)))
                    copy.write(stream.finish())
                rows = cursor.rowcount
            line.ask("COMMIT")
        return rows


def _added_up(batches: Iterator[pa.RecordBatch], wire: pa.Schema, hashes: list[int]) -> Iterator[pa.RecordBatch]:
    for crossed in batches:
        batch = restored(crossed, wire)
        hashes[0] += int(batch.columns[-1].to_numpy().sum(dtype="int64"))
        yield batch.select(batch.schema.names[:-1])
