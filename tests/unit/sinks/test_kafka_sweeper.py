"""Slots that Kafka has ended and forgotten to tell their partitions, by `way: prepared`: each becomes what it was ended as, once."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from kafka.admin import TransactionState

from pakka.errors import UnavailableError
from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Binding
from pakka.model.outcome import Kind
from pakka.sinks import _kafka_wire
from pakka.sinks._kafka_raw import Registry
from pakka.sinks._kafka_sweeper import Sweeper
from pakka.sinks.kafka import KafkaSink
from tests.fixtures.kafka import need_kafka
from tests.unit.sinks.kafka_ruins import Case, Ruin, hanging, refunds, ruined

SAME_ID = 16
"""An attempt that has the transactional id of attempt 0."""
FIRST = Epoch("refunds", 0, Origin("query", 0, "offsets-0", ""))


class Died(Exception):
    pass


def committed(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2))


def aborted(ruin: Ruin) -> None:
    ruin.driver.committer.abort(ruin.driver.prepare(0, refunds(1, 2)))


def in_part(ruin: Ruin) -> None:
    ruin.records = ruin.driver.prepare(0, refunds(1, 2))
    (outcome,) = ruin.driver.committer.commit(FIRST, ruin.records)
    assert outcome.kind is Kind.COMMITTED


def to_two_topics(ruin: Ruin) -> None:
    ruin.driver.deliver(0, refunds(1, 2, to=ruin.topics))


CASES: dict[str, Case] = {
    "data": (committed, "0"),
    "aborted": (aborted, "0"),
    "part": (in_part, "0S"),
    "left": (in_part, "0S"),
    "taken": (in_part, "S"),
    "named": (to_two_topics, "1"),
}
TWINS = ("data", "aborted", "part")


@pytest.fixture(scope="module")
def ruins(tmp_path_factory) -> Iterator[dict[str, Ruin]]:
    need_kafka()
    cases = {**CASES, **{f"careless {name}": CASES[name] for name in TWINS}}
    with ruined(cases, tmp_path_factory, way="prepared") as made:
        yield made


def use_again(ruin: Ruin) -> None:
    """An attempt under the same id, which is aborted."""
    ruin.driver.committer.abort(ruin.driver.prepare(1, refunds(3)))


@pytest.mark.kafka
class TestSweeper:
    def test_rows_that_were_committed_stay_when_the_next_attempt_of_that_id_is_aborted(self, ruins):
        ruin = ruins["data"]
        assert list(hanging(ruin, f"{ruin.id}.0.0")) == [(ruin.topic, 0)]
        assert ruin.ids() == []
        use_again(ruin)
        assert ruin.ids(2) == [1, 2]
        ruin.driver.deliver(2, refunds(4))
        assert ruin.ids(3) == [1, 2, 4]

    def test_a_careless_twin_loses_them(self, ruins):
        ruin = ruins["careless data"]
        use_again(ruin)
        ruin.driver.deliver(2, refunds(4))
        assert ruin.ids(1) == [4]

    def test_rows_that_were_aborted_never_appear(self, ruins):
        ruin = ruins["aborted"]
        assert hanging(ruin, f"{ruin.id}.0.0")
        ruin.driver.commit(0, ruin.driver.prepare(0, refunds(4), attempt=SAME_ID))
        assert ruin.ids(1) == [4]

    def test_a_careless_twin_shows_them(self, ruins):
        ruin = ruins["careless aborted"]
        ruin.driver.commit(0, ruin.driver.prepare(0, refunds(4), attempt=SAME_ID))
        assert ruin.ids(3) == [1, 2, 4]

    def test_an_epoch_is_whole_when_its_slots_were_seen_closed(self, ruins):
        """Nobody writes after it, and nobody starts again."""
        ruin = ruins["part"]
        assert ruin.ids() == []
        assert ruin.driver.committer.enter_epoch(FIRST).kind is Kind.COMMITTED
        assert ruin.ids() == [1, 2]

    def test_a_careless_twin_lets_readers_wait(self, ruins):
        ruin = ruins["careless part"]
        assert ruin.driver.committer.enter_epoch(FIRST).kind is Kind.COMMITTED
        assert ruin.ids() == []

    def test_a_driver_that_died_while_it_mended_a_slot_leaves_a_ledger_that_can_be_read(self, ruins, monkeypatch):
        """It had taken the id of the slot, by which Kafka forgets how it ended. Its note tells."""
        ruin = ruins["taken"]

        def die(*_, **__):
            raise Died

        with monkeypatch.context() as dying:
            dying.setattr(Registry, "end_in", die)
            with pytest.raises(Died):
                ruin.heir()
        with closing(ruin.sink.open_committer(ruin.driver.binding, 3)) as committer:
            assert list(committer.ledger().last.slots) == [0]
        ruin.heir(3)
        assert ruin.ids() == [1, 2]

    def test_a_driver_finds_what_the_last_one_has_left_in_part(self, ruins):
        """Before its fence is raised it knows that the slot is committed, and changes nothing; then readers see it."""
        ruin = ruins["left"]
        with closing(ruin.sink.open_committer(ruin.driver.binding, 2)) as committer:
            assert list(committer.ledger().last.slots) == [0]
        assert ruin.ids() == []
        heir = ruin.heir()
        assert ruin.ids() == [1, 2]
        # The writer of an epoch that runs again only counts what is visible.
        again = heir.prepare(0, refunds(1, 2))
        assert heir.commit(0, again).kind is Kind.COMMITTED
        assert ruin.ids() == [1, 2]

    def test_topics_that_rows_have_named_are_known_to_the_next_driver(self, ruins):
        ruin = ruins["named"]
        assert ruin.ids(0, ruin.topics[1]) == []
        ruin.heir()
        assert ruin.ids(1, ruin.topics[1]) == [2]


class Untold(Registry):
    """Of a user without READ on the topics, in a cluster with these transactions."""

    def __init__(self, binding, sink, **states):
        super().__init__(binding, sink.address)
        self.listed_as = [
            SimpleNamespace(transactional_id=ident, producer_id=number, state=TransactionState(state))
            for number, (ident, state) in enumerate(states.items())
        ]

    def open_in(self, places):
        return dict.fromkeys(places)

    def _open(self):
        return SimpleNamespace(list_transactions=lambda **_: {1: self.listed_as})


@pytest.mark.parametrize("is_ours", [False, True])
def test_only_a_transaction_of_its_own_is_waited_for_until_it_has_ended(is_ours, monkeypatch):
    """Without READ all transactions of the cluster are listed, and in a busy one some are always being ended."""
    monkeypatch.setattr(_kafka_wire, "PATIENCE_S", 0.1)
    sink, binding = KafkaSink("127.0.0.1:1", topic="refunds", way="prepared"), Binding("refunds", "out", "")
    ids = {"pakka.refunds.out.0.0": "CompleteCommit", "pakka.refunds.out.1.0": "Ongoing", "pakka.refunds.out": "Empty"}
    ending = {"pakka.refunds.out.2.0" if is_ours else "invoices": "PrepareCommit"}
    with closing(Untold(binding, sink, **ids, **ending)) as registry:
        slots = sink.open_slots(binding)
        monkeypatch.setattr(slots, "held", lambda cluster, topics: {("refunds", 0): 5})
        sweeper = Sweeper(sink, registry, SimpleNamespace(cluster=None), slots)
        if is_ours:
            with pytest.raises(UnavailableError, match="is being ended"):
                sweeper._unclosed(["refunds"])
        else:
            assert sweeper._unclosed(["refunds"]) == ["pakka.refunds.out.0.0"]
