"""Three brokers, of which one is killed inside a transaction: the leader of a partition, or the coordinator. The other two go on."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pakka.kafka_cluster import Cluster
from pakka.kafka_line import Address
from pakka.testing.crash import Drill
from tests.faults.extent import one_store
from tests.faults.kafka.conftest import Base
from tests.fixtures.kafka import Kafka, Topics, await_known, need_kafka, running_kafka
from tests.fixtures.onlooker import Onlooker

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.slow]

MIDDLE = 1
SPOOLED = ["commit.kafka.sending", "commit.kafka.ending"]
PREPARED = ["task.kafka.sent", "commit.apply", "commit.kafka.ending"]
PLACES = [*itertools.product(["one"], SPOOLED), *itertools.product(["prepared"], PREPARED)]
CASES = [(*place, victim) for place in PLACES for victim in ("leader", "coordinator")]
MUST = ("one", "commit.kafka.sending", "coordinator")


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    need_kafka()
    with running_kafka(nodes=3) as kafka:
        yield kafka


@pytest.fixture
def trio(three: Kafka) -> Iterator[Base]:
    """Three brokers, which are all up again for the next test."""
    with closing(Onlooker(three.bootstrap)) as onlooker:
        yield Base(three, onlooker, three.bootstrap)
    three.restart()


def find(site, victim):
    """The number of the broker that leads a topic of the site, or that coordinates a transaction of it which is open."""
    if victim == "leader":
        return site.onlooker.partition(site.outlet.topics["refunds"]).leader
    nodes = site.onlooker.coordinated(site.outlet.prefix).values()
    return next(node for node, state in nodes if state == "Ongoing")


def kill(trio, number):
    trio.onlooker.close()
    trio.server.nodes[number - 1].kill()


@one_store
@pytest.mark.parametrize(
    ("layout", "point", "victim"),
    [pytest.param(*case, marks=[pytest.mark.every_case] if case == MUST else []) for case in CASES],
)
def test_one_of_three_brokers_killed_in_a_transaction_is_done_without(trio, make_site_on, state, layout, point, victim):
    """It stays away until all is delivered, and comes back with what it had: nothing of that is seen."""
    site = make_site_on(trio, state, layout)
    child = site.freeze(Drill(point, epoch=MIDDLE))
    assert len(site.onlooker.partition(site.outlet.ledgers[0]).replicas) == 3
    kill(trio, find(site, victim))
    child.wake()
    site.ends(child)
    assert "Traceback" not in child.said
    site.check_whole_epochs()
    site.finish()
    site.onlooker.close()
    trio.server.restart()
    site.check()


@one_store
@pytest.mark.parametrize("layout", ["one", "prepared"])
def test_a_driver_that_starts_when_the_leader_of_its_ledger_has_just_died_reads_it_all_the_same(
    trio, make_site_on, state, layout
):
    """Only the ledger knows that an epoch, or a slot of it, is visible. For some seconds nobody leads it, and then another broker does."""
    site = make_site_on(trio, state, layout)
    site.crash(Drill("commit.applied", epoch=MIDDLE))
    kill(trio, site.onlooker.partition(site.outlet.ledgers[0]).leader)
    site.finish()


def twin_on(trio, make_site_on, ground, name):
    sinks = f"tests.faults.kafka.outputs:{name}"
    return make_site_on(trio, f"sqlite:///{ground}/state.db", "one", sinks=sinks, position="", tries=2)


def test_a_ledger_record_in_another_transaction_is_caught_when_the_coordinator_dies(trio, make_site_on, ground):
    """The records are sent again in vain: the ledger, which is led by another broker, says that they are visible."""
    site = twin_on(trio, make_site_on, ground, "apart")
    child = site.freeze(Drill("commit.kafka.sent", epoch=MIDDLE))
    kill(trio, find(site, "coordinator"))
    child.kill()
    child.wait()
    site.start().wait()
    assert any("rows lost" in f for f in site.judge.final())


def test_an_epoch_without_a_ledger_record_is_caught_when_the_leader_of_the_ledger_dies(trio, make_site_on, ground):
    site = twin_on(trio, make_site_on, ground, "unrecorded")
    site.crash(Drill("commit.applied", epoch=0))
    kill(trio, site.onlooker.partition(site.outlet.ledgers[0]).leader)
    site.start().wait()
    assert any("rows twice" in f for f in site.judge.final())


def test_where_a_topic_ends_is_asked_until_its_new_leader_tells(trio):
    """The library tells of partitions whose leader is dead that they end at -1001, and calls that an answer."""
    topic = Topics(trio.servers).create("ends", partitions=6)
    cluster = Cluster(Address(trio.servers))
    places = range(6)
    before = cluster.end_offsets(topic, places, is_committed=True)
    kill(trio, trio.onlooker.partition(topic).leader)
    assert cluster.end_offsets(topic, places, is_committed=True) == before == dict.fromkeys(places, 0)
    assert cluster.start_offsets(topic, places) == before
    assert cluster.held([topic]) == {}


def test_a_question_waits_for_no_controller_that_has_died(trio):
    """For some seconds the others go on naming it, one time in three, and the library believes them for a minute."""
    topic = Topics(trio.servers).create("asked", partitions=1)
    await_known(trio.servers, topic)
    kill(trio, 3)
    clusters = [Cluster(Address(trio.servers)) for _ in range(24)]
    made = [f"{topic}-{number}" for number in range(12)]
    with ThreadPoolExecutor(len(clusters)) as pool:
        asked = pool.map(lambda cluster: (cluster.id, cluster.topic(topic)), clusters[:12])
        for _ in pool.map(lambda cluster, name: cluster.create(name, 1, 2, {}), clusters[12:], made):
            pass
        found = list(asked)
    assert len(set(found)) == 1
    assert found[0][1].replicas == 3
    assert all(clusters[0].await_topic(name).replicas == 2 for name in made)
