"""The staging area: a directory out of sight whose very name is the fence.

::

    root/
      owner.json                             which pipeline and sink write here
      fence-7/                               all that is staged; raising the fence renames it
        pakka.refunds.audit.12.7.0.345/      one attempt's files

Raising the fence from 7 to 8 is one atomic rename of `fence-7` to `fence-8`. From then on every path of the older driver
has ceased to exist: its writers cannot open a file, and its committer cannot move one. There is no lock that a frozen
driver could hold, and no gap between checking the fence and acting on it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pakka.errors import FencedError, SinkError
from pakka.model.id import Binding, Slot

_PREFIX = "fence-"


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable: a rename without it may be undone by a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_file(path: Path) -> None:
    """Make a file's contents durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes) -> None:
    """Write a small file so that after a power cut it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    fsync_directory(path.parent)


class Staging:
    """The staging area of one sink of one pipeline, as seen by a driver or a writer under one fence."""

    def __init__(self, root: Path, binding: Binding, fence: int) -> None:
        self.root = root
        self.binding = binding
        self.fence = fence

    @property
    def path(self) -> Path:
        return self.root / f"{_PREFIX}{self.fence}"

    def attempt(self, slot: Slot) -> Path:
        """Where one attempt's files are, whatever fence it was written under."""
        return self.path / str(slot)

    def begin(self, slot: Slot) -> Path:
        """Make the directory of an attempt. Refused if the fence has been raised."""
        path = self.attempt(slot)
        with self.fenced():
            # Not makedirs: a missing parent means that a newer driver has renamed it.
            path.mkdir()
        return path

    def finish(self, slot: Slot) -> None:
        """Make an attempt's names durable and make sure that it is still ours. Its files are synced by the caller."""
        path = self.attempt(slot)
        with self.fenced():
            for directory in [path, *(p for p in path.rglob("*") if p.is_dir())]:
                fsync_directory(directory)
            fsync_directory(self.path)

    def seen(self) -> int:
        """The highest fence raised here; 0 if none."""
        return max(self._fences(), default=0)

    def raise_fence(self) -> None:
        """Rename the staging directory to our fence. Refused if a newer one stands."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._claim_root()
        while self.seen() < self.fence:
            older = max(self._fences(), default=None)
            try:
                if older is None:
                    self.path.mkdir()
                else:
                    os.rename(self.root / f"{_PREFIX}{older}", self.path)
            except (FileNotFoundError, FileExistsError):
                continue  # another driver was faster; look again
        self._check()
        # Two drivers can both find the area empty and make a directory each. The newer one takes the older one in.
        for fence in self._fences():
            if fence < self.fence:
                shutil.rmtree(self.root / f"{_PREFIX}{fence}")
        fsync_directory(self.root)

    def slots(self) -> list[Slot]:
        """Every attempt that has anything here, finished or not."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [slot for name in names if (slot := Slot.parse(name)) is not None]

    def remove(self, slot: Slot) -> None:
        """Make an attempt vanish; one that is gone is fine."""
        path = self.attempt(slot)
        with self.fenced():
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                self._check()

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """A path that is gone because the fence was raised is reported as just that."""
        try:
            yield
        except FileNotFoundError:
            self._check()
            raise

    def _check(self) -> None:
        seen = self.seen()
        if seen > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, seen)

    def _fences(self) -> list[int]:
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        return [int(n.removeprefix(_PREFIX)) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdigit()]

    def _claim_root(self) -> None:
        """Two pipelines in one place would take each other's epochs for their own: the first to come owns it."""
        mine = {"pipeline": self.binding.pipeline, "sink": self.binding.sink}
        path = self.root / "owner.json"
        if not path.exists():
            write_durably(path, json.dumps(mine).encode())
        theirs = json.loads(path.read_text())
        if theirs != mine:
            raise SinkError(
                f"{self.binding}: {self.root} belongs to sink `{theirs['pipeline']}.{theirs['sink']}`; nothing was written",
                hint="give each sink of each pipeline an output of its own",
            )
