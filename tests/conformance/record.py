"""Write the golden records that are missing: `python -m tests.conformance.record`, once, at a release.

One that is there is never written again: it stands for what users of that release have on their disks.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

from pakka.testing.contract import record
from tests.conformance.harnesses import GOLDEN, HARNESSES


def main() -> None:
    for name, harness in HARNESSES.items():
        path = GOLDEN / f"{name}.json"
        if not path.exists():
            with tempfile.TemporaryDirectory() as place:
                record(harness(Path(place)), version("pakka")).write(path)
            print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
