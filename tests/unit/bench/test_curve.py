import pytest

from bench import curve
from bench.answer import Answer, Figure, Spread
from bench.questions.kafka_produce import transaction_of
from bench.questions.kafka_protocol import in_spark

MACHINE = {"date": "2026-01-31", "processor": "Abacus, 2 cores"}
ALONE = Figure(transaction_of(1_000), Spread(12.0, 10.0, 20.0), "ms")
WHOLE = Figure(f"{in_spark(1_000)}, pakka", Spread(200.0, 100.0, 400.0), "ms")
ANSWERS = [
    Answer("kafka-protocol", "small", (WHOLE, Figure(in_spark(1_000), Spread.of([1.5]), "x")), load=(0.5, 1.5)),
    Answer("kafka-produce", "small", (ALONE, Figure(transaction_of(100), Spread.of([9.0]), "ms")), load=(1.0, 2.0)),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "guide.md"
    path.write_text(curve.PAGE.read_text())
    return path


def test_a_line_has_the_transaction_the_epoch_and_the_rate(path):
    curve.write(path, "small", ANSWERS, MACHINE)
    epoch = "200.0 ms (100.0 ms .. 400.0 ms) | 5,000 rows/s (2,500 rows/s .. 10,000 rows/s)"
    assert f"| 1,000 | 12.0 ms (10.0 ms .. 20.0 ms) | {epoch} |" in path.read_text()


def test_what_was_not_measured_is_left_empty(path):
    curve.write(path, "small", ANSWERS, MACHINE)
    assert "| 100 | 9.0 ms |  |  |" in path.read_text()


def test_the_curve_says_on_what_and_how_busy_it_was(path):
    curve.write(path, "small", ANSWERS, MACHINE)
    assert "date 2026-01-31; processor Abacus, 2 cores. Load 0.5 to 2.0." in path.read_text()


@pytest.mark.parametrize("size", ["small", "full"])
def test_the_guide_has_a_place_for_each_size_and_keeps_its_words(path, size):
    before = path.read_text()
    curve.write(path, size, ANSWERS, MACHINE)
    assert path.read_text().partition("<!--")[0] == before.partition("<!--")[0]
    assert path.read_text().rpartition("-->")[2] == before.rpartition("-->")[2]
