"""What scratch areas for audits share. Each sink's own is in a module beside it, and imported when it is audited."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pakka.model.id import Binding
from pakka.sinks._staging import refusal

MARK = ".pakka-audit-"
SCRATCH = Binding("audit", "scratch", "")
"""Whom errors of a scratch area speak of."""


def tokens_in(directory: Path, prefix: str) -> list[str]:
    """The tokens of what stands in a directory under names that begin with `prefix`."""
    try:
        return sorted(name.removeprefix(prefix) for name in os.listdir(directory) if name.startswith(prefix))
    except OSError:
        return []


@dataclass(frozen=True)
class DirectoryScratch:
    """A scratch area that is a directory."""

    root: Path

    def make(self) -> None:
        try:
            self.root.mkdir()
        except OSError as error:
            raise refusal(SCRATCH, "nothing was made", self.root, error) from error

    def stored(self) -> frozenset[str]:
        return frozenset(os.path.join(place, name) for place, _, names in os.walk(self.root) for name in names)

    def remove(self) -> None:
        try:
            shutil.rmtree(self.root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refusal(SCRATCH, "it is left behind", self.root, error) from error
