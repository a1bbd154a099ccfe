import pytest

from bench import machine, page
from bench.__main__ import QUESTIONS
from bench.answer import Answer, Figure, Goal, Spread

MACHINE = {"date": "2026-01-31", "processor": "Abacus, 2 cores"}
MISSED = Figure("rows/s against Spark", Spread(0.5, 0.4, 0.6), "x", Goal(0.95, is_floor=True))
PLAIN = Figure("pakka", Spread.of([1000.0]), "rows/s")
ANSWER = Answer("parquet", "small", (MISSED, PLAIN), ("as it is",), 5, 61.2, (0.2, 1.4))
OTHER = Answer("slots", "full", (Figure("decide", Spread.of([0.2]), "s", Goal(5.0)),))
EMPTY = (
    "# Page\n\nby hand\n\n<!-- bench goals: begin -->\n<!-- bench goals: end -->\n\n<!-- bench parquet small: begin -->\n<!-- bench parquet small: end -->\n\n"
    "<!-- bench slots full: begin -->\n<!-- bench slots full: end -->\nend\n"
)
_MISSED = "| rows/s against Spark | 0.50x | 0.40x .. 0.60x | at least 0.95x | **missed** |"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "performance.md"
    path.write_text(EMPTY)
    return path


def test_a_missed_goal_stays_in_the_table(path):
    page.write(path, ANSWER, MACHINE)
    assert f"\n{_MISSED}\n" in path.read_text()


def test_the_goals_of_all_questions_stand_together(path):
    page.write(path, OTHER, MACHINE)
    page.write(path, ANSWER, MACHINE)
    both = f"| parquet | small {_MISSED}\n| slots | full | decide | 0.20 s |  | at most 5.00 s | met |\n<!-- bench goals: end -->"
    assert both in path.read_text()


def test_the_page_says_on_what_and_when(path):
    page.write(path, ANSWER, MACHINE)
    text = path.read_text()
    where = "date 2026-01-31; processor Abacus, 2 cores."
    assert f"**Size small:** {where} 5 rounds, 61 s, load 0.2 before, 1.4 after." in text
    assert "| pakka | 1,000 rows/s |  |" in text
    assert "- as it is" in text


def test_writing_again_replaces_only_its_own_block(path):
    page.write(path, OTHER, MACHINE)
    page.write(path, ANSWER, MACHINE)
    first = path.read_text()
    page.write(path, ANSWER, MACHINE)
    assert path.read_text() == first
    assert first.startswith("# Page\n\nby hand\n")
    assert first.endswith(f"{page.render(OTHER, MACHINE)}<!-- bench slots full: end -->\nend\n")


def test_a_backslash_in_a_note_is_written_as_it_is(path):
    page.write(path, Answer("parquet", "small", (PLAIN,), (r"a \1 \g<0> b",)), MACHINE)
    assert r"a \1 \g<0> b" in path.read_text()


def test_a_page_without_a_place_is_refused_and_left_alone(path):
    with pytest.raises(ValueError, match="one place for `parquet tiny`"):
        page.write(path, Answer("parquet", "tiny", (PLAIN,)), MACHINE)
    assert path.read_text() == EMPTY


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("size", ["small", "full"])
def test_the_real_page_has_a_place_for_each_question_and_size(tmp_path, question, size):
    copy = tmp_path / "performance.md"
    copy.write_text(page.PAGE.read_text())
    page.write(copy, Answer(question, size, (MISSED,)), MACHINE)
    assert f"| {question} | {size} {_MISSED}" in copy.read_text()


def test_the_machine_is_described_in_full():
    said = machine.describe()
    assert all(said.values())
    assert "cores" in said["processor"]
