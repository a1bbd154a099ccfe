"""The settings file of any Kafka client, as one flat mapping in Kafka's own words.

Java properties, `.env` files, JSON and YAML, nested or not. `spring.kafka.consumer.enable-auto-commit`, `KAFKA_ENABLE_AUTO_COMMIT` and
`enableAutoCommit` are all `enable.auto.commit` to Kafka. kafkajs has names of its own. Values are never told, but those that are judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pakka.errors import ConfigError

SUFFIXES = (".properties", ".conf", ".cfg", ".env", ".json", ".yaml", ".yml")
KAFKAJS = "(kafkajs)."
"""Stands before a setting that was found under kafkajs's own name for it."""
_NAMES_OF_KAFKAJS = {
    "autoCommit": "enable.auto.commit",
    "fromBeginning": "auto.offset.reset",
    "idempotent": "enable.idempotence",
    "maxInFlightRequests": "max.in.flight.requests.per.connection",
    "readUncommitted": "isolation.level",
}
_VALUES_OF_KAFKAJS = {
    "fromBeginning": {"true": "earliest", "false": "latest"},
    "readUncommitted": {"true": "read_uncommitted", "false": "read_committed"},
}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LINE = re.compile(r"(?:export\s+)?([^=:\s]+)\s*[=:\s]\s*(.*)")


def read_client_file(path: Path) -> dict[str, str]:
    """Every setting by its name, in lower case with dots."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{path} cannot be read: {why}", hint="name the settings file of a Kafka client") from error
    if path.suffix not in (".json", ".yaml", ".yml"):
        return dict(_properties(text))
    found = dict(_flat(_structure(path, text, is_json=path.suffix == ".json")))
    if any(name.endswith("bootstrap.servers") for name in found):
        # kafkajs has `brokers`. Here it is something else that commits by itself, such as a database.
        return {name: value for name, value in found.items() if KAFKAJS not in name}
    return found


def plain_name(name: str) -> str:
    return re.sub(r"[_\-]", ".", _HUMP.sub(".", name)).lower()


def _structure(path: Path, text: str, *, is_json: bool) -> Mapping[str, Any]:
    import yaml

    try:
        data = json.loads(text) if is_json else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        # The words of a parser may quote the line, and the line may hold a secret.
        line = getattr(error, "lineno", None) or getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise ConfigError(
            f"{path} is not {'JSON' if is_json else 'YAML'}: it cannot be read from line {line} on",
            hint="name the settings file of a Kafka client",
        ) from None
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path} holds no settings: names with values are needed", hint="such as `acks: all`")
    return data


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        whole = f"{before}{plain_name(str(name))}"
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{whole}.")
        elif name in _NAMES_OF_KAFKAJS and value is not None:
            yield f"{before}{KAFKAJS}{_NAMES_OF_KAFKAJS[name]}", _VALUES_OF_KAFKAJS.get(name, {}).get(text, text)
        elif value is not None:
            yield whole, text


def _properties(text: str) -> Iterator[tuple[str, str]]:
    # A line that ends with a backslash goes on in the next.
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and not line.strip().startswith(("#", "!")):
            yield plain_name(match[1]), match[2].strip().strip("\"'")
