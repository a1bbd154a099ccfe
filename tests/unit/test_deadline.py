"""The limit on how long an answer may take: it strikes once, in time, and never at what comes next."""

import os
import threading
import time

import pytest

from pakka import postgres_line
from pakka.postgres_line import Deadline

WAIT_S = 30


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(postgres_line, "ANSWER_S", 0.05)


def test_what_takes_too_long_is_struck():
    struck = threading.Event()
    with Deadline(struck.set) as deadline:
        assert struck.wait(WAIT_S)
    assert deadline.is_over


def test_what_ends_in_time_is_never_struck():
    strikes = []
    with Deadline(lambda: strikes.append("early"), times=20) as early:
        pass
    struck = threading.Event()
    with Deadline(struck.set, times=21):
        assert struck.wait(WAIT_S)
    assert strikes == []
    assert not early.is_over


def test_a_short_deadline_does_not_wait_for_a_longer_one():
    struck = threading.Event()
    with Deadline(lambda: None, times=10_000) as longer:
        time.sleep(0.1)  # the watch looks at the longer one, and rests
        with Deadline(struck.set):
            assert struck.wait(WAIT_S)
        assert not longer.is_over


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_strike_that_fails_ends_no_other_deadline():
    def fail() -> None:
        raise OSError("the line is gone")

    struck = threading.Event()
    with Deadline(fail) as failed, Deadline(struck.set, times=2):
        assert struck.wait(WAIT_S)
    assert failed.is_over


def test_a_forked_process_has_a_watch_of_its_own():
    with Deadline():
        pass
    child = os.fork()
    if child == 0:
        struck = threading.Event()
        with Deadline(struck.set):
            os._exit(0 if struck.wait(WAIT_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
