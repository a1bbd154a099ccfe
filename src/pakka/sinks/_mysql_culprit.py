"""Which of many rows a statement fails for.

MariaDB tells its place from 10.7 on. For others the statement is sent again, for some of the rows at a time, in the order in
which it took them, and then for halves of those that it fails for. Whatever comes before the row has been carried out by then,
as it was when the statement failed, so that the row is the very one; and no more than some rows are ever undone. All of it
happens in a transaction that is going to be rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pakka.sinks._mysql_line import DriverError, Line, code_of
from pakka.sinks._mysql_load import OF_A_ROW

_PLACE = "pakka_place"
_ALONE = "pakka_alone"
_SOME = 10_000
"""How many rows are sent at a time. To undo rows takes longer than to do them, and each statement takes a moment of its own."""
_NO_SYNTAX = 1064

Statement = Callable[[str], str]
"""A statement over any rows that are called `n`."""


@dataclass(frozen=True)
class Lineup:
    """Rows of one table, by their running number, in the order of a statement that has just failed."""

    line: Line
    ranks: str
    """A temporary table for the order."""
    rows: str
    number: str
    """The column of `rows` that numbers them."""
    ordered: str
    """Selects the numbers."""

    def find(self, statement: Statement, *, is_ordered: bool) -> tuple[str, DriverError] | None:
        """The row, called `n`, and what the server says of it; nothing if it takes every row now.

        `is_ordered`: the statement itself takes its rows in this order, and no others.
        """
        place = place_told(self.line) if is_ordered else 0
        return (self._alone(place, statement) if place else None) or self._search(statement)

    def _alone(self, place: int, statement: Statement) -> tuple[str, DriverError] | None:
        """The row at this place, if it is refused without the others, too: what is told of a trigger is a place of its own."""
        found = self.line.ask(f"{self.ordered} LIMIT 1 OFFSET {place - 1}")
        if not found:
            return None
        one = f"(SELECT * FROM {self.rows} WHERE {self.number} = {found[0][0]}) AS n"
        self.line.do(f"SAVEPOINT {_ALONE}")
        error = self._refused(statement(one))
        self.line.do(f"ROLLBACK TO SAVEPOINT {_ALONE}")
        return None if error is None else (one, error)

    def _search(self, statement: Statement) -> tuple[str, DriverError] | None:
        count = self._line_up()
        for first in range(1, count + 1, _SOME):
            last = min(first + _SOME - 1, count)
            if self._refused(statement(self._part(first, last))) is not None:
                return self._halve(first, last, statement)
        return None

    def _halve(self, first: int, last: int, statement: Statement) -> tuple[str, DriverError] | None:
        while first < last:
            middle = (first + last) // 2
            if self._refused(statement(self._part(first, middle))) is None:
                first = middle + 1
            else:
                last = middle
        one = self._part(first, first)
        error = self._refused(statement(one))
        return None if error is None else (one, error)

    def _line_up(self) -> int:
        self.line.do(f"DROP TEMPORARY TABLE IF EXISTS {self.ranks}")
        self.line.do(
            f"CREATE TEMPORARY TABLE {self.ranks} ({_PLACE} bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, {self.number} bigint "
            "unsigned NOT NULL) ENGINE=InnoDB"
        )
        return self.line.do(f"INSERT INTO {self.ranks} ({self.number}) {self.ordered}").rows

    def _part(self, first: int, last: int) -> str:
        # The server knows nothing of the sizes of temporary tables, and might read all rows for each part.
        return (
            f"(SELECT r.* FROM {self.ranks} AS o STRAIGHT_JOIN {self.rows} AS r ON r.{self.number} = o.{self.number} "
            f"WHERE o.{_PLACE} BETWEEN {first} AND {last}) AS n"
        )

    def _refused(self, statement: str) -> DriverError | None:
        try:
            self.line.do(statement)
        except DriverError as error:
            if code_of(error) not in OF_A_ROW:
                raise
            return error
        return None


def place_told(line: Line) -> int:
    """At which row, counted from 1, the last statement failed; 0 if the server does not say."""
    try:
        line.do(f"GET DIAGNOSTICS CONDITION 1 @{_PLACE} = ROW_NUMBER")
    except DriverError as error:
        if code_of(error) != _NO_SYNTAX:
            raise
        return 0
    ((place,),) = line.ask(f"SELECT @{_PLACE}")
    return int(place or 0)
