"""The scratch area of an audit: made, lent, and removed whatever happens; what a killed audit left goes as well."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pakka.contract.audit import Auditable, Scratch, audit_pipeline
from pakka.contract.sink import Sink
from pakka.errors import RefusedError, UsageError
from pakka.model.id import Binding
from pakka.mount import existing

_OLD_S = 15 * 60
_TOKEN = re.compile(r"([0-9a-f]{8})_([0-9a-f]{8})_([0-9a-f]+)_([0-9a-f]+)")
_numbers = itertools.count()
_SPOOL = ".pakka-audit-spool-"


@dataclass(frozen=True)
class Ground:
    """Where an audit stands: the scratch area, and the name and the spool under which it works."""

    scratch: Scratch
    binding: Binding

    def stored(self) -> frozenset[str]:
        """All that is stored in the scratch area and in the spool."""
        walk = os.walk(self.binding.spool)
        spooled = {os.path.join(place, name) for place, _, names in walk for name in names}
        return self.scratch.stored() | spooled


@contextmanager
def ground_of(sink: Sink, spool: str | None = None) -> Iterator[Ground]:
    """Lend a scratch area of the sink's system, and remove it, also when interrupted.

    The audit spools where `spool` is or would be, so that it stands on the same file system; else to a temporary directory.
    """
    if not isinstance(sink, Auditable):
        raise UsageError(
            f"{type(sink).__name__} cannot be audited: it does not say how to make a scratch area",
            hint="give it `scratch(token)` and `scratch_tokens()` of `pakka.contract.audit.Auditable`",
        )
    base = existing(Path(spool)) if spool else Path(tempfile.gettempdir())
    _sweep(sink, base)
    token = _new_token()
    scratch = sink.scratch(token)
    spooled = base / f"{_SPOOL}{token}"
    with _terminated_is_interrupted():
        try:
            _make(spooled)
            scratch.make()
            yield Ground(scratch, Binding(audit_pipeline(token), "audit", str(spooled)))
        finally:
            with _undisturbed():
                shutil.rmtree(spooled, ignore_errors=True)
                scratch.remove()


def _make(spool: Path) -> None:
    try:
        spool.mkdir()
    except OSError as error:
        raise RefusedError(
            f"the audit cannot spool to {spool}: {error.strerror}; nothing was made",
            hint="let the user that runs the audit write there, or choose another `spool`",
        ) from error


def _new_token() -> str:
    """When, where, by which process, and the how manyth: enough to tell later whether the audit is still running."""
    return f"{int(time.time()):08x}_{_host():08x}_{os.getpid():x}_{next(_numbers):x}"


def _is_abandoned(token: str) -> bool:
    match = _TOKEN.fullmatch(token)
    if match is None:
        return False
    at, host, pid, _ = (int(part, 16) for part in match.groups())
    if host == _host() and not _is_alive(pid):
        return True
    return time.time() - at > _OLD_S


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _host() -> int:
    return zlib.crc32(socket.gethostname().encode())


def _sweep(sink: Auditable, base: Path) -> None:
    for token in sink.scratch_tokens():
        if _is_abandoned(token):
            sink.scratch(token).remove()
    for spool in base.glob(f"{_SPOOL}*"):
        if _is_abandoned(spool.name.removeprefix(_SPOOL)):
            shutil.rmtree(spool, ignore_errors=True)


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM ends an audit as Ctrl-C does: by an exception, so that it tidies up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, which alone may; whoever runs an audit beside it minds the signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second signal must not interrupt what the first one has asked for."""
    signals = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
