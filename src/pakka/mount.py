"""File systems: which one a path is on, how it is mounted, and what that means for durability."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "9p"})
"""Other machines can mount these as well."""
MEMORY = frozenset({"tmpfs", "ramfs"})
"""Gone when the machine stops."""
OBJECTS = frozenset({"fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.rclone", "fuse.mount-s3", "fuse.blobfuse2"})
"""Object stores dressed as directories: a rename is a copy and a delete."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a file system is mounted, of which kind, and with which options. Empty where the system does not tell."""

    point: str = ""
    kind: str = ""
    options: frozenset[str] = frozenset()

    @property
    def is_network(self) -> bool:
        return self.kind in NETWORK or self.kind.startswith("fuse.")


def mount_of(path: str | Path, mounts: Path | None = None) -> Mount:
    """The mount that a path is on, or would be on if it were made."""
    real = os.path.realpath(path)
    found = [mount for mount in _mounted(mounts or MOUNTS) if _is_under(real, mount.point)]
    # Of several on one point the last one hides the others.
    return max(reversed(found), key=lambda mount: len(mount.point), default=Mount())


def existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    absolute = path.absolute()
    return next((there for there in (absolute, *absolute.parents) if there.exists()), absolute)


def _mounted(mounts: Path) -> Iterator[Mount]:
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, point, kind, options, *_ = line.split(" ")
        # The kernel writes a space in a path as \040.
        yield Mount(point.replace("\\040", " "), kind, frozenset(options.split(",")))


def _is_under(path: str, point: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")
