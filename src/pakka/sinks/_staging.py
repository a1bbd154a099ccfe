"""The staging area: a directory out of sight whose very name is the fence.

::

    root/
      owner.json                             which pipeline and sink write here
      fence-7/                               all that is staged; raising the fence renames it
        pakka.refunds.audit.12.7.0.345/      one attempt's files

Raising the fence from 7 to 8 is one atomic rename of `fence-7` to `fence-8`. From then on every path of the older driver
has ceased to exist: its writers cannot open a file, and its committer cannot move one. There is no lock that a frozen
driver could hold, and no gap between checking the fence and acting on it.

Two rules follow for all who work here: a path always goes through `fence-N`, and a missing directory above an attempt is
never made again, because a newer driver has renamed it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pakka.contract.doubt import Doubt
from pakka.errors import FencedError, SinkError
from pakka.model.id import Binding, Slot
from pakka.model.prepared import Prepared, add_checksums

_PREFIX = "fence-"
_OWNER = "owner.json"
_SYNC_FILE_RANGE_WRITE = 2


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


def begin_sync(fd: int, start: int, size: int) -> None:
    """Have the disk begin with what was written, without waiting for it: then `fsync`, which alone makes it durable, has little left to do.

    No promise: a system that does not have it does it all at the end.
    """
    if _sync_file_range is not None:
        _sync_file_range(fd, start, size, _SYNC_FILE_RANGE_WRITE)


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Of the C library; Python has no name for it. Linux has it, others do not."""
    try:
        import ctypes

        found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    except (ImportError, OSError):  # a Python that was built without, or in one piece
        return None
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


_sync_file_range = _find_sync_file_range()


def fsync_tree(path: Path) -> None:
    """Make the names in a directory and in all directories below it durable."""
    for directory, _, _ in os.walk(path, topdown=False, onerror=_raise):
        fsync_directory(Path(directory))


def _raise(error: OSError) -> None:
    # os.walk passes over a directory that it cannot list, and names in it would not be synced.
    raise error


def write_durably(path: Path, data: bytes) -> None:
    """Write a small file so that after a power cut it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    fsync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, each one durable before the next."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    fsync_directory(path.parent)


def make_below(base: Path, relative: str) -> Path:
    """Make the directories of `relative` below `base`, but never `base` itself: see the rules on top."""
    path = base
    for part in Path(relative).parts:
        path = path / part
        with suppress(FileExistsError):
            path.mkdir()
    return path


def refusal(subject: object, what: str, path: object, error: OSError) -> SinkError:
    """What the operating system refused, in words that say what to do. `what` says what is known of the data."""
    code = error.errno or 0
    if code in (errno.ENOSPC, errno.EDQUOT):
        hint = f"make room on the file system of {path}, then run again"
    elif code in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"let the user that runs pakka (uid {os.geteuid()}) write there, or choose another path"
    elif code == errno.ENAMETOOLONG:
        hint = "a partition value is too long for the name of a directory; partition by another column"
    elif code in (errno.EMFILE, errno.ENFILE):
        hint = "allow more open files with `ulimit -n`, then run again"
    elif code == errno.ENOENT:
        hint = "the driver and every executor must see the same directory, and nobody may remove it while they run"
    else:
        hint = "mend the file system, then run again"
    reason = os.strerror(code) if code else str(error)
    return SinkError(f"{subject}: {path}: {reason}; {what}", hint=hint)


def _age_s(path: Path, now: float) -> float | None:
    """How long a directory has been as it is; None if it has just gone."""
    try:
        return max(0.0, now - path.stat().st_mtime)
    except FileNotFoundError:
        return None


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
        """Make the directory of an attempt. Refused if the fence has been raised, or the attempt was begun before."""
        path = self.attempt(slot)
        try:
            with self.fenced():
                path.mkdir()
        except FileExistsError:
            raise SinkError(
                f"{self.binding}: `{slot}` was begun before, and its files are in {path}; they were left as they are",
                hint="an attempt's id is used once; run the pipeline again, which begins under a new fence",
            ) from None
        return path

    def finish(self, slot: Slot) -> None:
        """Make an attempt's names durable and make sure that it is still ours. Its files are synced by the caller."""
        with self.fenced():
            fsync_tree(self.attempt(slot))
            fsync_directory(self.path)

    def seen(self) -> int:
        """The highest fence raised here; 0 if none."""
        return max(self._fences(), default=0)

    def raise_fence(self) -> None:
        """Rename the staging directory to our fence. Refused if a newer one stands."""
        self._claim()
        while (newest := max(self._fences(), default=-1)) < self.fence:
            if newest < 0:
                # There is always one directory to rename, so two drivers at the very first start cannot both have one.
                with suppress(FileExistsError):
                    (self.root / f"{_PREFIX}0").mkdir()
                continue
            with suppress(FileNotFoundError):  # another driver was faster; look again
                os.rename(self.root / f"{_PREFIX}{newest}", self.path)
        self.check()
        self._tidy()
        fsync_directory(self.root)

    def slots(self) -> list[Slot]:
        """Every attempt that has anything here, finished or not."""
        while True:
            newest = max(self._fences(), default=-1)
            try:
                names = os.listdir(self.root / f"{_PREFIX}{newest}") if newest >= 0 else []
            except FileNotFoundError:
                continue  # the fence was raised between the two looks
            return [slot for name in names if (slot := Slot.parse(name)) is not None]

    def pending(self) -> list[Prepared]:
        """A record of each of them. What is in it is not asked: it is there to be aborted."""
        return [Prepared(slot, 0, add_checksums(())) for slot in self.slots()]

    def in_doubt(self, slots: Iterable[Slot]) -> list[Doubt]:
        """These attempts, as a person wants to be told of them."""
        newest, now = self.root / f"{_PREFIX}{self.seen()}", time.time()
        return [Doubt(str(slot), slot, age_s=_age_s(newest / str(slot), now)) for slot in slots]

    def remove(self, slot: Slot) -> None:
        """Make an attempt vanish; one that is gone is fine."""
        path = self.attempt(slot)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            self.check()
            if path.exists():  # something in it was removed by another hand at the same time
                self.remove(slot)

    def sweep(self, newest: int) -> None:
        """Remove what is left of epochs up to this one, which is committed."""
        for slot in self.slots():
            if slot.epoch <= newest:
                self.remove(slot)

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """A path that is gone because the fence was raised is reported as just that."""
        try:
            yield
        except FileNotFoundError:
            self.check()
            raise

    def check(self) -> None:
        """Raise `FencedError` if a newer fence stands, and `SinkError` if ours was never raised here."""
        seen = self.seen()
        if seen > self.fence:
            raise FencedError.of(str(self.binding), self.binding.pipeline, self.fence, seen)
        if seen < self.fence:
            raise SinkError(
                f"{self.binding}: fence {self.fence} does not stand in {self.root}, which is at fence {seen}; nothing was written",
                hint="the driver and every executor must see the same directory, and nobody may remove it while they run",
            )

    def check_owner(self) -> None:
        """Two pipelines in one place would take each other's epochs for their own: the first to come owns it."""
        try:
            theirs = json.loads((self.root / _OWNER).read_text())
        except FileNotFoundError:
            return
        if theirs != self._mine:
            raise SinkError(
                f"{self.binding}: {self.root} belongs to sink `{theirs['pipeline']}.{theirs['sink']}`; nothing was written",
                hint="give each sink of each pipeline an output of its own",
            )

    @property
    def _mine(self) -> dict[str, str]:
        return {"pipeline": self.binding.pipeline, "sink": self.binding.sink}

    def _claim(self) -> None:
        """Enter ourselves as the owner if there is none: a link is made whole, or not at all if the name is taken."""
        path = self.root / _OWNER
        while not path.exists():
            make_directory(self.root)
            mine = self.root / f"{_OWNER}.{uuid.uuid4().hex}"
            # Taken: another was faster. Gone: the owner has tidied up. Either way the owner's entry is what counts.
            with suppress(FileExistsError, FileNotFoundError):
                write_durably(mine, json.dumps(self._mine).encode())
                os.link(mine, path)
            mine.unlink(missing_ok=True)
        self.check_owner()

    def _tidy(self) -> None:
        """Remove what drivers that were killed while they raised a fence have left. Never a directory with files in it."""
        for name in os.listdir(self.root):
            if name.startswith(f"{_OWNER}."):
                (self.root / name).unlink(missing_ok=True)
        for fence in self._fences():
            if fence < self.fence:
                with suppress(FileNotFoundError):
                    (self.root / f"{_PREFIX}{fence}").rmdir()

    def _fences(self) -> list[int]:
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        return [int(n.removeprefix(_PREFIX)) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdigit()]


def not_aborted(binding: Binding, slot: Slot) -> SinkError:
    """Why a slot cannot be aborted whose epoch is committed."""
    return SinkError(f"{binding}: epoch {slot.epoch} is committed, and `{slot}` cannot be aborted; it stays visible")
