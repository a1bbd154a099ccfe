"""Sites with real Spark, and how many of the tests run: a fixed core and a sample in `make test`, all in `make certify`."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from pakka.testing.crash import Drill
from tests.faults.extent import IS_WHOLE, SEED, sample
from tests.faults.spark.loop import LoopSite
from tests.faults.spark.site import KILLED, Site
from tests.fixtures.kafka import Kafka
from tests.fixtures.onlooker import Onlooker
from tests.integration.conftest import CONNECTOR, need_connector

HERE = Path(__file__).parent
DRAWN = 1
"""How many tests beside the core run in `make test`; another with every commit."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: of the slow tests here, one that runs in `make test` every time")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the core and what the seed draws from the rest. PAKKA_CERTIFY=1 keeps everything."""
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    rest = [item for item in mine if item.get_closest_marker("core") is None]
    if IS_WHOLE or len(rest) <= DRAWN:
        return
    drawn = sample(rest, DRAWN)
    left = {item.nodeid for item in rest} - {item.nodeid for item in drawn}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        names = ", ".join(item.name for item in drawn)
        reporter.write_line(f"faults on Spark: the core and, by PAKKA_FAULTS_SEED={SEED}, {names}")


@pytest.fixture
def make_site(ground: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites; no process of theirs outlives the test."""
    sites: list[Site] = []

    def make(**options: Any) -> Site:
        sites.append(Site(ground / f"site{len(sites)}", **options))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """The standard sinks and their dead letters."""
    return make_site()


class Copy:
    """A site that was brought into some state once, to be had again and again at the same path: Spark's checkpoint names files."""

    def __init__(self, ground: Path) -> None:
        self.site = Site(ground / "site")
        self.saved = ground / "saved"

    def save(self) -> None:
        for driver in self.site.drivers:
            driver.wait_until_alone()
        shutil.copytree(self.site.root, self.saved)

    def restore(self) -> Site:
        shutil.rmtree(self.site.root)
        shutil.copytree(self.saved, self.site.root)
        self.site.drivers.clear()
        return self.site


@pytest.fixture(scope="session")
def half_committed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """A pipeline whose driver was killed between the commits of two sinks: there is something to commit and to tidy up."""
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() else tmp_path_factory.getbasetemp()
    ground = Path(tempfile.mkdtemp(prefix="pakka-faults-", dir=base))
    copy = Copy(ground)
    try:
        copy.site.strike(Drill("commit.sink", epoch=1, nth=2), KILLED)
        copy.save()
        yield copy
    finally:
        copy.site.close()
        shutil.rmtree(ground)


@pytest.fixture
def crashed(half_committed: Copy) -> Iterator[Site]:
    """A site to recover."""
    site = half_committed.restore()
    yield site
    site.close()


MakeLoop = Callable[..., LoopSite]


@pytest.fixture
def make_loop_on(ground: Path) -> Iterator[MakeLoop]:
    """Makes sites on a broker; no process of theirs outlives the test, and no topic."""
    need_connector()
    with ExitStack() as until:

        def make(kafka: Kafka, site_class: type[LoopSite] = LoopSite, **sink: Any) -> LoopSite:
            onlooker = until.enter_context(closing(Onlooker(kafka.bootstrap)))
            site = site_class(ground / "site", kafka, onlooker, CONNECTOR, **sink)
            until.callback(site.close)
            return site

        yield make


@pytest.fixture
def make_loop(make_loop_on: MakeLoop, kafka_server: Kafka) -> MakeLoop:
    """On the run's broker, which is left alone."""
    return lambda *args, **sink: make_loop_on(kafka_server, *args, **sink)
