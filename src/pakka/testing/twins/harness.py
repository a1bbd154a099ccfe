"""The harness of the twins: it looks into their file as a stranger would, with SQL and Arrow and none of their code."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from pakka.model.epoch import Epoch, Origin
from pakka.model.id import Slot
from pakka.model.prepared import Prepared
from pakka.testing.contract import Golden, Harness
from pakka.testing.twins.honest import HonestSink, packed
from pakka.testing.twins.table import HONEST, Twin
from pakka.testing.twins.writers import REMEMBERED

_PASSWORD = "open-sesame"


class TwinHarness(Harness):
    """One twin on fresh ground."""

    secrets = (_PASSWORD,)

    def __init__(self, place: Path, twin: Twin = HONEST) -> None:
        super().__init__(place)
        self.twin = twin
        self.path = place / "twin.db"

    def sink(self) -> HonestSink:
        return self.twin.make(str(self.path), _PASSWORD)

    def rows(self, schema: pa.Schema) -> Iterable[Mapping[str, Any]]:
        stored = [blob for (blob,) in self._ask("visible", "SELECT rows FROM visible")]
        return [row for blob in stored if blob for row in pa.ipc.open_stream(blob).read_all().to_pylist()]

    def litter(self) -> Collection[str]:
        return [slot for (slot,) in self._ask("slots", "SELECT slot FROM slots WHERE state <> 'visible'")]

    def restart(self) -> None:
        REMEMBERED.clear()

    def fresh(self, name: str) -> TwinHarness:
        return TwinHarness(self.place / name, self.twin)

    def golden(self) -> Golden:
        """As an imagined last release wrote it, with another form of record."""
        batch = pa.record_batch({"refund_id": ["RFD-1"], "merchant": ["chai corner"], "amount_paise": [500]})
        slot = Slot("refunds", "out", 4, 1, 0, 0)
        record = Prepared(slot, 1, "0" * 16, {"form": 0}).to_json()
        epoch = Epoch("refunds", 4, Origin("query-1", 4, "offsets-4"))
        return Golden("0", epoch, (record,), tuple(batch.to_pylist()), {str(slot): packed([batch], batch.schema)})

    def put(self, golden: Golden) -> None:
        with closing(sqlite3.connect(self.path)) as db:
            for slot, rows in golden.files.items():
                db.execute("INSERT INTO slots VALUES (?, ?, 'prepared', ?)", [slot, golden.epoch.number, rows])
            db.commit()

    def _ask(self, table: str, sql: str) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path)) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                return []
            return db.execute(sql).fetchall()
