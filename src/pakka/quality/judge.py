"""The judge: all rules as one number a row, so that Spark computes it in one pass and the task splits by it."""

from __future__ import annotations

from dataclasses import dataclass

from pakka.errors import ConfigError
from pakka.model.rule import OnFail, Rule, quoted

RULES_MAX = 62
_MALFORMED_BIT = 1 << RULES_MAX
MALFORMED = "malformed"
"""The rule that a record breaks which the source could not parse."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Bit i of a row's mask is set if it breaks rule i; 0 is a good row."""

    rules: tuple[Rule, ...] = ()
    raw_column: str | None = None
    """The column with a malformed record's raw text; null for records that could be parsed."""
    on_corrupt: OnFail = OnFail.FAIL

    def __post_init__(self) -> None:
        if len(self.rules) > RULES_MAX:
            raise ConfigError(
                f"{len(self.rules)} quality rules, and {RULES_MAX} are the most", hint="join some in `expr`"
            )

    @property
    def is_idle(self) -> bool:
        """Nothing to judge: every row is good."""
        return not self.rules and self.raw_column is None

    @property
    def mask(self) -> str:
        """The mask as Spark SQL. A condition that is null is not known to hold, so it counts as broken."""
        bits = " + ".join(f"IF(coalesce(({r.condition}), false), 0L, {1 << i}L)" for i, r in enumerate(self.rules))
        if self.raw_column is None:
            return bits or "0L"
        # A malformed record has no values to judge.
        return f"IF({quoted(self.raw_column)} IS NULL, {bits or '0L'}, {_MALFORMED_BIT}L)"

    def bits(self, on_fail: OnFail) -> int:
        """The mask of all rules with that consequence."""
        bits = sum(1 << i for i, r in enumerate(self.rules) if r.on_fail is on_fail)
        if self.raw_column is not None and self.on_corrupt is on_fail:
            bits |= _MALFORMED_BIT
        return bits

    def words(self, mask: int) -> list[str]:
        """The rules that a mask says are broken."""
        broken = [r.words for i, r in enumerate(self.rules) if mask & (1 << i)]
        return [MALFORMED, *broken] if mask & _MALFORMED_BIT else broken
