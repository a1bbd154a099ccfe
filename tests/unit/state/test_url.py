"""From `state:` to a store: what is understood, and what is answered to the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from pakka.contract.state import Owner
from pakka.errors import ConfigError, UsageError
from pakka.state import open_store


def test_three_slashes_are_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///a/b/state.db")
    assert store.describe() == "sqlite:///a/b/state.db"
    assert (tmp_path / "a/b/state.db").exists()
    monkeypatch.chdir("/")
    store.take_fence("refunds", Owner("host", 1, 0.0))
    assert open_store(f"sqlite:///{tmp_path}/a/b/state.db").pipelines() == ["refunds"]
    store.close()


def test_four_slashes_are_an_absolute_path(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/x ?#%41.db")
    assert [p.name for p in tmp_path.glob("*.db")] == ["x ?#%41.db"]
    store.close()


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("sqlite://state.db", "a path begins after three slashes", "write `sqlite:///state.db`"),
        ("sqlite:///", "names no file", "write `sqlite:///state.db`"),
        ("sqlite:///dir/", "names no file", "write `sqlite:///dir/state.db`"),
        ("sqlite:///:memory:", "would forget every decision", "sqlite:///.pakka/state.db"),
        ("sqlite:state.db", "is not a URL", "write `sqlite:///state.db`"),
        ("out/state.db", "is not a URL", "write `sqlite:///out/state.db`"),
        ("/var/state.db", "is not a URL", "write `sqlite:////var/state.db`"),
        ("", "is not a URL", "sqlite:///DIRECTORY/state.db"),
        ("postgres://u:hidden@h/db", "no state store `postgres://`", "write `postgresql://`"),
        ("postgresql+psycopg://u:hidden@h/db", "no state store `postgresql+psycopg://`", "write `postgresql://`"),
        ("mysql://u:hidden@h/db", "no state store `mysql://`", "postgresql://USER@HOST"),
        ("u:hidden@h/db", "the state store is not a URL", "postgresql://USER@HOST"),
        ("postgresql://u:hid%den@h:99/db", "the PostgreSQL URL cannot be read", "%40"),
        ("postgresql://u:hidden@h/db?no_such=1", "the PostgreSQL URL cannot be read", "%40"),
    ],
)
def test_a_wrong_url_is_answered_with_the_nearest_right_one(url, message, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "hid" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_looking_for_state_makes_nothing(tmp_path):
    with pytest.raises(UsageError, match="there is no state at"):
        open_store(f"sqlite:///{tmp_path}/a/state.db", must_exist=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_state_is_no_state_and_stays_as_it_is(tmp_path):
    file = tmp_path / "empty.db"
    file.touch()
    with pytest.raises(UsageError, match="there is no state at"):
        open_store(f"sqlite:///{file}", must_exist=True)
    assert file.stat().st_size == 0


def test_a_missing_driver_library_says_what_to_install():
    code = (
        "import sys; sys.modules['psycopg'] = None\nfrom pakka.state import open_store\nopen_store('postgresql://h/db')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "needs the library `psycopg`" in result.stderr
    assert "pip install 'pakka[postgres]'" in result.stderr


def test_sqlite_state_needs_no_driver_library():
    code = "import sys, pakka.state\nsys.exit(' '.join({'psycopg', 'pyarrow'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr.strip() == ""


def test_the_default_of_a_pipeline_is_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///.pakka/state.db").close()
    assert Path(".pakka/state.db").exists()
