"""Sinks and sources by name. A name stands for `module:Class`, which is imported only when a pipeline uses it.

Outside packages add their own through the entry point groups `pakka.sinks` and `pakka.sources`::

    [project.entry-points."pakka.sinks"]
    acme = "acme_pakka:AcmeSink"

A built-in name always means the built-in: an installed package cannot change where a pipeline file sends its rows.
"""

from __future__ import annotations

import importlib
from dataclasses import is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pakka.errors import ConfigError
from pakka.model.id import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

SINKS = {
    "parquet": "pakka.sinks.files:ParquetSink",
    "json": "pakka.sinks.files:JsonSink",
    "csv": "pakka.sinks.files:CsvSink",
    "sqlite": "pakka.sinks.sqlite:SqliteSink",
    "postgres": "pakka.sinks.postgres:PostgresSink",
    "mysql": "pakka.sinks.mysql:MysqlSink",
    "kafka": "pakka.sinks.kafka:KafkaSink",
    "console": "pakka.sinks.console:ConsoleSink",
    "memory": "pakka.sinks.memory:MemorySink",
}
SOURCES = {
    "files": "pakka.sources.files:FilesSource",
    "kafka": "pakka.sources.kafka:KafkaSource",
    "rate": "pakka.sources.rate:RateSource",
}
# The optional dependency that brings a driver library, by the module it is imported as.
EXTRAS = {
    "psycopg": "postgres",
    "pgpq": "postgres",
    "pymysql": "mysql",
    "confluent_kafka": "kafka",
    "fastavro": "kafka",
    "prometheus_client": "metrics",
}


class Role(Enum):
    """What a registered class is in a pipeline."""

    SINK = "sink"
    SOURCE = "source"

    @property
    def built_in(self) -> dict[str, str]:
        return SINKS if self is Role.SINK else SOURCES

    @property
    def group(self) -> str:
        return f"pakka.{self.value}s"


def names(role: Role) -> list[str]:
    """Every name there is, built in or from an installed package, sorted."""
    return sorted({*role.built_in, *_installed(role).names})


def find(role: Role, name: str) -> type[Any]:
    """The class that a name stands for."""
    target = role.built_in.get(name) or _outside(role, name)
    if target is None:
        raise ConfigError(f"there is no {role.value} `{name}`", hint=nearest(name, names(role)))
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise missing_library(f"{role.value} `{name}`", error) from error
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{role.value} `{name}` is registered as {target}, which cannot be imported: {error}",
            hint="reinstall the package that it comes from",
        ) from error
    if not (isinstance(found, type) and is_dataclass(found)):
        raise ConfigError(
            f"{role.value} `{name}` is registered as {target}, which is not a dataclass",
            hint="register its frozen dataclass",
        )
    return found


def missing_library(what: str, error: ModuleNotFoundError) -> ConfigError:
    """The one wording of it: what needs the library, and what to type to get it."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(library)
    install = f"pip install 'pakka[{extra}]'" if extra else f"pip install {library}"
    return ConfigError(f"{what} needs the library `{library}`, which is not installed", hint=install)


def _installed(role: Role) -> EntryPoints:
    # Only here: a built-in name, which is nearly every one, is not to wait for the parser of what packages say of themselves.
    from importlib.metadata import entry_points

    return entry_points(group=role.group)


def _outside(role: Role, name: str) -> str | None:
    targets = sorted({point.value for point in _installed(role).select(name=name)})
    if len(targets) > 1:
        raise ConfigError(
            f"{role.value} `{name}` is registered by several packages: {', '.join(targets)}",
            hint="uninstall all but one of them",
        )
    return targets[0] if targets else None
