"""From the `state:` of a pipeline to the store behind it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pakka.contract.audit import Finding
from pakka.contract.state import StateStore
from pakka.durability import place_probes
from pakka.errors import ConfigError
from pakka.registry import missing_library
from pakka.state.sqlite import SqliteSettings, SqliteStore

_FORMS = "`sqlite:///DIRECTORY/state.db` (four slashes for an absolute path) or `postgresql://USER@HOST:5432/DATABASE`"


def open_store(url: str, *, must_exist: bool = False) -> StateStore:
    """Open the state store that `url` names, and make it if it is new.

    With `must_exist` nothing is made or migrated: a place without state is refused with `UsageError`.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator:
        return SqliteStore(_path(rest), must_exist=must_exist)
    if scheme == "postgresql" and separator:
        try:
            from pakka.state.postgres import PostgresStore
        except ModuleNotFoundError as error:
            raise missing_library("state store `postgresql://`", error) from error
        return PostgresStore(url, must_exist=must_exist)
    raise _unknown(url, scheme if separator else "")


def settings_of(url: str) -> Sequence[Finding]:
    """The settings of the state store that `url` names, before it is opened. Nothing is made or changed."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator:
        path = Path(_path(rest)).absolute()
        if not path.is_file():
            return [probe.look() for probe in place_probes(path)]
        with closing(SqliteSettings(_path(rest))) as store:
            return [probe.look() for probe in store.probes()]
    if scheme == "postgresql" and separator:
        try:
            from pakka.state.postgres import PostgresSettings
        except ModuleNotFoundError as error:
            raise missing_library("state store `postgresql://`", error) from error
        with closing(PostgresSettings(url)) as server:
            return [probe.look() for probe in server.probes()]
    raise _unknown(url, scheme if separator else "")


def _path(rest: str) -> str:
    """What follows `sqlite://`: a slash, then the path as it is."""
    path = rest.removeprefix("/")
    if path == rest and path:
        raise ConfigError(
            f"state store `sqlite://{rest}`: a path begins after three slashes", hint=f"write `sqlite:///{rest}`"
        )
    if not path or path.endswith("/"):
        raise ConfigError(f"state store `sqlite://{rest}` names no file", hint=f"write `sqlite:///{path}state.db`")
    if path.startswith(":memory:"):
        raise ConfigError(
            "state store `sqlite:///:memory:` would forget every decision when the driver ends",
            hint="write `sqlite:///.pakka/state.db`",
        )
    return path


def _unknown(url: str, scheme: str) -> ConfigError:
    """Only the scheme is shown: what follows it may hold a password."""
    if scheme.startswith("postgres"):
        return ConfigError(
            f"there is no state store `{scheme}://`", hint="write `postgresql://` and leave the rest as it is"
        )
    if scheme:
        return ConfigError(f"there is no state store `{scheme}://`", hint=f"write {_FORMS}")
    if "@" not in url and url.removeprefix("sqlite:").strip("/"):
        return ConfigError(f"state store `{url}` is not a URL", hint=f"write `sqlite:///{url.removeprefix('sqlite:')}`")
    return ConfigError("the state store is not a URL", hint=f"write {_FORMS}")
