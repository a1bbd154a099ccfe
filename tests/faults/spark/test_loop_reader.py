"""The reader of the loop: one that cannot go on says so."""

from types import SimpleNamespace

import pytest

from tests.faults.spark.loop import reading

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
