"""What every test shares: Spark's workers run the Python of the tests."""

import os
import sys

# Without this a Spark worker is started as whatever `python3` is first on PATH, which has no pyarrow.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.mysql", "tests.fixtures.kafka"]
