"""Sinks and sources by name."""

import importlib.metadata
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from pakka import registry
from pakka.errors import ConfigError
from pakka.registry import Role
from pakka.sinks.memory import MemorySink


@pytest.fixture
def installed(monkeypatch):
    """Pretend that a package is installed which registers a sink."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: EntryPoints(points).select(**wanted))
    return lambda name, target: points.append(EntryPoint(name, target, "pakka.sinks"))


@dataclass(frozen=True)
class OutsideSink:
    path: str


NOT_A_DATACLASS = "here"


@pytest.mark.parametrize(("role", "name"), [(role, name) for role in Role for name in role.built_in], ids=str)
def test_every_built_in_name_stands_for_a_dataclass(role, name):
    assert hasattr(registry.find(role, name), "__dataclass_fields__")


def test_a_sink_of_an_installed_package_is_found(installed):
    installed("acme", f"{__name__}:OutsideSink")
    assert registry.find(Role.SINK, "acme") is OutsideSink
    assert "acme" in registry.names(Role.SINK)
    assert "acme" not in registry.names(Role.SOURCE)


def test_an_installed_package_cannot_take_the_name_of_a_built_in(installed):
    installed("memory", f"{__name__}:OutsideSink")
    assert registry.find(Role.SINK, "memory") is MemorySink


def test_two_packages_with_one_name_are_refused(installed):
    installed("acme", "acme_one:Sink")
    installed("acme", "acme_two:Sink")
    with pytest.raises(
        ConfigError, match="sink `acme` is registered by several packages: acme_one:Sink, acme_two:Sink"
    ):
        registry.find(Role.SINK, "acme")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        registry.find(Role.SINK, "parqet")
    assert str(caught.value) == "there is no sink `parqet`\n\nhint: did you mean `parquet`?"


def test_a_missing_driver_library_says_what_to_install(installed, monkeypatch):
    monkeypatch.setitem(registry.EXTRAS, "no_such_driver", "postgres")
    installed("acme", "no_such_driver.sinks:Sink")
    with pytest.raises(ConfigError) as caught:
        registry.find(Role.SINK, "acme")
    assert str(caught.value) == (
        "sink `acme` needs the library `no_such_driver`, which is not installed\n\nhint: pip install 'pakka[postgres]'"
    )


def test_a_missing_library_that_no_extra_brings_is_named(installed):
    installed("acme", "no_such_library:Sink")
    with pytest.raises(ConfigError, match="hint: pip install no_such_library"):
        registry.find(Role.SINK, "acme")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (f"{__name__}:Nothing", "which cannot be imported"),
        (f"{__name__}:NOT_A_DATACLASS", "which is not a dataclass"),
    ],
)
def test_a_registration_that_leads_nowhere_is_refused(installed, target, said):
    installed("acme", target)
    with pytest.raises(ConfigError, match=f"sink `acme` is registered as {target}, {said}"):
        registry.find(Role.SINK, "acme")


def test_a_name_is_imported_only_when_it_is_used():
    code = "import sys, pakka.registry as r; r.names(r.Role.SINK); sys.exit(any(m.startswith('pakka.sinks') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
