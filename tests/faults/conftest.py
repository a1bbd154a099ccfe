"""Where a fault test stands: a site of its own, over both state stores."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disk import Mount, mounting
from tests.faults.extent import STORES
from tests.faults.site import Site


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory if there is one. These tests cut no power, so that waiting for a disk would prove nothing."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="pakka-faults-", dir=memory))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def mount(ground: Path) -> Iterator[Mount]:
    """Mounts small file systems, which are gone before the ground is."""
    with mounting() as mount_at:
        yield mount_at


@pytest.fixture(params=STORES)
def state(request: pytest.FixtureRequest, ground: Path) -> str:
    """The URL of a new state store."""
    if request.param == "sqlite":
        return f"sqlite:///{ground / 'state.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def make_site(ground: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites; no process of theirs outlives the test."""
    sites: list[Site] = []

    def make(state: str, **spec: Any) -> Site:
        sites.append(Site(ground / f"site{len(sites)}", state, **spec))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., Site], state: str) -> Site:
    """The standard sinks over one of the state stores."""
    return make_site(state)


@pytest.fixture
def slips_site(make_site: Callable[..., Site], state: str) -> Site:
    """One sink more, which commits slot by slot."""
    return make_site(state, sinks="tests.faults.outputs:with_slips")
