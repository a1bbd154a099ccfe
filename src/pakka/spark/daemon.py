"""The process from which Spark forks its Python workers on this machine, with what a task needs imported before the fork.

Spark ends a worker that had nothing to do for a minute, and a new one imports for a second of the processor: the first epoch waited for that,
and so did every epoch of a pipeline that is triggered more rarely. What is imported here is there, and in memory once.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module

PRELOAD = "PAKKA_PRELOAD"
"""In the environment: the modules of the pipeline's sinks, with commas between."""
_EVERY_TASK = ("pandas", "pyarrow.compute", "pyspark.worker", "pakka.spark.task")
"""The first is Spark's own wish, in `mapInArrow`."""


def main() -> None:
    from pyspark.daemon import manager

    for module in filter(None, (*_EVERY_TASK, *os.environ.get(PRELOAD, "").split(","))):
        import_module(module)
    # No worker looks through all this for garbage, which would also copy its pages.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
