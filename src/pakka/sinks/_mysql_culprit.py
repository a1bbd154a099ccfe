"""Which of many rows a statement fails for: it is sent again for halves of them, in the order in which it took them.

Whatever comes before the row has been carried out by then, as it was when the statement failed, so that the row is the very one.
All of it happens in a transaction that is going to be rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pakka.sinks._mysql_line import DriverError, Line, code_of
from pakka.sinks._mysql_load import OF_A_ROW

_PLACE = "pakka_place"


@dataclass(frozen=True)
class Lineup:
    """Rows of one table, by their running number, in the order of a statement that failed."""

    line: Line
    ranks: str
    """A temporary table for the order."""
    rows: str
    number: str
    """The column of `rows` that numbers them."""

    def find(self, ordered: str, statement: Callable[[str], str]) -> tuple[str, DriverError] | None:
        """The row and what the server says of it; nothing if it takes every row now.

        `ordered` selects the numbers. `statement` is the statement over any rows that are called `n`; so is what comes back.
        """
        last = self._line_up(ordered)
        first = 1
        while first < last:
            middle = (first + last) // 2
            if self._refused(statement(self._part(first, middle))) is None:
                first = middle + 1
            else:
                last = middle
        if first > last:
            return None
        one = self._part(first, first)
        error = self._refused(statement(one))
        return None if error is None else (one, error)

    def _line_up(self, ordered: str) -> int:
        self.line.do(f"DROP TEMPORARY TABLE IF EXISTS {self.ranks}")
        self.line.do(
            f"CREATE TEMPORARY TABLE {self.ranks} ({_PLACE} bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, {self.number} bigint "
            "unsigned NOT NULL) ENGINE=InnoDB"
        )
        return self.line.do(f"INSERT INTO {self.ranks} ({self.number}) {ordered}").rows

    def _part(self, first: int, last: int) -> str:
        return (
            f"(SELECT r.* FROM {self.ranks} AS o JOIN {self.rows} AS r ON r.{self.number} = o.{self.number} "
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
