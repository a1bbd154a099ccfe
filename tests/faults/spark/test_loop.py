"""From Kafka to Kafka on Spark: SIGKILL to driver, JVM, worker and broker at every step of the loop; each settlement has its effect once.

Read all the time by a consumer of committed records: nothing aborted, nothing twice, no epoch behind a later one.
"""

from collections.abc import Iterator

import pytest

from pakka.testing.crash import Drill
from tests.faults.spark.loop import reading
from tests.faults.spark.site import DONE, FAILED, FENCED, KILLED
from tests.faults.spark.test_kills import DRIVER, DRIVER_BY_TASK, JVM, MIDDLE, WORKER
from tests.faults.watched import UNKNOWN
from tests.fixtures.kafka import END_TXN, Kafka, need_kafka, relayed_kafka, request_mark, running_kafka
from tests.fixtures.proxy import Proxy

pytestmark = [
    pytest.mark.faults,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

LOOP = {
    "before begin": "decide.after",
    "after begin": "commit.kafka.begun",
    "between two produces": "commit.kafka.sending",
    "before the offsets": "commit.kafka.offsets",
    "before commit": "commit.kafka.ending",
    "after commit": "commit.applied",
    "before Spark knows": "acknowledge.before",
}
"""The crash points of the loop, by what is said of them. The middle of commit is no point of pakka's: see `ENDINGS`."""
SPOOLING = ("task.begin", "task.batch", "task.prepared")
SHARDS = ("commit.kafka.shard.begun", "commit.kafka.shard.sent", "commit.kafka.shard.ended")
SENDING = ("task.kafka.begun", "task.kafka.sent", "task.kafka.prepared")
CASES = {
    **{
        f"{name}-{where}": ("spooled", at, who)
        for where, at in LOOP.items()
        for name, who in [("driver", DRIVER), ("jvm", JVM)]
    },
    **{f"worker-{at}": ("spooled", at, WORKER) for at in SPOOLING},
    **{f"driver-{at}": ("prepared", at, DRIVER_BY_TASK) for at in SENDING},
    **{f"jvm-{at}": ("prepared", at, JVM) for at in (*SENDING, "decide.after", "commit.slot")},
    **{f"worker-{at}": ("prepared", at, WORKER) for at in SENDING},
    **{f"driver-{at}": ("sharded", at, DRIVER_BY_TASK) for at in SHARDS},
    **{f"jvm-{at}": ("sharded", at, JVM) for at in SHARDS},
    **{f"worker-{at}": ("sharded", at, WORKER) for at in SHARDS},
}
CORE = {"worker-commit.kafka.shard.sent"}
ENDINGS = [
    pytest.param("spooled", "jvm", "done", marks=pytest.mark.core),
    ("spooled", "jvm", "lost"),
    ("prepared", "jvm", "done"),
    ("spooled", "driver", "lost"),
    ("spooled", "driver", "done"),
    ("spooled", "broker", "in the middle"),
    ("spooled", "broker", "done"),
]
"""The middle of commit: who dies when the end of a transaction was asked for, and what becomes of the request."""
ZOMBIES = [
    *(("spooled", at) for at in ("decide.before", "decide.after", "commit.kafka.sending", "commit.kafka.ending")),
    *(("prepared", at) for at in ("decide.before", "decide.after", "commit.apply", "commit.kafka.ending")),
    ("sharded", "commit.applied"),
    ("spooled", "acknowledge.before"),
]
"""Where a driver is stopped, and another one takes over."""


@pytest.mark.parametrize(
    ("way", "point", "victim"),
    [pytest.param(*case, id=name, marks=[pytest.mark.core] if name in CORE else []) for name, case in CASES.items()],
)
def test_a_process_killed_in_the_loop_leaves_each_effect_once(make_loop, way, point, victim):
    site = make_loop(way=way)
    with reading(site) as findings:
        killed = site.strike(Drill(point, victim.deed, epoch=MIDDLE), victim.code)
        site.finish()
    assert findings == []
    killed.wait_until_alone()


@pytest.fixture
def relayed() -> Iterator[tuple[Kafka, Proxy]]:
    """A broker that may be killed, and a line to it on which a request can be caught. Name it before `make_loop_on`."""
    need_kafka()
    with relayed_kafka() as both:
        yield both


@pytest.mark.parametrize(("way", "victim", "fate"), ENDINGS)
def test_a_process_killed_in_the_middle_of_commit_leaves_each_effect_once(relayed, make_loop_on, way, victim, fate):
    """The driver has asked for the end. The request is lost; is done, and nobody hears of it; or is with the broker when that dies."""
    kafka, proxy = relayed
    site = make_loop_on(kafka, servers=f"127.0.0.1:{proxy.port}", way=way)
    with reading(site) as findings:
        driver = site.freeze(Drill("commit.apply" if way == "prepared" else "commit.kafka.ending", epoch=MIDDLE))
        caught = proxy.catch(request_mark(END_TXN, 4))
        driver.wake()
        caught.wait()
        if fate != "lost":
            caught.deliver(is_answered=fate == "done")
        if victim == "broker":
            site.onlooker.close()
            kafka.kill()
            kafka.restart()
        else:
            driver.kill_jvm() if victim == "jvm" else driver.kill()
        caught.lose()
        code = driver.wait()
        site.finish()
    assert findings == []
    # A broker is found again, or the next run finds it.
    assert code in {"jvm": (FAILED,), "driver": (KILLED,), "broker": (DONE, FAILED, UNKNOWN)}[victim], site.story()
    driver.wait_until_alone()


@pytest.fixture
def mortal() -> Iterator[Kafka]:
    """A broker that may be killed. Name it before `make_loop_on`, whose topics are dropped from it."""
    need_kafka()
    with running_kafka() as kafka:
        yield kafka


@pytest.mark.parametrize("way", ["spooled", "prepared", "sharded"])
@pytest.mark.parametrize("point", ["begin", "decide.after", "commit.kafka.ending", "commit.applied"])
def test_a_broker_killed_under_spark_leaves_each_effect_once(mortal, make_loop_on, way, point):
    """It dies while the loop stands at a point, and is back when it goes on; Spark and pakka find it again, or the next run does."""
    if way != "spooled" and point == "commit.kafka.ending":
        point = "commit.slot"
    site = make_loop_on(mortal, way=way)
    with reading(site) as findings:
        driver = site.freeze(Drill(point, epoch=MIDDLE))
        site.onlooker.close()
        mortal.kill()
        mortal.restart()
        driver.wake()
        driver.wait()
        site.finish()
    assert findings == []


@pytest.mark.parametrize(("way", "point"), ZOMBIES)
def test_a_driver_of_the_loop_that_wakes_after_another_took_over_delivers_nothing(make_loop, way, point):
    """Stopped at a point, some of them with open transactions. The next one delivers all; not one record comes from the first, not even
    one that is never committed.
    """
    site = make_loop(way=way)
    with reading(site) as findings:
        zombie = site.freeze(Drill(point, epoch=MIDDLE))
        site.finish()
        before = site.written()
        zombie.wake()
        assert zombie.wait() == FENCED, site.story()
        site.check()
    assert findings == []
    assert zombie.error["error"] == "FencedError"
    assert "fence 1 lost to fence 2" in zombie.error["message"]
    assert site.written() == before
    zombie.wait_until_alone()


def test_an_epoch_without_a_ledger_record_is_caught_in_the_loop(make_loop):
    """The tests above can fail: this twin of the sink commits its epoch a second time."""
    site = make_loop(kind="unrecorded")
    with reading(site) as findings:
        site.strike(Drill("commit.after", epoch=0), DRIVER.code)
        site.start().wait()
    assert any("came into sight again" in finding for finding in findings)
    assert any("records twice" in finding for finding in site.judge.rows())
