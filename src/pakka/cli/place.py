"""What can be known of a directory or file without writing to it: may it be written to, and do other machines see it?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pakka.contract.pipeline import Pipeline
from pakka.mount import mount_of


@dataclass(frozen=True, slots=True)
class Place:
    """A path that a pipeline writes to, and what would keep it from doing so."""

    field: str
    path: str
    trouble: str = ""


def places(pipeline: Pipeline) -> list[Place]:
    """Every local path that this pipeline writes to."""
    found = {"spool": pipeline.spool, "checkpoint": pipeline.checkpoint_path}
    if pipeline.state.startswith("sqlite:///"):
        found["state"] = pipeline.state.removeprefix("sqlite:///")
    for name, output in pipeline.outputs.items():
        path = getattr(output.sink, "path", None)
        if isinstance(path, str):
            found[f"sink `{name}`"] = path
    return [Place(field, path, trouble(Path(path))) for field, path in sorted(found.items()) if "://" not in path]


def trouble(path: Path) -> str:
    """Why `path` cannot be written to or made; empty if nothing speaks against it."""
    absolute = path.absolute()
    for there in (absolute, *absolute.parents):
        if not os.path.lexists(there):
            continue
        if there != absolute and not there.is_dir():
            return f"{there} is not a directory"
        return "" if os.access(there, os.W_OK) else f"{there} may not be written to"
    return ""


def is_on_network(path: str, mounts: Path | None = None) -> bool:
    """Is this path on a file system that other machines can mount as well?"""
    return mount_of(path, mounts).is_network
