"""What can be known of a directory or file without writing to it: may it be written to, and do other machines see it?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pakka.contract.pipeline import Pipeline

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "9p"})
_MOUNTS = Path("/proc/self/mounts")


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


def is_on_network(path: str, mounts: Path = _MOUNTS) -> bool:
    """Is this path on a file system that other machines can mount as well?"""
    real = os.path.realpath(path)
    kinds = {point: kind for point, kind in _mounted(mounts) if _is_under(real, point)}
    kind = kinds[max(kinds, key=len)] if kinds else ""
    return kind in _NETWORK or kind.startswith("fuse.")


def _mounted(mounts: Path) -> Iterable[tuple[str, str]]:
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        # The kernel writes a space in a path as \040.
        yield point.replace("\\040", " "), kind


def _is_under(path: str, point: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")
