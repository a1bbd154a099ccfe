import pytest

from bench import machine, page
from bench.__main__ import GROUPS
from bench.answer import Answer, Figure, Goal, Spread

MACHINE = {"date": "2026-01-31", "processor": "Abacus, 2 cores"}
MISSED = Figure("rows/s against Spark", Spread(0.5, 0.4, 0.6), "x", Goal(0.95, is_floor=True))
PLAIN = Figure("pakka", Spread.of([1000.0]), "rows/s")
ANSWER = Answer("parquet", "small", (MISSED, PLAIN), ("as it is",), 5, 61.2, (0.2, 1.4))
EMPTY = "# Page\n\nby hand\n\n<!-- bench core small: begin -->\n<!-- bench core small: end -->\n\n<!-- bench core full: begin -->\nfull\n<!-- bench core full: end -->\nend\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "performance.md"
    path.write_text(EMPTY)
    return path


def test_a_missed_goal_stays_in_the_table(path):
    page.write(path, "core", "small", [ANSWER], MACHINE)
    assert (
        "| parquet | rows/s against Spark | 0.50x | 0.40x .. 0.60x | at least 0.95x | **missed** |" in path.read_text()
    )


def test_the_page_says_on_what_and_when(path):
    page.write(path, "core", "small", [ANSWER], MACHINE)
    text = path.read_text()
    assert "date 2026-01-31; processor Abacus, 2 cores." in text
    assert "**parquet** (5 rounds, 61 s, load 0.2 before, 1.4 after)" in text
    assert "| pakka | 1,000 rows/s |  |" in text
    assert "- as it is" in text


def test_writing_again_replaces_only_its_own_block(path):
    page.write(path, "core", "small", [ANSWER], MACHINE)
    first = path.read_text()
    page.write(path, "core", "small", [ANSWER], MACHINE)
    assert path.read_text() == first
    assert first.startswith("# Page\n\nby hand\n")
    assert first.endswith("<!-- bench core full: begin -->\nfull\n<!-- bench core full: end -->\nend\n")


def test_a_backslash_in_a_note_is_written_as_it_is(path):
    page.write(path, "core", "small", [Answer("q", "small", (PLAIN,), (r"a \1 \g<0> b",))], MACHINE)
    assert r"a \1 \g<0> b" in path.read_text()


def test_a_page_without_a_place_is_refused_and_left_alone(path):
    with pytest.raises(ValueError, match="one place for `core` at size `tiny`"):
        page.write(path, "core", "tiny", [ANSWER], MACHINE)
    assert path.read_text() == EMPTY


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("size", ["small", "full"])
def test_the_real_page_has_a_place_for_each_group_and_size(tmp_path, group, size):
    copy = tmp_path / "performance.md"
    copy.write_text(page.PAGE.read_text())
    page.write(copy, group, size, [ANSWER], MACHINE)
    assert "rows/s against Spark" in copy.read_text()


def test_the_machine_is_described_in_full():
    said = machine.describe()
    assert all(said.values())
    assert "cores" in said["processor"]
