"""The committer of the file sinks: an epoch becomes visible by the rename of one directory.

::

    out/refunds/                        what readers see
      pakka_epoch=11/
        part-00000-5f0c2f7c3a1b-0000.parquet
        _pakka.manifest                 the epoch's entry in the ledger; readers pass over names with `_`
    out/.refunds.pakka/fence-7/         the staging area, which readers of `out/refunds` never look into
      pakka.refunds.out.12.7.0.345/     an attempt
      epoch-12/                         what is about to become pakka_epoch=12

The rename of `fence-7/epoch-12` is the commit and the fence in one: it fails if epoch 12 is there, and it fails if a newer
driver has raised the fence. The manifest travels with the files, so rows and ledger cannot disagree.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pakka.contract.doubt import Doubt
from pakka.contract.sink import Entry, Ledger
from pakka.errors import BugError, SinkError
from pakka.model.epoch import Epoch
from pakka.model.id import Binding, Slot
from pakka.model.outcome import ALREADY_COMMITTED, COMMITTED, Outcome
from pakka.model.prepared import Prepared, add_checksums
from pakka.points import reach
from pakka.sinks._layout import epoch_directory, parse_epoch_directory, part_prefix
from pakka.sinks._staging import (
    Staging,
    fsync_directory,
    fsync_tree,
    make_below,
    make_directory,
    refusal,
    write_durably,
)

# Not `.json`: DuckDB reads every `*.json` of a JSON sink, whatever it begins with.
MANIFEST = "_pakka.manifest"
_VERSION = 1
_BUILD = "epoch-"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the sink itself remembers of an epoch, beside the epoch's files."""

    epoch: Epoch
    sink: str
    rows: int
    checksum: str
    slots: tuple[str, ...]
    files: tuple[tuple[str, int, int], ...]
    """Name below the epoch's directory, rows, bytes."""

    @classmethod
    def of(cls, epoch: Epoch, sink: str, prepared: Sequence[Prepared]) -> Manifest:
        files = tuple(file for record in prepared for file in _files(record))
        rows, checksum = sum(p.rows for p in prepared), add_checksums(p.checksum for p in prepared)
        return cls(epoch, sink, rows, checksum, tuple(str(p.slot) for p in prepared), files)

    def to_bytes(self) -> bytes:
        data = {
            "v": _VERSION,
            "epoch": self.epoch.to_json(),
            "sink": self.sink,
            "rows": self.rows,
            "checksum": self.checksum,
            "slots": self.slots,
            "files": self.files,
        }
        return json.dumps(data, indent=1).encode()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Manifest:
        if data["v"] > _VERSION:
            raise BugError(
                f"a manifest of version {data['v']} was found and this pakka knows {_VERSION}; it was left as it is",
                hint="run the newer pakka that wrote it",
            )
        files = tuple((name, rows, size) for name, rows, size in data["files"])
        epoch = Epoch.from_json(data["epoch"])
        return cls(epoch, data["sink"], data["rows"], data["checksum"], tuple(data["slots"]), files)


def check_place(binding: Binding, path: Path) -> None:
    """Refuse, before anything is written, a place where no directory can be made, or not renamed into."""
    base = path
    while not base.exists() and base != base.parent:
        base = base.parent
    where = f"{binding}: {path}"
    if not base.is_dir():
        raise SinkError(f"{where}: {base} is a file; nothing was written", hint="choose a directory for `path`")
    denied = PermissionError(errno.EACCES, "")
    if not os.access(base, os.W_OK | os.X_OK):
        raise refusal(binding, "nothing was written", base, denied)
    if path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        what = f"the staging area of {path} is made there, beside it; nothing was written"
        raise refusal(binding, what, path.parent, denied)
    if path.exists() and path.stat().st_dev != path.parent.stat().st_dev:
        raise _apart(binding, path)


def _apart(binding: Binding, path: Path) -> SinkError:
    return SinkError(
        f"{binding}: {path} is a mount point, and its staging area beside it is on another file system, so that no epoch "
        "could be published by one rename; nothing was published",
        hint=f"choose a directory inside it: `path: {path / 'data'}`",
    )


class Publisher:
    """Makes epochs of files visible, for one pipeline and one fence."""

    def __init__(self, path: Path, staging: Staging) -> None:
        self.path = path
        self.staging = staging
        self.binding = staging.binding

    def raise_fence(self) -> bool:
        with self._errors("nothing was published"):
            check_place(self.binding, self.path)
            self.staging.raise_fence()
            make_directory(self.path)
            self._probe()
            self._tidy()
        return True

    def commit_epoch(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Outcome:
        """1. Published already?  2. Build the directory.  3. One rename.  4. Make it durable.  5. Tidy up."""
        with self._errors(f"epoch {epoch.number} is decided and not published yet"):
            self.staging.check()
            is_held = self._is_held(epoch)
            if not is_held:
                lost = self._lost(epoch, prepared)
                if lost:
                    return Outcome.refused(lost)
                self._publish(epoch, self._build(epoch, prepared))
        # A driver may have died between its rename and this line, so "already" is not "durable" yet.
        fsync_directory(self.path)
        for record in prepared:
            self.staging.remove(record.slot)
        return ALREADY_COMMITTED if is_held else COMMITTED

    def abort(self, prepared: Sequence[Prepared]) -> None:
        with self._errors("what could not be aborted is still staged, and not visible"):
            committed = self._committed(record.slot for record in prepared)
            if committed:
                raise SinkError(
                    f"{self.binding}: `{min(map(str, committed))}` is committed and cannot be aborted; it stays visible"
                )
            for record in prepared:
                self.staging.remove(record.slot)
                self._remove_built(record.slot)

    def pending(self) -> Sequence[Prepared]:
        with self._errors("nothing was changed"):
            slots = self.staging.slots()
            committed = self._committed(slots)
            return [Prepared(slot, 0, "") for slot in slots if slot not in committed]

    def in_doubt(self) -> Sequence[Doubt]:
        with self._errors("nothing was changed"):
            return self.staging.in_doubt(record.slot for record in self.pending())

    def ledger(self) -> Ledger:
        with self._errors("nothing was changed"):
            self.staging.check_owner()
            newest = self._newest()
            manifest = self._manifest(newest) if newest >= 0 else None
            if manifest is None:
                return Ledger(self.staging.seen(), None)
            theirs = (manifest.epoch.pipeline, manifest.sink)
            if theirs != (self.binding.pipeline, self.binding.sink):
                raise SinkError(
                    f"{self.binding}: {self.path} holds epochs of sink `{'.'.join(theirs)}`; nothing was written",
                    hint="give each sink of each pipeline an output of its own",
                )
            # What is vouched for here may be entered in a state store, so a power cut must not take it back.
            fsync_directory(self.path)
            return Ledger(self.staging.seen(), Entry(manifest.epoch, manifest.rows, manifest.checksum))

    def close(self) -> None:
        """There is nothing to let go of: every call opens what it needs."""

    def _is_held(self, epoch: Epoch) -> bool:
        manifest = self._manifest(epoch.number)
        if manifest is None:
            return False
        if manifest.epoch != epoch:
            raise SinkError(
                f"{self.binding}: {self._directory(epoch.number)} holds epoch {epoch.number} of pipeline "
                f"`{manifest.epoch.pipeline}` with {manifest.epoch.origin}, and this one is of `{epoch.pipeline}` with "
                f"{epoch.origin}; nothing was changed",
                hint="restore the output, the state store and the checkpoint that belong together",
            )
        return True

    def _lost(self, epoch: Epoch, prepared: Sequence[Prepared]) -> str:
        """Why the epoch can no longer be published; empty if it can. A file is in its attempt, or moved by a crashed commit."""
        for record in prepared:
            for name, _, size in _files(record):
                try:
                    found = self._find(epoch, record.slot, name).stat().st_size
                except FileNotFoundError:
                    self.staging.check()
                    self._check_not_deleted(epoch)
                    return f"{name} of `{record.slot}` is gone from {self.staging.path}"
                if found != size:
                    return f"{name} of `{record.slot}` has {found} bytes and was prepared with {size}"
        return ""

    def _check_not_deleted(self, epoch: Epoch) -> None:
        """Epochs are committed in order. One that is missing below a newer one was published, and deleted since."""
        newest = self._newest()
        if newest > epoch.number:
            raise SinkError(
                f"{self.binding}: epoch {epoch.number} is not in {self.path}, and epoch {newest} is; nothing was changed",
                hint=f"if it was deleted on purpose, restore {epoch_directory(epoch.number)} until the pipeline has started",
            )

    def _build(self, epoch: Epoch, prepared: Sequence[Prepared]) -> Path:
        """Move the winners' files, and nothing else, into the directory that is going to be published."""
        build = self._building(epoch.number)
        with suppress(FileExistsError):
            build.mkdir()
        _remove_others(build, {name for record in prepared for name, _, _ in _files(record)})
        for record in prepared:
            for name, _, _ in _files(record):
                staged = self.staging.attempt(record.slot) / name
                if staged.exists():
                    make_below(build, os.path.dirname(name))
                    os.rename(staged, build / name)
            reach("commit.move", epoch.number)
        write_durably(build / MANIFEST, Manifest.of(epoch, self.binding.sink, prepared).to_bytes())
        fsync_tree(build)
        return build

    def _publish(self, epoch: Epoch, build: Path) -> None:
        reach("commit.publish", epoch.number)
        try:
            os.rename(build, self._directory(epoch.number))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            raise self._strange(epoch.number) from error
        reach("commit.published", epoch.number)

    def _find(self, epoch: Epoch, slot: Slot, name: str) -> Path:
        staged = self.staging.attempt(slot) / name
        return staged if staged.exists() else self._building(epoch.number) / name

    def _remove_built(self, slot: Slot) -> None:
        """A crashed commit may have moved files of a decision that is gone since; they go with their attempt."""
        build = self._building(slot.epoch)
        if build.is_dir():
            kept = {n for n in _names(build) if not os.path.basename(n).startswith(part_prefix(slot))}
            _remove_others(build, kept)
            if not kept - {MANIFEST}:
                shutil.rmtree(build)

    def _tidy(self) -> None:
        """Remove what belongs to no attempt any more: no abort would ever name it."""
        # 1. A driver died between the rename and its tidying: empty directories of committed slots.
        for slot in self._committed(self.staging.slots()):
            self.staging.remove(slot)
        # 2. One died before the rename of an epoch without rows: a manifest and nothing else.
        for build in self.staging.path.glob(f"{_BUILD}*"):
            if not _names(build) - {MANIFEST}:
                shutil.rmtree(build)

    def _committed(self, slots: Iterable[Slot]) -> set[Slot]:
        by_epoch: dict[int, set[Slot]] = {}
        for slot in slots:
            by_epoch.setdefault(slot.epoch, set()).add(slot)
        committed: set[Slot] = set()
        for number, of_epoch in by_epoch.items():
            manifest = self._manifest(number)
            if manifest is not None:
                named = set(manifest.slots)
                committed |= {slot for slot in of_epoch if str(slot) in named}
        return committed

    def _manifest(self, number: int) -> Manifest | None:
        """An epoch's manifest; None if there is no such epoch."""
        path = self._directory(number) / MANIFEST
        try:
            return Manifest.from_json(json.loads(path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            if path.parent.exists():
                raise self._strange(number) from None
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{self.binding}: {path} is damaged ({error}), so epoch {number} cannot be told from another; nothing was changed",
                hint="restore the file from a backup of the output",
            ) from error

    def _strange(self, number: int) -> SinkError:
        path = self._directory(number)
        return SinkError(
            f"{self.binding}: {path} has no {MANIFEST}, so it was not published by pakka or the file was removed; nothing was "
            "changed",
            hint=f"restore {MANIFEST} from a backup, or move {path.name} away if pakka did not make it",
        )

    def _newest(self) -> int:
        """The newest epoch by name alone; -1 for none. Older ones may have been deleted by their owner."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return -1
        return max((n for name in names if (n := parse_epoch_directory(name)) is not None), default=-1)

    def _directory(self, number: int) -> Path:
        return self.path / epoch_directory(number)

    def _building(self, number: int) -> Path:
        return self.staging.path / f"{_BUILD}{number}"

    def _probe(self) -> None:
        """Do the rename that commits rely on, with an empty directory: rights, and mounts that look like one file system."""
        probe = self.staging.path / "probe"
        with suppress(FileExistsError):
            probe.mkdir()
        try:
            os.rename(probe, self.path / ".pakka_probe")
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _apart(self.binding, self.path) from error
            raise
        (self.path / ".pakka_probe").rmdir()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            with self.staging.fenced():
                yield
        except OSError as error:
            raise refusal(self.binding, what, error.filename or self.path, error) from error


def _files(record: Prepared) -> list[tuple[str, int, int]]:
    return [(name, rows, size) for name, rows, size in record.detail["files"]]


def _names(build: Path) -> set[str]:
    return {os.path.relpath(os.path.join(place, n), build) for place, _, names in os.walk(build) for n in names}


def _remove_others(build: Path, keep: set[str]) -> None:
    """Leave only these files, and no directory without any."""
    for place, _, names in os.walk(build, topdown=False):
        for name in names:
            path = os.path.join(place, name)
            if os.path.relpath(path, build) not in keep:
                os.unlink(path)
        if place != str(build) and not os.listdir(place):
            os.rmdir(place)
