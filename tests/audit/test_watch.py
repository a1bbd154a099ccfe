"""A sink or a state store that is weakened while a pipeline runs stops it before the next decision."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar

import psycopg
import pytest

from pakka import mount, points
from pakka.contract.audit import Finding, Probe, Severity, Took
from pakka.contract.pipeline import Pipeline
from pakka.coordinator.recent import KEPT, Recent
from pakka.coordinator.station import Station
from pakka.coordinator.watch import spool_of
from pakka.errors import RefusedError, UnavailableError
from pakka.model.event import Committed, Noticed
from pakka.sinks.files import ParquetSink
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.memory import MemorySink, Space
from pakka.sources.kafka import KafkaSource
from pakka.sources.rate import RateSource
from pakka.spark.stream import Delivery
from pakka.state import open_store, settings_of
from pakka.testing.store import MemoryStore
from tests.fixtures import postgres
from tests.unit.coordinator.stage import Stage


@dataclass(frozen=True)
class WeakeningSink(MemorySink):
    """A memory sink with a setting that the test turns."""

    setting: ClassVar[Severity] = Severity.FINE
    is_silent: ClassVar[int] = 0
    looks: ClassVar[int] = 0

    def probes(self):
        return (Probe("durable", self.look), Probe("dear", self.look_dearly, is_cheap=False))

    def look(self) -> Finding:
        WeakeningSink.looks += 1
        if WeakeningSink.is_silent:
            WeakeningSink.is_silent -= 1
            raise OSError("no answer")
        return Finding("durable", self.setting, str(self.setting), "rows may be lost", "SET durable = on")

    def look_dearly(self) -> Finding:
        raise AssertionError("not to be read while a pipeline runs")


@pytest.fixture
def sink(monkeypatch) -> WeakeningSink:
    for name, value in {"setting": Severity.FINE, "is_silent": 0, "looks": 0}.items():
        monkeypatch.setattr(WeakeningSink, name, value)
    return WeakeningSink(f"space-{uuid.uuid4()}")


def started(stage: Stage, **settings):
    driver = stage.driver(**settings)
    driver.start(stage.checkpoint())
    return driver


def rows_of(sink: MemorySink) -> list[int]:
    return sorted(i for table in Space.named(sink.space).rows for i in table.column("id").to_pylist())


def test_a_weakened_sink_stops_the_pipeline_and_nothing_is_decided(sink, monkeypatch):
    stage = Stage({"refunds": sink})
    driver = started(stage, probe_every=1)
    driver.deliver(stage.origin(0), stage.prepare)
    monkeypatch.setattr(WeakeningSink, "setting", Severity.BREAKS)
    with pytest.raises(RefusedError) as caught:
        driver.deliver(stage.origin(1), stage.prepare)
    assert str(caught.value) == (
        "pipeline `refunds`: sink `refunds` was weakened while it runs: durable is `breaks`, which was `fine` when the run began; "
        "rows may be lost; epoch 1 is not decided and nothing of it is visible\n\n"
        "hint: mend it with `SET durable = on`, then run again: the epoch runs again with the same rows"
    )
    assert [d.epoch.number for d in stage.store.read("refunds").open] == [0]
    assert rows_of(sink) == stage.ids(0)


def test_a_mended_sink_gets_the_epoch_again(sink, monkeypatch):
    stage = Stage({"refunds": sink})
    driver = started(stage, probe_every=1)
    monkeypatch.setattr(WeakeningSink, "setting", Severity.BREAKS)
    with pytest.raises(RefusedError):
        driver.deliver(stage.origin(0), stage.prepare)
    monkeypatch.setattr(WeakeningSink, "setting", Severity.FINE)
    stage.run(1)
    assert rows_of(sink) == stage.ids(1)


def test_what_comes_to_warn_is_told_once_and_stops_nothing(sink, monkeypatch):
    stage, events = Stage({"refunds": sink}), []
    driver = started(stage, probe_every=1, listen=events.append)
    for batch, severity in enumerate([Severity.FINE, Severity.WARNS, Severity.FINE, Severity.WARNS]):
        monkeypatch.setattr(WeakeningSink, "setting", severity)
        driver.deliver(stage.origin(batch), stage.prepare)
    said = [event for event in events if isinstance(event, Noticed)]
    assert said == [
        Noticed(
            "refunds",
            "weak",
            "sink `refunds`: durable is `warns` since the run began: rows may be lost",
            hint="SET durable = on",
        )
    ]
    assert rows_of(sink) == stage.ids(3)


def test_what_a_run_begins_with_is_not_told_again(sink, monkeypatch):
    monkeypatch.setattr(WeakeningSink, "setting", Severity.WARNS)
    stage, events = Stage({"refunds": sink}), []
    driver = started(stage, probe_every=1, listen=events.append)
    driver.deliver(stage.origin(0), stage.prepare)
    assert [event for event in events if isinstance(event, Noticed)] == []


@dataclass(frozen=True)
class PlacedSink(MemorySink):
    """It keeps what it is told of how long things took, at each look."""

    told: ClassVar[list] = []

    def probing(self, binding, took, position):
        return Told(self, took)


@dataclass(frozen=True)
class Told:
    sink: PlacedSink
    took: Callable[[], Took]

    def probes(self):
        return (Probe("time", self.look),)

    def look(self):
        self.sink.told.append(self.took())
        return Finding("time", Severity.FINE, "enough", "there is time")


def test_a_sink_is_told_how_long_a_run_takes(monkeypatch):
    """Each step has a time of its own, by the test's clock."""
    monkeypatch.setattr(PlacedSink, "told", [])
    stage, now = Stage({"refunds": PlacedSink(f"space-{uuid.uuid4()}")}), [0.0]
    driver = stage.driver(probe_every=1)
    driver.clock = lambda: now[0]
    driver.teller = replace(driver.teller, clock=driver.clock)
    takes = {"recover.raised": 1, "prepared": 10, "decide.after": 2}
    ask = Station._ask

    def slowly(station, decision, *rest, **more):
        now[0] += 20 * (2 - decision.epoch.number)
        return ask(station, decision, *rest, **more)

    monkeypatch.setattr(Station, "_ask", slowly)
    points.arm(lambda point, _: now.__setitem__(0, now[0] + takes.get(point, 0)))
    try:
        driver.start(stage.checkpoint())
        for batch in range(3):
            driver.deliver(stage.origin(batch), stage.prepare)
    finally:
        points.arm(None)
    # The longest, and not the last; what is told before an epoch is of those before it.
    known = Took(epoch_s=52, commit_s=40, start_s=1)
    assert PlacedSink.told == [Took(start_s=1), Took(start_s=1), known, known]


def test_a_commit_that_was_tried_again_says_nothing_of_how_long_one_takes():
    recent, heard = Recent(), []
    hear = recent.before(heard.append)
    for number, (tries, was_unknown) in enumerate([(2, False), (1, True)]):
        hear(Committed("refunds", number, "refunds", 1, tries, was_unknown, 600.0))
    assert recent.of("refunds") == Took()
    hear(Committed("refunds", 2, "refunds", 1, 1, False, 3.0))
    assert (recent.of("refunds"), recent.of("audit")) == (Took(commit_s=3.0), Took())
    assert len(heard) == 3


def test_what_was_long_ago_does_not_count():
    recent = Recent()
    for epoch_s in [600.0, *[1.0] * KEPT]:
        recent.delivered(epoch_s)
    assert recent.of("refunds") == Took(epoch_s=1.0)


def test_settings_are_read_every_so_many_epochs(sink):
    stage = Stage({"refunds": sink})
    driver = started(stage, probe_every=3)
    looks = []
    for batch in range(7):
        driver.deliver(stage.origin(batch), stage.prepare)
        looks.append(WeakeningSink.looks)
    assert looks == [1, 1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("severity", [Severity.FINE, Severity.WARNS, Severity.BREAKS])
def test_what_a_run_begins_with_does_not_stop_it(sink, monkeypatch, severity):
    monkeypatch.setattr(WeakeningSink, "setting", severity)
    stage = Stage({"refunds": sink})
    stage.run(4, stage.driver(probe_every=1))
    assert rows_of(sink) == stage.ids(4)


def test_a_setting_that_cannot_be_read_for_a_moment_is_asked_again(sink, monkeypatch):
    stage = Stage({"refunds": sink})
    driver = started(stage, probe_every=1)
    monkeypatch.setattr(WeakeningSink, "is_silent", 2)
    driver.deliver(stage.origin(0), stage.prepare)
    assert rows_of(sink) == stage.ids(0)
    assert len(stage.waits) == 2


def test_a_setting_that_cannot_be_read_at_all_aborts_the_epoch(sink, monkeypatch):
    stage = Stage({"refunds": sink})
    driver = started(stage, probe_every=1)
    monkeypatch.setattr(WeakeningSink, "is_silent", 1000)
    with pytest.raises(UnavailableError, match="sink `refunds`: its setting durable cannot be read: no answer"):
        driver.deliver(stage.origin(0), stage.prepare)
    assert (rows_of(sink), stage.store.read("refunds").open) == ([], ())


def test_a_disk_that_is_mounted_anew_without_barriers_stops_the_pipeline(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw,barrier=1 0 0\n")
    monkeypatch.setattr(mount, "MOUNTS", mounts)
    stage = Stage({"refunds": ParquetSink(str(tmp_path / "out"))})
    driver = started(stage, probe_every=1)
    driver.deliver(stage.origin(0), stage.prepare)
    mounts.write_text("/dev/sda1 / ext4 rw,barrier=0 0 0\n")
    with pytest.raises(RefusedError, match=r"fsync is `barrier=0`, which was `honoured`.*epoch 1 is not decided"):
        driver.deliver(stage.origin(1), stage.prepare)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["pakka_epoch=0"]
    assert list((tmp_path / ".out.pakka" / "fence-1").iterdir()) == []


def test_a_spool_that_loses_what_is_synced_stops_the_pipeline(sink, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text("overlay / overlay rw 0 0\n")
    monkeypatch.setattr(mount, "MOUNTS", mounts)
    stage = Stage({"refunds": sink})
    pipeline = Pipeline("refunds", RateSource(10), {"refunds": sink}, spool=str(tmp_path / "spool"))
    driver = started(stage, probe_every=1, probing=spool_of(pipeline))
    driver.deliver(stage.origin(0), stage.prepare)
    mounts.write_text("overlay / overlay rw,volatile 0 0\n")
    with pytest.raises(RefusedError, match="the spool was weakened while it runs: fsync is `volatile`"):
        driver.deliver(stage.origin(1), stage.prepare)


def test_a_run_watches_over_its_source_too():
    source = KafkaSource("localhost:1", "refunds", format="raw")
    pipeline = Pipeline("refunds", source, {"out": KafkaSink("localhost:1", "refunds")})
    delivery = Delivery(pipeline, None, MemoryStore())
    watched = delivery.coordinator.watch.subjects
    assert list(watched) == ["the state store", "the source", "the spool", "sink `out`"]
    assert watched["the source"] is source
    delivery.close()


def test_a_pipeline_whose_sinks_do_not_spool_has_no_spool_to_watch(tmp_path):
    sinks = {"refunds": ParquetSink(str(tmp_path / "out"))}
    assert spool_of(Pipeline("refunds", RateSource(10), sinks)) == {}


@pytest.mark.parametrize("way", ["spooled", "sharded", "prepared"])
def test_the_spool_of_a_kafka_sink_is_watched_by_every_way(way, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text("tmpfs / tmpfs rw 0 0\n")
    monkeypatch.setattr(mount, "MOUNTS", mounts)
    sinks = {"out": KafkaSink("127.0.0.1:1", topic="refunds", way=way)}
    spool = spool_of(Pipeline("refunds", RateSource(10), sinks, spool=str(tmp_path / "spool")))["the spool"]
    found = {probe.name: probe.look() for probe in spool.probes()}
    assert (found["file system"].value, found["file system"].severity) == ("tmpfs", Severity.WARNS)
    assert "rename" in found


def test_a_state_store_whose_connection_stops_to_wait_for_the_disk_stops_the_pipeline(sink, tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path}/state.db")) as store:
        stage = Stage({"refunds": sink}, store)
        driver = started(stage, probe_every=2)
        driver.deliver(stage.origin(0), stage.prepare)
        store._execute("PRAGMA synchronous = NORMAL")
        with pytest.raises(RefusedError, match=r"synchronous is `normal`, which was `full`.*epoch 1 is not decided"):
            driver.deliver(stage.origin(1), stage.prepare)
        assert [d.epoch.number for d in store.read("refunds").open] == [0]
        driver.stop()
    assert rows_of(sink) == stage.ids(0)


WEAKENINGS = {
    "fsync": ("off", ["ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"]),
    "full_page_writes": ("off", ["ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()"]),
    "unlogged tables": ("pakka_epoch", ["ALTER TABLE pakka_epoch SET UNLOGGED"]),
}


@pytest.mark.postgres
@pytest.mark.parametrize("setting", WEAKENINGS)
def test_a_server_that_is_weakened_while_a_pipeline_runs_stops_it(sink, lax_url, setting):
    value, statements = WEAKENINGS[setting]
    with closing(open_store(lax_url)) as store:
        stage = Stage({"refunds": sink}, store)
        driver = started(stage, probe_every=1)
        driver.deliver(stage.origin(0), stage.prepare)
        weaken(lax_url, statements)
        wait_for(store, setting, value)
        with pytest.raises(RefusedError, match=f"the state store was weakened while it runs: {setting} is `{value}`"):
            driver.deliver(stage.origin(1), stage.prepare)
        assert [d.epoch.number for d in store.read("refunds").open] == [0]
        assert rows_of(sink) == stage.ids(0)
        driver.stop()


@pytest.mark.postgres
def test_the_settings_of_a_server_are_read_before_anything_is_made(lax_url):
    assert [(f.name, f.value, f.severity) for f in settings_of(lax_url)] == [
        ("fsync", "on", Severity.FINE),
        ("full_page_writes", "on", Severity.FINE),
        ("synchronous_commit", "on", Severity.FINE),
        ("unlogged tables", "none", Severity.FINE),
    ]
    weaken(lax_url, ["ALTER ROLE pakka SET synchronous_commit = off"])
    found = {f.name: f for f in settings_of(lax_url)}
    assert (found["synchronous_commit"].value, found["synchronous_commit"].severity) == ("off", Severity.WARNS)
    with psycopg.connect(lax_url) as db:
        assert db.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'pakka%'").fetchone() == (0,)


@pytest.mark.postgres
def test_a_wrong_password_is_told_without_the_password(lax_url):
    wrong = lax_url.replace(postgres.PASSWORD, "hunter22")
    with pytest.raises(UnavailableError, match="password authentication failed") as caught:
        settings_of(wrong)
    assert "hunter22" not in str(caught.value)


@pytest.fixture
def lax_url(monkeypatch) -> Iterator[str]:
    """A server whose durability can be turned off: its settings are not given on its command line, which would win."""
    monkeypatch.setattr(postgres, "SETTINGS", {"listen_addresses": "127.0.0.1"})
    with postgres.running_server(postgres.need_binaries()) as server:
        yield server.create_database()


def weaken(url: str, statements: list[str]) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


def wait_for(store, setting: str, value: str) -> None:
    """A server takes a new setting into use a moment after it was told."""
    (probe,) = [p for p in store.probes() if p.name == setting]
    give_up = time.monotonic() + 30
    while probe.look().value != value:
        assert time.monotonic() < give_up
        time.sleep(0.01)
