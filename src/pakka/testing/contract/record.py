"""Make a golden record: what this release would leave behind if it were stopped between decision and commit."""

from __future__ import annotations

from pathlib import Path

from pakka.testing.contract.golden import Golden
from pakka.testing.contract.harness import Harness
from pakka.testing.contract.trial import Trial, epoch_of

_EPOCH = 4
_SHARES = (5, 0, 3)


def record(harness: Harness, version: str) -> Golden:
    """Prepare an epoch under fence 1 and keep it: the records, and the files that appeared below the harness's place.

    Do it once for a release, keep the result, and never make it again: it stands for what users have on their disks.
    """
    with Trial(harness) as trial:
        driver = trial.driver(1)
        before = _files(harness.place)
        records, batches = driver.prepare(_EPOCH, _SHARES)
        after = _files(harness.place)
    rows = tuple(row for batch in batches for row in batch.to_pylist())
    staged = {name: content for name, content in after.items() if name not in before}
    return Golden(version, epoch_of(_EPOCH), tuple(p.to_json() for p in records), rows, staged)


def _files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
