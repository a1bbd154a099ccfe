"""Work of a commit is done by Spark's workers, in order, and what is said there is heard here."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from pakka.model.id import Binding
from pakka.notice import heard, notice
from pakka.spark.spread import over

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Piece:
    number: int

    def __call__(self):
        notice(Binding("refunds", "out", ""), "mended", "it is told now")
        return self.number, os.getpid()


@dataclass(frozen=True)
class Dying(Piece):
    """Kills its worker the first time."""

    mark: str

    def __call__(self):
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), 9)
        return super().__call__()


def test_pieces_are_done_elsewhere_and_answered_in_order(spark):
    said = []
    with heard("refunds", said.append):
        answers = over(spark)([Piece(number) for number in range(5)])
    assert [number for number, _ in answers] == list(range(5))
    assert os.getpid() not in {pid for _, pid in answers}
    # Once, whoever said it.
    assert [(each.about, each.sink) for each in said] == [("mended", "out")]


def test_a_piece_whose_worker_dies_is_done_again(spark, tmp_path):
    answers = over(spark)([Piece(0), Dying(1, str(tmp_path / "mark"))])
    assert [number for number, _ in answers] == [0, 1]
    assert (tmp_path / "mark").exists()
