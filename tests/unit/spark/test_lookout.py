"""Where the source's lookout stands in a run."""

import threading

import pytest

from pakka.errors import BugError, RegressError, UnavailableError
from pakka.model.event import Noticed
from pakka.spark import lookout
from pakka.spark.lookout import Post

ENTRY = b'v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}'


class Lookout:
    """Answers what it is given to answer."""

    def __init__(self) -> None:
        self.asked: list = []
        self.error: Exception | None = None
        self.has_looked = threading.Event()

    def _answer(self, *asked):
        self.asked.append(asked)
        if self.error:
            raise self.error
        return [Noticed("refunds", "topics", "news")]

    def begin(self, offsets, is_new, first=None):
        return self._answer("begin", offsets, is_new, first)

    def position(self, offsets):
        return f"at {offsets}"

    def check(self):
        return self._answer("check")

    def passed(self):
        self.asked.append("passed")

    def look(self, is_last=False):
        self.has_looked.set()
        return self._answer("look", is_last)

    def explain(self, error):
        if self.error:
            raise self.error
        return RegressError("gone") if "LOSS" in str(error) else None

    def close(self):
        self.asked.append("closed")


@pytest.fixture
def events() -> list:
    return []


@pytest.fixture
def keeper(events) -> Post:
    return Post("refunds", Lookout(), events.append)


def test_without_a_lookout_nothing_happens(events):
    post = Post("refunds", None, events.append)
    error = RuntimeError("LOSS")
    post.begin(ENTRY, is_new=False)
    post.check()
    post.passed()
    post.look()
    with post.patrol():
        assert post.explained(error) is error
    post.close()
    assert (post.position(ENTRY), events) == ("", [])


def test_the_source_is_asked_in_its_own_words_and_what_it_notices_is_told(keeper, events):
    keeper.begin(ENTRY, is_new=False)
    keeper.begin(None, is_new=True)
    keeper.begin(None, False, b'\0v1\n{"t":{"0":1}}')
    keeper.check()
    keeper.passed()
    assert keeper.lookout.asked == [
        ("begin", '{"t":{"0":5}}', False, None),
        ("begin", None, True, None),
        ("begin", None, False, '{"t":{"0":1}}'),
        ("check",),
        "passed",
    ]
    assert keeper.position(ENTRY) == 'at {"t":{"0":5}}'
    assert [event.message for event in events] == ["news"] * 4


def test_offsets_in_a_form_that_is_not_known_are_not_guessed_at(keeper):
    for entry in (b"v1\n{}\n", ENTRY + b'\n{"u":{}}', b"v1\n{}\n-"):
        with pytest.raises(BugError, match="in a form that is not known; nothing was written"):
            keeper.position(entry)
    with pytest.raises(BugError, match="in a form that is not known; nothing was written"):
        keeper.begin(None, False, b"\0v2\n")


def test_what_is_refused_before_a_decision_is_raised(keeper):
    keeper.lookout.error = RegressError("made again")
    with pytest.raises(RegressError, match="made again"):
        keeper.check()


def test_a_source_that_cannot_be_seen_is_told_of_once_and_stops_nothing(keeper, events):
    keeper.lookout.error = UnavailableError("no answer")
    keeper.look()
    keeper.look()
    assert [(event.about, event.message) for event in events] == [("unseen", "no answer")]
    keeper.lookout.error = None
    keeper.look()
    keeper.lookout.error = UnavailableError("no answer")
    keeper.look()
    assert [event.about for event in events] == ["unseen", "topics", "unseen"]


def test_an_error_is_explained_if_it_can_be(keeper):
    plain, lost = RuntimeError("other"), RuntimeError("LOSS")
    assert keeper.explained(plain) is plain
    assert isinstance(keeper.explained(lost), RegressError)
    keeper.lookout.error = UnavailableError("no answer")
    assert keeper.explained(lost) is lost
    assert lost.__notes__ == ["the source could not be asked about it: no answer"]


def test_a_patrol_looks_now_and_then_and_ends(keeper, monkeypatch):
    monkeypatch.setattr(lookout, "PATROL_EVERY_S", 0.01)
    with keeper.patrol():
        assert keeper.lookout.has_looked.wait(10)
    keeper.close()
    assert keeper.lookout.asked[-1] == "closed"
