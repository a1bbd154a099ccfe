"""The sampler: what is in doubt and how far behind, by asking; and what becomes of a look that fails."""

import threading
import uuid
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pytest

from pakka.contract.lag import Lag, Lagging
from pakka.contract.pipeline import Pipeline
from pakka.errors import UnavailableError
from pakka.model.event import Event, Started
from pakka.model.id import Binding
from pakka.observe import catalogue as c
from pakka.observe.figures import SOURCE, STATE, Figures, sink_part
from pakka.observe.sampler import Sampler
from pakka.sinks.memory import MemorySink
from pakka.sinks.postgres import PostgresSink
from pakka.sources.rate import RateSource
from pakka.state import open_store
from pakka.testing.simulated import SimulatedSink, World
from tests.unit.coordinator.stage import Crash, Stage, crash_at

LAG = Lag("settlements", 0, 120, 8, 3.5)


@dataclass(frozen=True)
class LaggingSource(RateSource):
    """Stands for a source that reads a topic. It keeps what it was asked."""

    asked: list[str] = field(default_factory=list, compare=False)
    answer: list[Lag] | Exception = field(default_factory=lambda: [LAG])

    def lags(self, position: str) -> list[Lag]:
        self.asked.append(position)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass(frozen=True)
class HeldSink(MemorySink):
    """Stands for a sink that writes to a topic."""

    def lags(self, binding: Binding) -> list[Lag]:
        return [Lag(f"{binding.pipeline}-{binding.sink}", 1, held=2, open_s=60.0)]


@dataclass(frozen=True)
class ClosedSink(MemorySink):
    """A sink that cannot be reached."""

    def open_committer(self, binding, fence):
        raise UnavailableError(f"{binding}: nobody there")


@pytest.fixture
def state(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


def pipeline(state: str, sinks: dict, source=None) -> Pipeline:
    spool = str(Path(state.removeprefix("sqlite:///")).parent / "spool")
    return Pipeline("refunds", source or RateSource(), sinks, state=state, spool=spool)


def looked(pipeline: Pipeline, *events: Event) -> dict:
    figures = Figures(pipeline.name, pipeline.outputs, lambda: 0.0)
    for event in events:
        figures.take(event)
    Sampler(pipeline, figures).look()
    return {reading.metric: dict(reading.values) for reading in figures.read()}


def left_by_a_crash(stage: Stage, point: str) -> None:
    with crash_at(point), pytest.raises(Crash):
        stage.run(0)


def memory() -> MemorySink:
    return MemorySink(uuid.uuid4().hex)


def test_what_a_crash_left_is_counted_by_sink(state):
    sinks = {"slots": SimulatedSink(World()), "whole": memory()}
    with closing(open_store(state)) as store:
        left_by_a_crash(Stage(sinks, store, slots=3), "decide.before")
    seen = looked(pipeline(state, sinks))
    assert seen[c.IN_DOUBT] == {("slots",): 3, ("whole",): 0}
    assert set(seen[c.IN_DOUBT_S]) == {("slots",), ("whole",)}
    assert sum(seen[c.LOOKS_FAILED].values()) == 0


def test_a_decided_epoch_is_as_old_as_its_decision(state):
    sinks = {"slots": SimulatedSink(World())}
    with closing(open_store(state)) as store:
        left_by_a_crash(Stage(sinks, store), "decide.after")
    seen = looked(pipeline(state, sinks))
    assert seen[c.IN_DOUBT] == {("slots",): 2}
    assert seen[c.IN_DOUBT_S][("slots",)] > 1e9  # the stage's clock stands at 0


def test_without_a_state_store_the_sinks_are_asked_all_the_same(state):
    world = World()
    sinks = {"slots": SimulatedSink(world)}
    left_by_a_crash(Stage(sinks), "decide.before")
    seen = looked(pipeline(state, sinks), Started("refunds", 1, -1, 0, 0))
    assert seen[c.IN_DOUBT] == {("slots",): 2}
    assert seen[c.LOOKS_FAILED][STATE] == 1
    assert not Path(state.removeprefix("sqlite:///")).exists()


def test_a_state_store_that_the_first_run_has_yet_to_make_is_no_failed_look(state):
    seen = looked(pipeline(state, {"plain": memory()}))
    assert (seen[c.IN_DOUBT], seen[c.LOOKS_FAILED][STATE]) == ({("plain",): 0}, 0)


def test_a_state_store_that_cannot_be_read_is_a_failed_look_also_before_the_run_has_started(state):
    Path(state.removeprefix("sqlite:///")).write_text("this is no database " * 100)
    assert looked(pipeline(state, {"plain": memory()}))[c.LOOKS_FAILED][STATE] == 1


def test_a_sink_that_cannot_be_asked_has_no_gauge_and_is_counted(state):
    seen = looked(pipeline(state, {"there": memory(), "gone": ClosedSink(uuid.uuid4().hex)}))
    assert seen[c.IN_DOUBT] == {("there",): 0}
    assert seen[c.LOOKS_FAILED][sink_part("gone")] == 1


def test_source_and_sinks_that_can_tell_are_asked_how_far_behind_they_are(state):
    source = LaggingSource()
    assert isinstance(source, Lagging)
    seen = looked(pipeline(state, {"audit": HeldSink(uuid.uuid4().hex), "plain": memory()}, source))
    at = ("source", "", "settlements", "0")
    assert (seen[c.BEHIND], seen[c.HELD][at], seen[c.OPEN_S][at]) == ({at: 120}, 8, 3.5)
    assert seen[c.HELD]["sink", "audit", "refunds-audit", "1"] == 2
    assert source.asked == [""]


def test_a_source_that_does_not_answer_is_counted(state):
    seen = looked(pipeline(state, {"plain": memory()}, LaggingSource(answer=RuntimeError("no broker"))))
    assert (seen[c.HELD], seen[c.LOOKS_FAILED][SOURCE]) == ({}, 1)


def test_the_lookout_looks_again_until_it_is_stopped(state):
    twice = threading.Semaphore(0)

    class Counting(Sampler):
        def look(self) -> None:
            twice.release()

    sampler = Counting(pipeline(state, {"plain": memory()}), None, every_s=0.01)
    sampler.start()
    assert twice.acquire(timeout=30)
    assert twice.acquire(timeout=30)
    sampler.stop()
    sampler.join(timeout=30)
    assert not sampler.is_alive()


@pytest.mark.postgres
def test_transactions_that_are_prepared_on_a_real_server_are_counted_with_their_age(state, postgres_url):
    sinks = {"refunds": PostgresSink(postgres_url, "refunds").choose()}
    with closing(open_store(state)) as store:
        left_by_a_crash(Stage(sinks, store, slots=3), "decide.before")
        seen = looked(pipeline(state, sinks))
        assert seen[c.IN_DOUBT] == {("refunds",): 3}
        assert 0 < seen[c.IN_DOUBT_S][("refunds",)] <= age_of_the_oldest(postgres_url)
        Stage(sinks, store, slots=3).run(0)
    seen = looked(pipeline(state, sinks))
    assert (seen[c.IN_DOUBT], seen[c.IN_DOUBT_S]) == ({("refunds",): 0}, {("refunds",): 0})


def age_of_the_oldest(url: str) -> float:
    with psycopg.connect(url) as db:
        oldest = "SELECT extract(epoch FROM max(clock_timestamp() - prepared)) FROM pg_prepared_xacts WHERE database = current_database()"
        return float(db.execute(oldest).fetchone()[0])


@pytest.mark.postgres
def test_a_server_that_cannot_be_reached_takes_its_gauge_away(state, postgres_url):
    sink = PostgresSink(postgres_url, "refunds")
    host = postgres_url.partition("?")[0].rpartition("/")[0]
    seen = looked(pipeline(state, {"refunds": replace(sink, url=f"{host}/no_such_database")}))
    assert seen[c.IN_DOUBT] == {}
    assert seen[c.LOOKS_FAILED][sink_part("refunds")] == 1
