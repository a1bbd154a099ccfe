"""The reader of the loop: what it finds, and that one that cannot go on says so."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.faults.spark.loop import Memory, reading, row_of

pytestmark = [pytest.mark.faults, pytest.mark.core]


class Onlooker:
    def __init__(self, trouble: Exception | None) -> None:
        self.trouble = trouble

    def consumer(self):
        return SimpleNamespace(assign=lambda _: None, close=lambda: None)

    def ends(self, _):
        if self.trouble is not None:
            raise self.trouble
        return {}


def site(trouble: Exception | None = None) -> SimpleNamespace:
    topics = SimpleNamespace(prefix="", name=lambda topic: topic)
    return SimpleNamespace(topics=topics, onlooker=Onlooker(trouble), judge=SimpleNamespace(wanted=lambda _: {}))


def test_a_reader_that_gives_up_is_a_finding():
    with reading(site(ValueError("no JSON"))) as findings:
        pass
    assert findings == ["the reader gave up: ValueError('no JSON')"]


def test_a_reader_that_has_seen_nothing_is_no_witness():
    with pytest.raises(AssertionError, match="nobody has seen a record"), reading(site()):
        pass


def record(batch: int, place: int = 0) -> SimpleNamespace:
    value = json.dumps({"id": 10 * batch + place, "batch": batch}).encode()
    return SimpleNamespace(topic=lambda: "refunds", partition=lambda: place, value=lambda: value)


@pytest.mark.parametrize(
    ("records", "finding"),
    [
        ([record(0), record(1), record(1, 1), record(0, 2)], None),
        ([record(1), record(0)], "refunds: batch 0 came into sight after a later one, in partition 0"),
        ([record(0), record(2), record(1)], "refunds: batch 1 came into sight after a later one, in partition 0"),
        ([record(0), record(0)], "refunds: came into sight again, or from nowhere: ('0', '0')"),
    ],
    ids=["in order", "behind", "between", "twice"],
)
def test_an_epoch_behind_a_later_one_of_its_partition_is_a_finding(records, finding):
    wanted = Counter({row_of("refunds", one.value()) for one in records})
    watched = site()
    watched.judge.wanted = lambda _: wanted.copy()
    findings: list[str] = []
    Memory(watched, findings).look(records)
    assert findings == ([finding] if finding else [])
