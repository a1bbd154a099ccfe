"""Quality rules: what must hold of a row, as Spark SQL, and what happens to a row that breaks it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from pakka.errors import ConfigError
from pakka.model.id import nearest


class OnFail(Enum):
    """What becomes of a row that breaks a rule. The strictest of the broken rules decides."""

    DROP = "drop"
    DEAD_LETTER = "dead_letter"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition in Spark SQL, the words it goes by in dead letters and errors, and the columns it names."""

    words: str
    condition: str
    on_fail: OnFail = OnFail.DEAD_LETTER
    columns: tuple[str, ...] = ()

    @classmethod
    def not_null(cls, column: str, on_fail: OnFail = OnFail.DEAD_LETTER) -> Rule:
        return cls(f"not_null({column})", f"{quoted(column)} IS NOT NULL", on_fail, (column,))

    @classmethod
    def range(
        cls,
        column: str,
        min: float | str | None = None,
        max: float | str | None = None,
        on_fail: OnFail = OnFail.DEAD_LETTER,
    ) -> Rule:
        """Both ends are inclusive; null passes, as `not_null` is the rule for that."""
        name = quoted(column)
        bounds = [f"{name} >= {literal(min)}"] if min is not None else []
        bounds += [f"{name} <= {literal(max)}"] if max is not None else []
        if not bounds:
            raise ConfigError(f"rule range({column}) has neither min nor max", hint="give at least one of them")
        ends = f"{'' if min is None else min}..{'' if max is None else max}"
        return cls(f"range({column}, {ends})", f"{name} IS NULL OR ({' AND '.join(bounds)})", on_fail, (column,))

    @classmethod
    def regex(cls, column: str, pattern: str, on_fail: OnFail = OnFail.DEAD_LETTER) -> Rule:
        """The pattern, a Java regular expression, must be found in the value; anchor it with ^ and $ for all of it."""
        name = quoted(column)
        return cls(
            f"regex({column}, {pattern})", f"{name} IS NULL OR {name} RLIKE {literal(pattern)}", on_fail, (column,)
        )

    @classmethod
    def one_of(cls, column: str, values: Collection[str | float | bool], on_fail: OnFail = OnFail.DEAD_LETTER) -> Rule:
        if not values:
            raise ConfigError(f"rule one_of({column}) has no values", hint="list what is allowed")
        name, listed = quoted(column), ", ".join(literal(v) for v in values)
        shown = ", ".join(str(v) for v in values)
        return cls(f"one_of({column}, {shown})", f"{name} IS NULL OR {name} IN ({listed})", on_fail, (column,))

    @classmethod
    def unique(cls, *columns: str, on_fail: OnFail = OnFail.DEAD_LETTER) -> Rule:
        """Within the epoch. All rows that share a key break it: which of them is right is not ours to guess."""
        keys = ", ".join(quoted(c) for c in columns)
        nulls = " OR ".join(f"{quoted(c)} IS NULL" for c in columns)
        condition = f"{nulls} OR count(1) OVER (PARTITION BY {keys}) = 1"
        return cls(f"unique({', '.join(columns)})", condition, on_fail, columns)

    @classmethod
    def expr(cls, condition: str, on_fail: OnFail = OnFail.DEAD_LETTER) -> Rule:
        """Any Spark SQL condition. A null answer counts as broken: it is not known to hold."""
        return cls(f"expr({condition})", condition, on_fail)

    def check_columns(self, known: Collection[str]) -> None:
        """Refuse a column that the rows do not have, naming the nearest one that they do."""
        for column in self.columns:
            if column not in known and column.split(".")[0] not in known:
                raise ConfigError(f"rule {self.words}: there is no column `{column}`", hint=nearest(column, known))


def quoted(column: str) -> str:
    """A column name, or a dotted path into a struct, as a Spark SQL identifier."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in column.split("."))


def literal(value: object) -> str:
    """A value as a Spark SQL literal. Raw strings are not used: Spark unescapes backslashes in plain ones."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
