"""pakka: exactly-once delivery for Apache Spark pipelines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pakka.contract.pipeline import Output, Pipeline, Trigger
    from pakka.model.rule import OnFail, Rule
    from pakka.pipeline import deliver, deliver_batch, run
    from pakka.sinks.console import ConsoleSink
    from pakka.sinks.files import CsvSink, JsonSink, ParquetSink
    from pakka.sinks.memory import MemorySink
    from pakka.sinks.sqlite import SqliteSink
    from pakka.sources.files import FilesSource
    from pakka.sources.frame import FrameSource
    from pakka.sources.rate import RateSource

# Imported when first used, so that `pakka status` does not wait for Spark.
_WHERE = {
    "Output": "pakka.contract.pipeline",
    "Pipeline": "pakka.contract.pipeline",
    "Trigger": "pakka.contract.pipeline",
    "OnFail": "pakka.model.rule",
    "Rule": "pakka.model.rule",
    "deliver": "pakka.pipeline",
    "deliver_batch": "pakka.pipeline",
    "run": "pakka.pipeline",
    "ConsoleSink": "pakka.sinks.console",
    "CsvSink": "pakka.sinks.files",
    "JsonSink": "pakka.sinks.files",
    "MemorySink": "pakka.sinks.memory",
    "ParquetSink": "pakka.sinks.files",
    "SqliteSink": "pakka.sinks.sqlite",
    "FilesSource": "pakka.sources.files",
    "FrameSource": "pakka.sources.frame",
    "RateSource": "pakka.sources.rate",
}

__all__ = [
    "ConsoleSink",
    "CsvSink",
    "FilesSource",
    "FrameSource",
    "JsonSink",
    "MemorySink",
    "OnFail",
    "Output",
    "ParquetSink",
    "Pipeline",
    "RateSource",
    "Rule",
    "SqliteSink",
    "Trigger",
    "__version__",
    "deliver",
    "deliver_batch",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'pakka' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
