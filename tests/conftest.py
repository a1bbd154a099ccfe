"""What every test shares: Spark's workers run the Python of the tests, and processes start fast."""

import os
import sys
from pathlib import Path

import pytest

# Without this a Spark worker is started as whatever `python3` is first on PATH, which has no pyarrow.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The tests start Python some thousand times. Where it may not keep what it has compiled, each start takes twice as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A JVM of the tests lives for seconds: the better compiler and collector would never pay. With the archive of Spark's classes
# that `make setup-archive` has made, a small stream takes 12 s of processor time in all, and 34 s without any of this.
_ARCHIVE = Path(sys.prefix) / "share" / "spark" / "classes.jsa"
_FAST = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -XX:SharedArchiveFile={_ARCHIVE}"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _FAST if _ARCHIVE.exists() else _FAST.rpartition(" ")[0])

pytest_plugins = [
    "tests.fixtures.forked",
    "tests.fixtures.turns",
    "tests.fixtures.postgres",
    "tests.fixtures.mysql",
    "tests.fixtures.sql",
    "tests.fixtures.kafka",
]

_LONG = (
    "tests/faults/spark/",
    "tests/audit/test_table.py",
    "tests/conformance/test_kafka",
    "tests/faults/kafka/",
    "tests/demo/",
    "tests/docs/",
    "tests/integration/",
    "tests/faults/",
    "tests/cli/",
    "tests/conformance/",
    "tests/audit/",
)
"""Files that take long, the longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: a long file that is left for the end has all processes but one wait for it."""

    def rank(item: pytest.Item) -> int:
        return next((at for at, start in enumerate(_LONG) if item.nodeid.startswith(start)), len(_LONG))

    items.sort(key=rank)
