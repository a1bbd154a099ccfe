"""The staging area: one rename takes everything from the older driver, whatever it was about to do."""

import json
import multiprocessing
import os

import pytest

from pakka.errors import FencedError, SinkError
from pakka.model.id import Binding, Slot
from pakka.sinks._staging import Staging, make_below, refusal, write_durably

BINDING = Binding("refunds", "out", "spool")
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "deep" / ".out.pakka"


def staging(root, fence, binding=BINDING):
    area = Staging(root, binding, fence)
    area.raise_fence()
    return area


def slot(fence=1, number=0, attempt=0, epoch=0):
    return Slot("refunds", "out", epoch, fence, number, attempt)


def test_the_fence_is_the_only_directory(root):
    staging(root, 3)
    staging(root, 8)
    assert sorted(os.listdir(root)) == ["fence-8", "owner.json"]


def test_a_fence_may_be_raised_twice_by_its_driver(root):
    area = staging(root, 3)
    area.begin(slot(3))
    area.raise_fence()
    assert area.slots() == [slot(3)]


def test_what_was_staged_is_still_there_under_the_new_fence(root):
    old = staging(root, 1)
    (old.begin(slot()) / "rows").write_text("7")
    old.finish(slot())
    new = staging(root, 2)
    assert new.slots() == [slot()]
    assert (new.attempt(slot()) / "rows").read_text() == "7"


def test_nothing_is_seen_before_the_first_fence(root):
    area = Staging(root, BINDING, 1)
    assert (area.seen(), area.slots()) == (0, [])
    assert not root.exists()


@pytest.mark.parametrize("step", ["begin", "finish", "remove", "raise_fence", "check"])
def test_an_older_fence_is_refused_at_every_step(root, step):
    old = staging(root, 1)
    if step in ("finish", "remove"):
        old.begin(slot())
    new = staging(root, 2)
    before = sorted(new.slots(), key=str)
    with pytest.raises(FencedError, match="fence 1 lost to fence 2"):
        getattr(old, step)(*([slot()] if step in ("begin", "finish", "remove") else []))
    assert sorted(new.slots(), key=str) == before
    assert new.seen() == 2


def test_directories_of_the_older_fence_are_never_made_again(root):
    old = staging(root, 1)
    place = old.begin(slot())
    staging(root, 2)
    with pytest.raises(FileNotFoundError):
        make_below(place, "day=1/hour=2")
    assert sorted(os.listdir(root)) == ["fence-2", "owner.json"]


def test_a_fence_that_does_not_stand_is_told_from_one_that_lost(root):
    with pytest.raises(SinkError, match=r"fence 4 does not stand in .* at fence 0") as caught:
        Staging(root, BINDING, 4).begin(slot(4))
    assert "every executor" in caught.value.hint


def test_an_attempt_is_begun_once(root):
    area = staging(root, 1)
    (area.begin(slot()) / "rows").write_text("7")
    with pytest.raises(SinkError, match="was begun before"):
        area.begin(slot())
    assert (area.attempt(slot()) / "rows").read_text() == "7"


def test_an_attempt_vanishes_and_may_vanish_again(root):
    area = staging(root, 1)
    (make_below(area.begin(slot()), "a=1/b=2") / "rows").write_text("7")
    area.remove(slot())
    area.remove(slot())
    assert area.slots() == []


@pytest.mark.parametrize("other", [Binding("orders", "out", ""), Binding("refunds", "audit", "")])
def test_the_first_to_come_owns_the_place(root, other):
    staging(root, 1)
    with pytest.raises(SinkError, match=r"belongs to sink `refunds\.out`; nothing was written"):
        staging(root, 2, other)
    assert Staging(root, BINDING, 1).seen() == 1


def test_what_a_killed_claim_left_is_tidied(root):
    staging(root, 1)
    (root / "owner.json.1234").write_text("{")
    (root / "fence-0").mkdir()
    staging(root, 2)
    assert sorted(os.listdir(root)) == ["fence-2", "owner.json"]


def test_a_second_directory_with_files_is_not_deleted(root):
    staging(root, 5)
    (root / "fence-3").mkdir()
    (root / "fence-3" / "rows").write_text("7")
    with pytest.raises(OSError, match="not empty"):
        staging(root, 6)
    assert (root / "fence-3" / "rows").exists()


def test_a_driver_overtaken_at_the_very_first_start_takes_in_what_the_other_staged(root):
    slow = Staging(root, BINDING, 8)
    look, looks = slow._fences, []

    def overtaken():
        looks.append(look())
        if len(looks) == 1:
            staging(root, 7).begin(slot(7))
        return looks[-1]

    slow._fences = overtaken
    slow.raise_fence()
    assert looks[0] == []
    assert slow.slots() == [slot(7)]
    assert sorted(os.listdir(root)) == ["fence-8", "owner.json"]


def race(run, runners):
    """Call `run` for each runner in a process of its own, all let go at once. What each returned, or its error's name."""
    barrier, answers = FORK.Barrier(len(runners)), FORK.Queue()

    def child(runner):
        barrier.wait()
        try:
            answers.put((runner, run(runner)))
        except Exception as error:
            answers.put((runner, type(error).__name__))

    children = [FORK.Process(target=child, args=(runner,)) for runner in runners]
    for process in children:
        process.start()
    got = dict(answers.get(timeout=60) for _ in children)
    for process in children:
        process.join()
    return got


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("has_past", [False, True])
def test_of_drivers_that_race_the_newest_alone_ends_owning(root, turn, has_past):
    if has_past:
        staging(root, 1).begin(slot(1, number=9))

    def begin(fence):
        staging(root, fence).begin(slot(fence))
        return "began"

    got = race(begin, [5, 6, 7, 8])
    assert got[8] == "began"
    assert set(got.values()) <= {"began", "FencedError"}
    newest = Staging(root, BINDING, 8)
    assert newest.seen() == 8
    # What an older one began before it lost is in the newest one's hands, and nothing is anywhere else.
    began = {slot(fence) for fence, answer in got.items() if answer == "began"}
    assert set(newest.slots()) == began | ({slot(1, number=9)} if has_past else set())
    for fence in (5, 6, 7):
        with pytest.raises(FencedError):
            Staging(root, BINDING, fence).begin(slot(fence, number=1))


@pytest.mark.parametrize("turn", range(4))
def test_of_pipelines_that_race_for_a_place_one_owns_it(root, turn):
    def claim(pipeline):
        staging(root, 1, Binding(pipeline, "out", ""))
        return "owns"

    got = race(claim, ["refunds", "orders", "invoices"])
    assert sorted(got.values()) == ["SinkError", "SinkError", "owns"]
    owner = json.loads((root / "owner.json").read_text())["pipeline"]
    assert got[owner] == "owns"


def test_a_small_file_is_whole_or_old(tmp_path):
    path = tmp_path / "a.json"
    write_durably(path, b"1")
    write_durably(path, b"22")
    assert path.read_bytes() == b"22"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("code", "hint"),
    [("ENOSPC", "make room"), ("EROFS", "write there"), ("EMFILE", "ulimit"), ("EIO", "mend the file system")],
)
def test_what_the_system_refused_says_what_to_do(code, hint):
    import errno

    number = getattr(errno, code)
    error = refusal("sink `refunds.out`", "nothing was written", "out/refunds", OSError(number, "whatever"))
    assert error.message == f"sink `refunds.out`: out/refunds: {os.strerror(number)}; nothing was written"
    assert hint in error.hint
