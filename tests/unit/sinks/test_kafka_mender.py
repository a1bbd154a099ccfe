"""What Kafka has ended and forgotten to tell its partitions: it becomes what it was ended as, once, whatever comes next.

A broker that is killed in the right moment forgets the markers of a transaction. Here they are taken out of its files while it is
down, so that what is tested is there for certain. All that has to be in ruins is made before one restart, each on topics of its own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pakka.errors import SinkError, UnavailableError
from pakka.sinks import _kafka_ledger, _kafka_mender, _kafka_produce, _kafka_topic
from pakka.sinks._kafka_applier import KafkaApplier
from pakka.sinks._kafka_mender import Mender, Note
from pakka.sinks._kafka_raw import Opened, Registry
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.spooled import Token
from tests.fixtures.kafka import Kafka, Topics, forget_marker, need_kafka, running_kafka
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, values


class Careless(Mender):
    """The broken twin: believes that what Kafka has ended is ended."""

    def settle(self, topics, timeout_ms, *, is_wide=False):
        return frozenset(topics)

    def is_closed(self, topics, *, is_mended=False):
        return True


@dataclass(frozen=True)
class CarelessSink(KafkaSink):
    """The Kafka sink with the broken twin."""

    def open_applier(self, binding):
        applier = KafkaApplier(self, binding)
        applier.mender = Careless(binding, self.address, applier.id, applier.book)
        return applier


@dataclass
class Ruin:
    """A sink whose last transaction hangs, and the driver that made it."""

    sink: KafkaSink
    topics: list[str]
    place: object
    driver: Driver
    lost: list[tuple[str, int]] = field(default_factory=list)
    stranger: Producer | None = None

    @property
    def topic(self) -> str:
        return self.topics[0]

    @property
    def ledger(self) -> str:
        return self.sink.ledger_topic(self.driver.binding)

    @property
    def id(self) -> str:
        return self.sink.transactional_id(self.driver.binding)

    def heir(self, fence=2) -> Driver:
        return Driver(self.sink, self.place, fence)

    def ids(self, at_least=0, topic=None) -> list[int]:
        return sorted(value["id"] for value in values(self.sink.servers, topic or self.topic, at_least))


def refunds(*ids, **columns):
    return pa.record_batch({"id": list(ids), **columns})


def fail(driver: Driver, epoch: int, number: int) -> None:
    """An epoch that breaks off when its first record has been written, and is aborted."""
    applier = driver.committer.applier

    def broken():
        value = f'{{"id":{number}}}'.encode()
        yield pa.record_batch({"key": pa.nulls(1, pa.large_binary()), "value": pa.array([value], pa.large_binary())})
        raise SinkError("the spool is gone")

    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(_kafka_produce, "_BLOCK_ROWS", 1)
        with pytest.raises(SinkError, match="the spool is gone"):
            applier.apply(Token("refunds.out", driver.fence, epoch, 2, "", "entry"), broken())


def committed(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2))


def aborted(ruin: Ruin) -> None:
    committed(ruin)
    fail(ruin.driver, 1, 3)


def beside_a_stranger(ruin: Ruin) -> None:
    ruin.stranger = Producer({"bootstrap.servers": ruin.sink.servers, "transactional.id": f"{ruin.topic}.stranger"})
    ruin.stranger.init_transactions(PATIENCE_S)
    ruin.stranger.begin_transaction()
    ruin.stranger.produce(ruin.topic, b'{"id":99}')
    ruin.stranger.flush(PATIENCE_S)
    committed(ruin)


def to_two_topics(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2, to=ruin.topics))


CASES: dict[str, tuple[Callable[[Ruin], None], str]] = {
    "data": (committed, "0"),
    "ledger": (committed, "L"),
    "both": (committed, "0L"),
    "aborted": (aborted, "0"),
    "forgotten": (committed, "0"),
    "older": (committed, "0"),
    "noted": (committed, "0"),
    "begun": (committed, "0L"),
    "stranger": (beside_a_stranger, "0"),
    "living": (committed, "0"),
    "second": (to_two_topics, "1L"),
}
"""By name, what was done, and where its marker is missing: in the first or second topic, in the ledger."""
TWINS = ("data", "ledger", "aborted", "living")


def _made(kafka: Kafka, tmp_path_factory) -> dict[str, Ruin]:
    made = {}
    for name, (make, where) in {**CASES, **{f"careless {n}": CASES[n] for n in TWINS}}.items():
        topics = Topics(kafka.bootstrap)
        named = [topics.create(each) for each in ("one", "two")]
        kind = CarelessSink if name.startswith("careless") else KafkaSink
        target = {"topic_column": "to"} if make is to_two_topics else {"topic": named[0]}
        sink = kind(kafka.bootstrap, ledger=f"{topics.prefix}pakka", **target)
        place = tmp_path_factory.mktemp("place")
        ruin = made[name] = Ruin(sink, named, place, Driver(sink, place))
        make(ruin)
        ruin.lost = [({"L": ruin.ledger}.get(at) or named[int(at)], 0) for at in where]
    return made


@pytest.fixture(scope="module")
def ruins(tmp_path_factory) -> Iterator[dict[str, Ruin]]:
    need_kafka()
    with running_kafka() as kafka:
        with pytest.MonkeyPatch.context() as late:
            # Drivers that live on look when they have to, and not while the markers are still there.
            late.setattr(_kafka_mender, "_USUAL_S", 3600)
            made = _made(kafka, tmp_path_factory)
        with closing(Onlooker(kafka.bootstrap)) as onlooker:
            onlooker.await_markers("test-")
        kafka.kill()
        for ruin in made.values():
            for topic, partition in ruin.lost:
                forget_marker(kafka, topic, partition)
        kafka.restart()
        yield made
    _kafka_topic.forget()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(_kafka_ledger, "ANSWER_S", 3.0)


def hanging(ruin: Ruin) -> dict:
    """What is open in the topics of a sink, by its own producer."""
    with closing(Registry("test", ruin.sink.address)) as registry:
        handle = registry.described(ruin.id).handle
        return registry.opened(handle.producer_id, [(topic, 0) for topic in (*ruin.topics, ruin.ledger)])


@pytest.mark.kafka
class TestMender:
    def test_rows_that_were_committed_stay_when_the_next_transaction_is_aborted(self, ruins):
        ruin = ruins["data"]
        assert list(hanging(ruin)) == [(ruin.topic, 0)]
        assert ruin.ids() == []
        heir = ruin.heir()
        assert ruin.ids(2) == [1, 2]
        fail(heir, 1, 3)
        assert ruin.ids(2) == [1, 2]
        heir.deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_a_careless_twin_loses_them(self, ruins):
        ruin = ruins["careless data"]
        heir = ruin.heir()
        fail(heir, 1, 3)
        heir.deliver(1, refunds(3))
        assert ruin.ids(1) == [3]

    def test_a_ledger_that_hangs_is_read_to_its_end(self, ruins):
        ruin = ruins["ledger"]
        assert list(hanging(ruin)) == [(ruin.ledger, 0)]
        heir = ruin.heir()
        assert heir.committer.ledger().last.epoch.number == 0
        heir.deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    @pytest.mark.usefixtures("impatient")
    def test_a_careless_twin_never_starts_again(self, ruins):
        with pytest.raises(UnavailableError, match="can be read to offset"):
            ruins["careless ledger"].heir()

    def test_data_and_ledger_may_hang_both(self, ruins):
        ruin = ruins["both"]
        assert len(hanging(ruin)) == 2
        heir = ruin.heir()
        heir.deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]
        assert not hanging(ruin)

    def test_rows_that_were_aborted_never_appear(self, ruins):
        ruin = ruins["aborted"]
        assert hanging(ruin)
        ruin.heir().deliver(1, refunds(4))
        assert ruin.ids(3) == [1, 2, 4]

    def test_a_careless_twin_shows_them(self, ruins):
        ruin = ruins["careless aborted"]
        ruin.heir().deliver(1, refunds(4))
        assert ruin.ids(3) == [1, 2, 3, 4]

    def test_what_nobody_remembers_is_told_and_left_as_it_is(self, ruins):
        ruin = ruins["forgotten"]
        with closing(Registry("test", ruin.sink.address)) as registry:
            registry.take(ruin.id)  # as somebody who took the id, and died
            before = registry.described(ruin.id), hanging(ruin)
            with pytest.raises(SinkError) as told:
                ruin.heir()
            assert (registry.described(ruin.id), hanging(ruin)) == before
        for word in ("refunds", "out", f"partition 0 of `{ruin.topic}`", "producer ", "not known any more"):
            assert word in told.value.message
        assert "kafka-transactions.sh" in told.value.hint
        assert ruin.ids() == []

    def test_what_is_of_an_older_transaction_is_told_and_left_as_it_is(self, ruins):
        """The coordinator remembers the end of the last one only. A release that did not look has gone on over what hangs."""
        ruin = ruins["older"]
        Driver(CarelessSink(ruin.sink.servers, ledger=ruin.sink.ledger, topic=ruin.topic), ruin.place, 2)
        before = hanging(ruin)
        with pytest.raises(SinkError, match="not known any more"):
            ruin.heir(3)
        assert hanging(ruin) == before

    def test_a_driver_that_died_before_it_could_mend_is_followed_by_one_that_does(self, ruins, monkeypatch):
        ruin = ruins["noted"]

        def die(self, handle, places, *, is_commit):
            raise UnavailableError("the line is cut")

        with monkeypatch.context() as broken:
            broken.setattr(Registry, "end_in", die)
            with pytest.raises(UnavailableError, match="the line is cut"):
                ruin.heir()
        with closing(Registry("test", ruin.sink.address)) as registry:
            assert registry.described(ruin.id).state == "Empty"
        ruin.heir(3).deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_a_driver_that_died_while_it_mended_is_followed_by_one_that_ends_it(self, ruins, monkeypatch):
        """To take the id then would abort what was begun, and lose what it was begun for."""
        ruin = ruins["begun"]

        honest = Registry._send_all

        def begin_only(self, requests):
            answers = honest(self, requests[:1])
            if len(requests) > 1:
                raise SinkError("killed")
            return answers

        with monkeypatch.context() as broken:
            broken.setattr(Registry, "_send_all", begin_only)
            with pytest.raises(SinkError, match="killed"):
                ruin.heir()
        with closing(Registry("test", ruin.sink.address)) as registry:
            assert registry.described(ruin.id).is_open
        ruin.heir(3).deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_a_stranger_s_transaction_is_neither_ended_nor_waited_for(self, ruins):
        ruin = ruins["stranger"]
        assert hanging(ruin)
        began = time.monotonic()
        heir = ruin.heir()
        fail(heir, 1, 3)
        heir.deliver(1, refunds(3))
        assert time.monotonic() - began < PATIENCE_S / 2
        assert ruin.ids() == []
        ruin.stranger.commit_transaction(PATIENCE_S)
        assert ruin.ids(4) == [1, 2, 3, 99]

    def test_a_driver_that_lives_on_mends_before_its_next_transaction(self, ruins):
        ruin = ruins["living"]
        assert hanging(ruin)
        fail(ruin.driver, 1, 3)
        assert ruin.ids(2) == [1, 2]
        ruin.driver.deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_a_careless_twin_that_lives_on_loses_them(self, ruins):
        ruin = ruins["careless living"]
        fail(ruin.driver, 1, 3)
        ruin.driver.deliver(1, refunds(3))
        assert ruin.ids(1) == [3]

    def test_topics_that_rows_have_named_are_known_to_the_next_driver(self, ruins):
        """Only the page that hangs names the second one."""
        ruin = ruins["second"]
        assert set(hanging(ruin)) == {(ruin.topics[1], 0), (ruin.ledger, 0)}
        heir = ruin.heir()
        assert ruin.ids(1, ruin.topics[1]) == [2]
        assert not hanging(ruin)
        heir.deliver(1, refunds(3, to=ruin.topics[:1]))
        assert ruin.ids(2) == [1, 3]


@pytest.mark.kafka
class TestLook:
    def test_it_has_the_answer_before_it_is_asked_for(self, kafka_server, kafka_topics, tmp_path):
        sink = KafkaSink(kafka_server.bootstrap, topic=kafka_topics.create("one"), ledger=f"{kafka_topics.prefix}pakka")
        driver = Driver(sink, tmp_path)
        driver.deliver(0, refunds(1))
        look, session = driver.committer.applier._look, driver.committer.applier._session
        look._thread.join(PATIENCE_S)
        assert look._answer
        driver.deliver(1, refunds(2))
        assert driver.committer.applier._session is session
        _kafka_topic.forget()

    def test_that_there_was_no_answer_is_told_to_who_wants_it(self):
        class Away:
            def is_closed(self, topics):
                raise UnavailableError("nobody is there")

        with pytest.raises(UnavailableError, match="nobody is there"):
            _kafka_mender.Look(Away(), ["one"]).is_closed()


class TestNote:
    NOTE = Note(7, True, (("refunds", 0, 42), ("ledger", 0, 3)))

    def test_a_note_comes_back_as_it_was(self):
        assert Note.from_bytes(self.NOTE.to_bytes()) == self.NOTE

    def test_a_note_of_a_newer_pakka_is_none(self):
        assert Note.from_bytes(b'{"v":2}') is None

    @pytest.mark.parametrize(
        ("producer", "place", "offset", "is_of"),
        [(7, ("refunds", 0), 42, True), (8, ("refunds", 0), 42, False), (7, ("refunds", 0), 43, False)],
    )
    def test_it_is_of_one_transaction_only(self, producer, place, offset, is_of):
        assert self.NOTE.is_of(producer, {place: Opened(offset, 0)}) is is_of
