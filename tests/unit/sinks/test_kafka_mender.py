"""What Kafka has ended and forgotten to tell its partitions: it becomes what it was ended as, once, whatever comes next."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from pakka.errors import SinkError, UnavailableError
from pakka.model.id import Binding
from pakka.sinks import _kafka_ledger, _kafka_mender, _kafka_topic
from pakka.sinks._kafka_note import Note
from pakka.sinks._kafka_raw import Described, Opened, Registry
from pakka.sinks.kafka import KafkaSink
from pakka.sinks.spooled import Token
from tests.fixtures.kafka import need_kafka
from tests.fixtures.onlooker import Onlooker
from tests.unit.sinks.kafka_kit import PATIENCE_S, Driver, packed
from tests.unit.sinks.kafka_ruins import CarelessSink, Case, Ruin, hanging, refunds, ruined


def fail(driver: Driver, epoch: int, number: int) -> None:
    """An epoch that breaks off when its first record has been written, and is aborted."""
    applier = driver.committer.applier

    def broken():
        value = f'{{"id":{number}}}'.encode()
        yield packed(driver.sink.topic, value)
        raise SinkError("the spool is gone")

    with pytest.raises(SinkError, match="the spool is gone"):
        applier.apply(Token("refunds.out", driver.fence, epoch, 2, "", "entry"), broken())


def committed(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2))


def aborted(ruin: Ruin) -> None:
    committed(ruin)
    fail(ruin.driver, 1, 3)


def beside_a_stranger(ruin: Ruin) -> None:
    # Open for as long as the tests of all cases take.
    own = {"transactional.id": f"{ruin.topic}.stranger", "transaction.timeout.ms": 600_000}
    ruin.stranger = Producer({"bootstrap.servers": ruin.sink.servers, **own})
    ruin.stranger.init_transactions(PATIENCE_S)
    ruin.stranger.begin_transaction()
    ruin.stranger.produce(ruin.topic, b'{"id":99}')
    ruin.stranger.flush(PATIENCE_S)
    committed(ruin)


def to_two_topics(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2, to=ruin.topics))


CASES: dict[str, Case] = {
    "data": (committed, "0"),
    "ledger": (committed, "L"),
    "both": (committed, "0L"),
    "aborted": (aborted, "0"),
    "forgotten": (committed, "0"),
    "older": (committed, "0"),
    "noted": (committed, "0"),
    "untold": (committed, "0"),
    "begun": (committed, "0L"),
    "stranger": (beside_a_stranger, "0"),
    "living": (committed, "0"),
    "leaving": (committed, "0"),
    "named": (to_two_topics, "1L"),
}
TWINS = ("data", "ledger", "aborted", "living", "leaving")


@pytest.fixture(scope="module")
def ruins(tmp_path_factory) -> Iterator[dict[str, Ruin]]:
    need_kafka()
    with ruined({**CASES, **{f"careless {n}": CASES[n] for n in TWINS}}, tmp_path_factory) as made:
        yield made


def die_before_the_end(ruin: Ruin, monkeypatch) -> None:
    """A driver that has taken the id, by which the coordinator forgets how the last transaction ended, and no more."""

    def die(self, handle, places, *, is_commit):
        raise UnavailableError("the line is cut")

    with monkeypatch.context() as broken:
        broken.setattr(Registry, "end_in", die)
        with pytest.raises(UnavailableError, match="the line is cut"):
            ruin.heir()
    with closing(Registry("test", ruin.sink.address)) as registry:
        assert registry.described(ruin.id).is_forgotten


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(_kafka_ledger, "ANSWER_S", 3.0)


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

    def test_a_ledger_that_hangs_is_not_taken_for_an_older_one_by_who_compares_it_with_the_state(self, ruins):
        """Before the fence is raised, and nothing may be changed. A reader finds no epoch in it."""
        ruin = ruins["careless ledger"]
        with closing(ruin.sink.open_committer(ruin.driver.binding, 2)) as committer:
            assert committer.applier.book.read().epoch == -1
            assert committer.ledger().last.epoch.number == 0
        assert hanging(ruin)

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
        with closing(Onlooker(ruin.sink.servers)) as onlooker:
            onlooker.await_markers(ruin.sink.ledger)  # of what it has just entered, which is of no interest here
        before = hanging(ruin)
        with pytest.raises(SinkError, match="not known any more"):
            ruin.heir(3)
        assert hanging(ruin) == before

    def test_a_driver_that_died_before_it_could_mend_is_followed_by_one_that_does(self, ruins, monkeypatch):
        ruin = ruins["noted"]
        die_before_the_end(ruin, monkeypatch)
        ruin.heir(3).deliver(1, refunds(3))
        assert ruin.ids(3) == [1, 2, 3]

    def test_a_driver_that_died_before_it_could_mend_what_it_may_not_see_is_followed_by_one_that_does(
        self, ruins, monkeypatch
    ):
        """Without READ on the topic nobody says whose the transaction is that is open in it."""
        ruin = ruins["untold"]
        honest = Registry.open_in

        def open_in(self, places):
            return {place: None if place[0] == ruin.topic else at for place, at in honest(self, places).items()}

        monkeypatch.setattr(Registry, "open_in", open_in)
        die_before_the_end(ruin, monkeypatch)
        fail(ruin.heir(3), 1, 3)
        assert ruin.ids(2) == [1, 2]

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

    def test_a_driver_that_leaves_mends_its_last_transaction(self, ruins, caplog):
        ruin = ruins["leaving"]
        assert ruin.ids() == []
        ruin.driver.committer.close()
        assert ruin.ids() == [1, 2]
        assert "it is told now" in caplog.text

    def test_a_careless_twin_that_leaves_lets_readers_wait(self, ruins):
        ruin = ruins["careless leaving"]
        ruin.driver.committer.close()
        assert ruin.ids() == []

    def test_topics_that_rows_have_named_are_known_to_the_next_driver(self, ruins):
        """Only the page that hangs names the second one."""
        ruin = ruins["named"]
        assert set(hanging(ruin)) == {(ruin.topics[1], 0), (ruin.ledger, 0)}
        heir = ruin.heir()
        assert ruin.ids(1, ruin.topics[1]) == [2]
        assert not hanging(ruin)
        heir.deliver(1, refunds(3, to=ruin.topics[:1]))
        assert ruin.ids(2) == [1, 3]


@pytest.mark.kafka
class TestLook:
    def test_it_has_the_answer_before_it_is_asked_for(self, kafka_server, kafka_topics, tmp_path, monkeypatch):
        monkeypatch.setattr(_kafka_mender, "_MARKERS_S", PATIENCE_S)
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


class TestLeaving:
    def test_that_nobody_answered_to_the_last_look_is_told(self, caplog):
        class Silent:
            def wait(self, patience_s):
                return None

        applier = KafkaSink("127.0.0.1:1", topic="one").open_applier(Binding("refunds", "out", ""))
        applier._look = Silent()
        applier.close()
        assert "was not seen: the brokers did not answer; the next run sees to it" in caplog.text
        caplog.clear()
        applier.close()
        assert not caplog.text


class TestNote:
    NOTE = Note(7, True, (("refunds", 0, 42), ("ledger", 0, 3)), 5)

    def test_a_note_comes_back_as_it_was(self):
        assert Note.from_bytes(self.NOTE.to_bytes()) == self.NOTE

    def test_a_note_of_an_older_pakka_is_read(self):
        assert Note.from_bytes(b'{"v":1,"producer_id":7,"is_commit":true,"places":[]}') == Note(7, True, (), -1)

    def test_a_note_of_a_newer_pakka_is_none(self):
        assert Note.from_bytes(b'{"v":2}') is None

    @pytest.mark.parametrize(
        ("producer", "place", "offset", "is_of"),
        [(7, ("refunds", 0), 42, True), (8, ("refunds", 0), 42, False), (7, ("refunds", 0), 43, False)],
    )
    def test_it_is_of_one_transaction_only(self, producer, place, offset, is_of):
        assert self.NOTE.is_of(described(producer, 9, "Empty"), {place: Opened(offset, 0)}) is is_of

    @pytest.mark.parametrize(
        ("producer", "epoch", "state", "is_of"),
        [(7, 6, "Empty", True), (7, 6, "CompleteAbort", False), (7, 7, "Empty", False), (8, 6, "Empty", False)],
    )
    def test_without_a_place_it_is_of_the_one_before_the_id_was_taken(self, producer, epoch, state, is_of):
        assert self.NOTE.is_of(described(producer, epoch, state), {}) is is_of

    @pytest.mark.parametrize("names", [("refunds", "out"), ("0", "0"), ("1", "2"), ("1.1", "1")])
    def test_each_id_of_a_sink_has_a_note_of_its_own(self, names):
        """Also if its pipeline and its sink are called by numbers, as slots are: `0.0` stands twice in `pakka.0.0.10.0`."""
        sink, binding = KafkaSink("127.0.0.1:1", topic="one", way="sharded"), Binding(*names, "")
        with closing(sink.open_book(binding)) as book, closing(Registry(binding, sink.address)) as registry:
            own = sink.transactional_id(binding)
            slots = [f"{own}.{slot}.{attempt}" for slot in range(13) for attempt in range(13)]
            keys = {ident: sink.open_mender(registry, ident, book)._note_key for ident in [own, *slots]}
        assert len({*keys.values()}) == len(keys)
        # As older releases wrote them.
        name = ".".join(names).encode()
        assert (keys[own], keys[f"{own}.7.3"]) == (name + b".hanging", name + b".7.3.hanging")


def described(producer: int, epoch: int, state: str) -> Described:
    return Described("pakka.refunds.out", producer, state, epoch, 0, frozenset())
