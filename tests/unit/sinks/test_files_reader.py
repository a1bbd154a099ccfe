"""A reader that never stops looking: at no moment does it see a part of an epoch."""

import os
import threading
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from pakka import points
from pakka.sinks._publish import Publisher
from tests.unit.sinks.files_kit import ROWS, Driver, epoch, output, sink_at

EPOCHS = 3
SLOTS = 3


def look_by_listing(path):
    """List everything, then count the rows of every file that was listed."""
    counts = Counter()
    for place, _, names in os.walk(path):
        for name in names:
            if name.endswith(".parquet"):
                part = Path(place, name)
                counts[part.relative_to(path).parts[0]] += pq.read_metadata(part).num_rows
    return counts


def look_by_duckdb(path):
    with duckdb.connect() as connection:
        if not connection.execute("FROM glob(?)", [f"{path}/**/*.parquet"]).fetchall():
            return {}
        rows = connection.read_parquet(f"{path}/**/*.parquet", hive_partitioning=True)
        return {f"pakka_epoch={n}": count for n, count in rows.aggregate("pakka_epoch, count(*)").fetchall()}


class Reader(threading.Thread):
    """Looks again and again; keeps every look in which an epoch was there in part."""

    def __init__(self, path, look):
        super().__init__(daemon=True)
        self.path, self.look = path, look
        self.begun = self.ended = 0
        self.torn = []
        self.is_over = False
        self.turn = threading.Condition()

    def run(self):
        while not self.is_over:
            with self.turn:
                self.begun += 1
            try:
                counts = self.look(self.path)
            except Exception as error:
                self.torn.append(error)
                counts = {}
            self.torn += [(name, rows) for name, rows in counts.items() if rows != ROWS * SLOTS]
            with self.turn:
                self.ended = self.begun
                self.turn.notify_all()

    def wait_for_a_look(self):
        """Return after a look that began after this call."""
        with self.turn:
            wanted = self.begun + 1
            assert self.turn.wait_for(lambda: self.ended >= wanted, timeout=60)

    def stop(self):
        self.is_over = True
        self.join(timeout=60)


def deliver_under_watch(tmp_path, look, twin=None):
    """Deliver epochs while a reader looks; at every point of a commit, wait until it has looked."""
    sink = sink_at(tmp_path, partition_by=("merchant",))
    driver = Driver(sink, 1)
    if twin is not None:
        driver.committer = twin(driver.committer.path, driver.committer.staging)
    reader = Reader(output(sink), look)
    reader.start()
    points.arm(lambda point, _: reader.wait_for_a_look() if point.startswith("commit.") else None)
    try:
        for number in range(EPOCHS):
            driver.committer.commit_epoch(epoch(number), driver.prepare(number, SLOTS))
    finally:
        points.arm(None)
        reader.stop()
    assert look(output(sink)) == {f"pakka_epoch={n}": ROWS * SLOTS for n in range(EPOCHS)}
    return reader


@pytest.mark.parametrize("look", [look_by_listing, look_by_duckdb])
def test_a_reader_never_sees_a_part_of_an_epoch(tmp_path, look):
    reader = deliver_under_watch(tmp_path, look)
    assert reader.torn == []
    assert reader.ended >= EPOCHS * (SLOTS + 2)


class OneByOne(Publisher):
    """The broken twin: it makes the directory first and moves the files into it one after another."""

    def _publish(self, epoch, build):
        place = self._directory(epoch.number)
        for source in sorted(build.rglob("*.*")):
            target = place / source.relative_to(build)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, target)
            points.reach("commit.twin", epoch.number)


def test_a_committer_that_moves_files_one_by_one_is_caught(tmp_path):
    reader = deliver_under_watch(tmp_path, look_by_listing, OneByOne)
    assert [seen for seen in reader.torn if isinstance(seen, tuple)] != []
