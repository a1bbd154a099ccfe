import pytest

from bench import curve
from bench.answer import Answer, Figure, Spread
from bench.questions.kafka_produce import transaction_of
from bench.questions.kafka_protocol import in_spark

MACHINE = {"date": "2026-01-31", "processor": "Abacus, 2 cores"}
WHOLE = Figure(f"{in_spark(1_000)}, pakka", Spread(200.0, 100.0, 400.0), "ms")
EPOCHS = Answer("kafka-protocol", "full", (WHOLE, Figure(in_spark(1_000), Spread.of([1.5]), "x")), load=(0.5, 1.5))
ALONE = Figure(transaction_of(1_000), Spread(12.0, 10.0, 20.0), "ms")
TRANSACTIONS = Answer("kafka-produce", "full", (ALONE, Figure(transaction_of(100), Spread.of([9.0]), "ms")))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "guide.md"
    path.write_text(curve.PAGE.read_text())
    return path


def test_a_line_of_epochs_has_the_time_and_the_rate(path):
    curve.write(path, EPOCHS, MACHINE)
    rate = "5,000 rows/s (2,500 rows/s .. 10,000 rows/s)"
    assert f"\n| 1,000 | 200.0 ms (100.0 ms .. 400.0 ms) | {rate} |\n\ndate" in path.read_text()


def test_a_line_of_transactions_has_the_time(path):
    curve.write(path, TRANSACTIONS, MACHINE)
    assert "\n| 100 | 9.0 ms |\n| 1,000 | 12.0 ms (10.0 ms .. 20.0 ms) |\n\ndate" in path.read_text()


def test_the_curve_says_on_what_and_how_busy_it_was(path):
    curve.write(path, EPOCHS, MACHINE)
    assert "date 2026-01-31; processor Abacus, 2 cores. Load 0.5 before, 1.5 after." in path.read_text()


@pytest.mark.parametrize("answer", [EPOCHS, TRANSACTIONS], ids=lambda answer: answer.question)
def test_the_guide_has_a_place_for_each_part_and_keeps_its_words(path, answer):
    before = path.read_text()
    curve.write(path, answer, MACHINE)
    assert path.read_text() != before
    assert path.read_text().partition("<!--")[0] == before.partition("<!--")[0]
    assert path.read_text().rpartition("-->")[2] == before.rpartition("-->")[2]


@pytest.mark.parametrize(
    "answer", [Answer("slots", "full", ()), Answer("kafka-protocol", "small", (WHOLE,))], ids=["question", "size"]
)
def test_what_is_no_part_of_the_curve_changes_nothing(path, answer):
    before = path.read_text()
    curve.write(path, answer, MACHINE)
    assert path.read_text() == before
