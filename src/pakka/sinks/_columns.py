"""What the tables of every SQL sink have in common: whose rows go where, and how a refusal begins."""

from __future__ import annotations

from dataclasses import dataclass

from pakka.errors import SchemaError
from pakka.model.id import Binding


@dataclass(frozen=True, slots=True)
class Place:
    """Whose rows go to which table: the subject of every refusal."""

    binding: Binding
    path: str
    """The file or the server, without a password."""
    table: str

    def __str__(self) -> str:
        return f"table `{self.table}` in {self.path}"

    def refuse(self, what: str, hint: str) -> SchemaError:
        return SchemaError(f"{self.binding}: {what}; nothing was written", hint=hint)
