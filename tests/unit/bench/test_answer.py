import pytest

from bench.answer import Figure, Goal, Spread


def test_a_ratio_is_taken_within_each_round():
    spread = Spread.ratio([2.0, 30.0, 4.0], [1.0, 10.0, 4.0])
    assert spread == Spread(2.0, 1.0, 3.0)


def test_a_difference_is_taken_within_each_round():
    assert Spread.difference([5.0, 9.0], [4.0, 2.0]) == Spread(4.0, 1.0, 7.0)


@pytest.mark.parametrize(
    ("value", "goal", "verdict"),
    [
        (0.95, Goal(0.95, is_floor=True), "met"),
        (0.94, Goal(0.95, is_floor=True), "**missed**"),
        (1.25, Goal(1.25), "met"),
        (1.26, Goal(1.25), "**missed**"),
        (9.99, None, ""),
    ],
)
def test_a_figure_is_judged_by_its_median(value, goal, verdict):
    figure = Figure("what", Spread(value, 0.0, 100.0), "x", goal)
    assert figure.verdict == verdict


def test_numbers_carry_their_unit():
    figure = Figure("what", Spread.of([1.0]), "rows/s", Goal(1234567.0, is_floor=True))
    assert figure.number(1234567.4) == "1,234,567 rows/s"
    assert figure.goal_words == "at least 1,234,567 rows/s"
    assert Figure("what", Spread.of([1.0]), "x").number(1.5) == "1.50x"
