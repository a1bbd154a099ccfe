"""The settings file of any Kafka client, as one flat mapping in Kafka's own words.

Java properties, `.env` files, JSON and YAML, nested or not. `spring.kafka.consumer.enable-auto-commit`, `KAFKA_ENABLE_AUTO_COMMIT` and
`enableAutoCommit` are all `enable.auto.commit` to Kafka. Values are never told, but those that are judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pakka.errors import ConfigError

SUFFIXES = (".properties", ".conf", ".cfg", ".env", ".json", ".yaml", ".yml")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LINE = re.compile(r"(?:export\s+)?([^=:\s]+)\s*[=:\s]\s*(.*)")


def read_client_file(path: Path) -> dict[str, str]:
    """Every setting by its name, in lower case with dots."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{path} cannot be read: {why}", hint="name the settings file of a Kafka client") from error
    if path.suffix == ".json":
        return dict(_flat(_structure(path, text, is_json=True)))
    if path.suffix in (".yaml", ".yml"):
        return dict(_flat(_structure(path, text, is_json=False)))
    return dict(_properties(text))


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
        if isinstance(value, Mapping):
            yield from _flat(value, f"{whole}.")
        elif isinstance(value, bool):
            yield whole, str(value).lower()
        elif value is not None:
            yield whole, str(value)


def _properties(text: str) -> Iterator[tuple[str, str]]:
    # A line that ends with a backslash goes on in the next.
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and not line.strip().startswith(("#", "!")):
            yield plain_name(match[1]), match[2].strip().strip("\"'")
