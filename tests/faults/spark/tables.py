"""A pipeline of Spark into the tables of a SQL server: refunds the prepared way, their audit by upsert, dead letters beside them."""

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.judge import Values
from tests.faults.spark.judge import SparkJudge, letters
from tests.faults.spark.site import Site
from tests.faults.sql.ground import Ground

_SPOOLED = "audit"
_COLUMNS = {
    "refunds": ("id", "batch", "refund_id", "merchant", "amount"),
    "audit": ("refund_id", "batch"),
    "dead_letters": ("*",),
}
_REGISTERED = {"postgres": "postgres", "mariadb": "mysql"}


@dataclass(frozen=True)
class TableJudge(SparkJudge):
    """Reads the tables as any client does."""

    base: Ground = field(kw_only=True)

    def read(self, sink: str) -> list[Values]:
        with closing(self.base.system.connect(self.base.url)) as db:
            rows = self.base.system.rows(db, sink, _COLUMNS[sink])
        if sink != "dead_letters":
            return rows
        return letters([(json.loads(r) if isinstance(r, str) else r, row) for *_, r, row in rows])

    def sight(self, sink: str) -> list[int]:
        return [batch for _, batch in self.read(sink)]

    def shows_slots(self, sink: str) -> bool:
        return sink != _SPOOLED

    def amount(self) -> Any:
        return self.base.ask("SELECT sum(amount) FROM refunds")[0][0]

    def litter(self) -> list[str]:
        """What is left on the disk, and what is in doubt on the server."""
        with closing(self.base.system.connect(self.base.url)) as db:
            return [*super().litter(), *(f"in doubt: {ident}" for ident in self.base.system.prepared(db))]


class TableSite(Site):
    """Each table has the name of its sink."""

    def __init__(self, root: Path, base: Ground) -> None:
        self.base = base
        super().__init__(root)

    @property
    def judge(self) -> TableJudge:
        return TableJudge(self.root, self.state, self.inputs, (*self.sinks, "dead_letters"), base=self.base)

    def _pipeline(self) -> dict[str, Any]:
        def table(name: str, **options: Any) -> dict[str, Any]:
            return {_REGISTERED[self.base.system.name]: {"url": self.base.url, "table": name, **options}}

        audit = table("audit", mode="upsert", key=["refund_id"])
        return {
            **super()._pipeline(),
            "sinks": {
                "refunds": table("refunds", way="prepared"),
                "audit": {**audit, "select": ["refund_id", "batch"]},
            },
            "dead_letters": table("dead_letters", way="prepared"),
        }
