"""Where a fault test stands: a site of its own, over both state stores.

`make test` runs half of the cases of every test, and with a server one case of every twin and of every second other test; others with every
commit. `make certify` runs all, and so does whoever names a test or gives `-k`.
"""

import os
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disk import Mount, mounting
from tests.faults.extent import IS_WHOLE, SEED, STORES
from tests.faults.site import Site

THINNED = [Path(__file__).parent / name for name in ("sql", "kafka")]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_case: a fault test that `make test` does not thin out")
    config.addinivalue_line("markers", "certify_only: a fault test that takes long, and that `make test` leaves out")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Thin out: see above. The choice is the same on every worker of a run."""
    if IS_WHOLE or config.option.keyword or any("::" in arg for arg in config.args):
        return
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    halved: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        name = f"{item.path.parent.name}/{item.path.name}", getattr(item, "originalname", item.name)
        if item.get_closest_marker("every_case") is not None:
            continue
        if {*THINNED} & {*item.path.parents}:
            tests[name].append(item)
        elif item.path.parent == Path(__file__).parent:
            halved[name].append(item)
    # What proves that the others can fail is always asked.
    twins = [name for name in tests if name[0].endswith("/test_twins.py")]
    rest = sorted({*tests} - {*twins})
    drawn = twins + random.Random(SEED).sample(rest, (len(rest) + 1) // 2)
    kept = {id(random.Random(f"{SEED} {name}").choice(tests[name])) for name in drawn}
    left_out = {id(item) for cases in tests.values() for item in cases} - kept
    for name, cases in halved.items():
        left_out |= {id(item) for item in random.Random(f"{SEED} {name}").sample(cases, len(cases) // 2)}
    left_out |= {id(item) for item in items if item.get_closest_marker("certify_only")}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


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
