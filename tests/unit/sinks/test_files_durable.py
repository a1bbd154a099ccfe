"""What a power cut may not undo: every name and every byte is synced before somebody is told that it is there."""

import os
from pathlib import Path

import pytest

from pakka.model.outcome import Kind
from tests.unit.sinks.files_kit import Driver, epoch, output, sink_at


class Journal:
    """What was synced and renamed, in order. A file is known by its inode, whatever its name was at the time."""

    def __init__(self, monkeypatch):
        self.steps = []
        fsync, rename = os.fsync, os.rename

        def record_fsync(fd):
            fsync(fd)
            self.steps.append(("fsync", os.fstat(fd).st_ino))

        def record_rename(source, target):
            rename(source, target)
            self.steps.append(("rename", Path(target).name))

        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(os, "rename", record_rename)

    def synced(self, begin=0, end=None):
        return {what for step, what in self.steps[begin:end] if step == "fsync"}

    def position(self, name):
        return self.steps.index(("rename", name))


def inodes(*paths):
    return {os.stat(path).st_ino for path in paths}


def tree(path):
    return [path, *path.rglob("*")]


@pytest.fixture(params=[(), ("merchant",)], ids=["plain", "partitioned"])
def driver(request, tmp_path):
    return Driver(sink_at(tmp_path, partition_by=request.param), 1)


def test_files_and_their_names_are_synced_before_a_slot_is_prepared(driver, monkeypatch):
    journal = Journal(monkeypatch)
    (record,) = driver.prepare(0)
    staging = driver.committer.staging
    assert inodes(*tree(staging.attempt(record.slot)), staging.path) <= journal.synced()


def test_everything_is_synced_before_it_is_visible_and_its_name_after(driver, monkeypatch):
    prepared = driver.prepare(0, 3)
    journal = Journal(monkeypatch)
    driver.commit(0, prepared)
    place = output(driver.sink) / "pakka_epoch=0"
    published = journal.position("pakka_epoch=0")
    last_move = max(i for i, (step, what) in enumerate(journal.steps) if step == "rename" and i < published)
    directories = [path for path in tree(place) if path.is_dir()]
    assert inodes(place / "_pakka.manifest") <= journal.synced(end=published)
    assert inodes(*directories) <= journal.synced(last_move, published)
    assert inodes(output(driver.sink)) <= journal.synced(begin=published)


@pytest.mark.parametrize("point", ["commit.move", "commit.publish"])
def test_moves_of_a_crashed_commit_are_synced_by_the_next(driver, monkeypatch, point):
    prepared = driver.prepare(0, 3)
    driver.crash(point, lambda: driver.commit(0, prepared))
    again = Driver(driver.sink, 2)
    journal = Journal(monkeypatch)
    again.commit(0, prepared)
    place = output(driver.sink) / "pakka_epoch=0"
    directories = [path for path in tree(place) if path.is_dir()]
    assert inodes(*directories, place / "_pakka.manifest") <= journal.synced(end=journal.position("pakka_epoch=0"))


def test_already_committed_is_answered_only_after_a_sync(driver, monkeypatch):
    """The driver before may have died between its rename and its sync; the state store would settle what can still go."""
    prepared = driver.prepare(0)
    driver.crash("commit.published", lambda: driver.commit(0, prepared))
    journal = Journal(monkeypatch)
    assert driver.commit(0, prepared).kind is Kind.ALREADY_COMMITTED
    assert inodes(output(driver.sink)) <= journal.synced()


def test_the_ledger_vouches_only_for_what_is_synced(driver, monkeypatch):
    driver.crash("commit.published", lambda: driver.commit(0, driver.prepare(0)))
    journal = Journal(monkeypatch)
    assert driver.committer.ledger().last.epoch == epoch(0)
    assert inodes(output(driver.sink)) <= journal.synced()


def test_a_raised_fence_is_synced(driver, monkeypatch):
    journal = Journal(monkeypatch)
    Driver(driver.sink, 2)
    assert inodes(driver.committer.staging.root) <= journal.synced(begin=journal.position("fence-2"))


def test_new_directories_are_synced_from_the_top(tmp_path, monkeypatch):
    journal = Journal(monkeypatch)
    Driver(sink_at(tmp_path / "a" / "b"), 1)
    assert inodes(tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "out") <= journal.synced()
