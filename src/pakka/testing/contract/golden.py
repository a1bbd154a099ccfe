"""Golden records: what an earlier release had prepared when it was stopped, kept so that every later one can finish it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pakka.model.epoch import Epoch
from pakka.model.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Golden:
    """A decided epoch of an earlier release: its records, what was staged for them, and the rows to be seen in the end."""

    version: str
    epoch: Epoch
    records: tuple[Mapping[str, Any], ...]
    """As JSON, exactly as the release wrote them: reading them is part of the test."""
    rows: tuple[Mapping[str, Any], ...]
    files: Mapping[str, bytes]
    """What was staged, by path below the place of its harness."""

    @property
    def prepared(self) -> list[Prepared]:
        return [Prepared.from_json(record) for record in self.records]

    def put(self, place: Path) -> None:
        for name, content in self.files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def write(self, path: Path) -> None:
        data = {
            "version": self.version,
            "epoch": self.epoch.to_json(),
            "records": list(self.records),
            "rows": list(self.rows),
            "files": {name: base64.b64encode(content).decode() for name, content in sorted(self.files.items())},
        }
        path.write_text(json.dumps(data, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Golden:
        data = json.loads(path.read_text())
        files = {name: base64.b64decode(content) for name, content in data["files"].items()}
        epoch = Epoch.from_json(data["epoch"])
        return cls(data["version"], epoch, tuple(data["records"]), tuple(data["rows"]), files)
