"""Does the owner of a fence still run? Told for a person's eyes; nothing of the protocol rests on it."""

import os
import socket
import subprocess
import sys
import time

import pytest

from pakka.cli.alive import is_alive
from pakka.contract.state import Owner

HERE = socket.gethostname()


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_of_this_machine_that_is_there_runs(child):
    assert is_alive(Owner(HERE, child.pid, time.time())) is True


def test_one_that_has_ended_does_not(child):
    child.kill()
    child.wait()
    assert is_alive(Owner(HERE, child.pid, time.time())) is False


def test_one_that_was_killed_and_not_yet_buried_does_not(child):
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(Owner(HERE, child.pid, time.time())) is False


def test_one_that_is_younger_than_the_fence_only_has_its_number(child):
    assert is_alive(Owner(HERE, child.pid, time.time() - 3600)) is False


@pytest.mark.parametrize("owner", [Owner("elsewhere.example", 1, 0.0), Owner(HERE, 0, 0.0), Owner(HERE, -1, 0.0)])
def test_of_another_machine_nothing_is_known(owner):
    assert is_alive(owner) is None


def test_a_process_of_another_user_is_there_all_the_same(monkeypatch, child):
    def refuse(*_):
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr("pakka.cli.alive.os.kill", refuse)
        assert is_alive(Owner(HERE, child.pid, time.time())) is True
