"""Apache Kafka brokers on this machine, from the jars that `make setup-kafka` fetches: for the tests and for `make kafka`.

::

    with running_kafka() as kafka:
        ...connect to kafka.bootstrap...

Every node is broker and controller at once (KRaft), in a process of its own, on free ports, with its data under one
directory. It needs nothing but Java and the standard library.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / ".venv" / "share" / "kafka"
START_S = 90
HEAP_MB = 400
ARCHIVE = JARS / "classes.jsa"
"""Kafka's classes as `make setup-archive` has left them, which saves two fifths of the processor time of a start."""
# Half of that time once more, and less memory. Not for measuring how fast Kafka is.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={ARCHIVE}"]

SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # A topic that is missing is a mistake that tests have to see.
    "auto.create.topics.enable": "false",
    # Few partitions of the broker's own topics: they are created at the first transaction and at the first group.
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    # Expired transactions are looked for every second and not every ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After kill -9 a broker may come back only when its old session has run out.
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    # 128 MB otherwise, of a heap that is not much larger.
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
}
"""What differs from Kafka's own defaults. Nothing here makes a broker less durable than those."""


class BrokerError(RuntimeError):
    """A broker that cannot be formatted or does not come up. The message holds the end of its log."""


class Node:
    """One broker and controller: a process that can be killed, frozen and started again on its data."""

    def __init__(self, number: int, root: Path, java: Sequence[str]) -> None:
        self.number = number
        self.root = root / f"node-{number}"
        self.log = self.root / "log"
        self.port, self.controller_port = 0, 0
        self.relay: tuple[int, int] | None = None
        self._properties = self.root / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self.java = java

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, f"node {self.number} is not running"
        return self._process.pid

    def configure(self, settings: Mapping[str, str]) -> None:
        own = {"node.id": str(self.number), "log.dirs": str(self.root / "data"), **self._listeners()}
        lines = [f"{name}={value}\n" for name, value in {**own, **settings}.items()]
        self.root.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(lines))

    def _listeners(self) -> dict[str, str]:
        ports = {"PLAINTEXT": (self.port, self.port), "CONTROLLER": (self.controller_port, self.controller_port)}
        if self.relay is not None:
            ports["RELAYED"] = self.relay
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{open_at}" for name, (open_at, _) in ports.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{told}" for name, (_, told) in ports.items()),
        }

    def format(self, cluster_id: str, features: Mapping[str, int]) -> None:
        """Once, before the first start."""
        command = [*self.java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        for name, level in features.items():
            command += ["--feature", f"{name}={level}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_S)
        if done.returncode:
            raise BrokerError(f"node {self.number} cannot be formatted:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def start(self) -> None:
        """The process, and no more: a quorum answers only when most of its nodes are there."""
        assert self._process is None, f"node {self.number} is running"
        # Whoever is killed cannot stop its brokers; where the system can, a broker is told of the death itself.
        last_will = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command = [*last_will, *self.java, "kafka.Kafka", str(self._properties)]
        with open(self.log, "ab") as log:
            # In a group of its own: Ctrl-C is for the program that started it.
            self._process = subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log, process_group=0)

    def stop(self) -> None:
        """As an administrator would: it hands over, writes down where it stands and ends."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=30)
            self.kill()

    def kill(self) -> None:
        """SIGKILL. What the system had taken over from it is on disk, as with any process that dies."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=20)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP makes a broker that is there and does not answer; SIGCONT lets it go on."""
        os.kill(self.pid, number)
        if number is signal.SIGSTOP:
            # One thread takes the signal and holds the others; on a busy machine they may answer for a while until it does.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def forget_exit(self) -> None:
        """Of a process that ended by itself."""
        if not self.is_alive():
            self.kill()

    def log_end(self, size: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""


class Kafka:
    """A cluster of one node, or of more."""

    def __init__(
        self,
        root: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        heap_mb: int = HEAP_MB,
        is_quick: bool = True,
        relay: tuple[int, int] | None = None,
    ) -> None:
        """`settings` are server properties beside the ones above, or instead of them; `features` as StorageTool has them.

        `is_quick` is for tests, which start brokers all the time; a benchmark wants a JVM that compiles well. `relay` is one
        more port to listen at, and the port that clients who come in there are sent to: a broker tells every client where
        it is to be found, so a proxy that it does not know of is left at once. For one node.
        """
        assert relay is None or nodes == 1, "a relay is for one node"
        java = java_command(heap_mb, is_quick)
        self.nodes = [Node(number, root, java) for number in range(1, nodes + 1)]
        self.nodes[0].relay = relay
        self.settings = dict(settings or {})
        self._features = dict(features or {})

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as `bootstrap.servers` has it."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def create(self, port: int = 0) -> None:
        """Choose ports, write the properties, format. The first node is given `port`, if there is one."""
        ports = free_ports(2 * len(self.nodes))
        for node in self.nodes:
            node.port, node.controller_port = ports.pop(), ports.pop()
        self.nodes[0].port = port or self.nodes[0].port
        self.configure()
        cluster_id = uuid.uuid4().hex[:22]
        for node in self.nodes:
            node.format(cluster_id, self._features)

    def configure(self) -> None:
        """Write the properties of every node; they are read at its next start."""
        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller_port}" for node in self.nodes)
        copies = min(3, len(self.nodes))
        replication = {
            "controller.quorum.voters": voters,
            "default.replication.factor": str(copies),
            "min.insync.replicas": str(max(1, copies - 1)),
            "offsets.topic.replication.factor": str(copies),
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str(max(1, copies - 1)),
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": str(max(1, copies - 1)),
        }
        for node in self.nodes:
            node.configure({**SETTINGS, **replication, **self.settings})

    def start(self) -> None:
        """Every node that is not running, and wait until each of them knows all that are."""
        for node in self.nodes:
            node.forget_exit()
            if not node.is_alive():
                node.start()
        self.await_nodes(self.nodes)

    restart = start

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.stop()

    def kill(self) -> None:
        """SIGKILL to all, one right after the other."""
        for node in self.nodes:
            if node.is_alive():
                node.signal(signal.SIGKILL)
        for node in self.nodes:
            node.kill()

    def signal(self, number: signal.Signals) -> None:
        for node in self.nodes:
            node.signal(number)

    def await_nodes(self, nodes: Sequence[Node]) -> None:
        """Until each of these answers, and knows of as many brokers as these are."""
        give_up = time.monotonic() + START_S
        for node in nodes:
            while count_brokers(node.port) < len(nodes):
                if time.monotonic() > give_up or not node.is_alive():
                    raise BrokerError(f"Kafka's node {node.number} does not come up:\n{node.log_end()}")
                time.sleep(0.05)

    def await_end(self) -> None:
        """Until a node ends by itself, which it should not."""
        while all(node.is_alive() for node in self.nodes):
            time.sleep(0.5)
        dead = next(node for node in self.nodes if not node.is_alive())
        raise BrokerError(f"Kafka's node {dead.number} has ended:\n{dead.log_end()}")


def count_brokers(port: int) -> int:
    """How many brokers the one at this port knows to be up; 0 while it does not answer.

    A port that can be connected to is open long before anybody reads from it, and a broker that answers may still be fenced
    off by the controller.
    """
    answer = _metadata(port, topics=0)
    return int(struct.unpack(">ii", answer[:8])[1]) if answer else 0


def knows_topic(port: int, topic: str) -> bool:
    """Whether the broker at this port has heard of a topic; another one of the same cluster may have, or not."""
    return topic.encode() in _metadata(port, topics=-1)


def _metadata(port: int, topics: int) -> bytes:
    """A Metadata request by hand, to this very broker: about no topics (0) or about all (-1). Empty without an answer."""
    client_id = b"pakka"
    request = struct.pack(f">hhih{len(client_id)}si", 3, 1, 7, len(client_id), client_id, topics)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as line:
            line.sendall(struct.pack(">i", len(request)) + request)
            with line.makefile("rb") as answer:
                return answer.read(struct.unpack(">i", answer.read(4))[0])
    except (OSError, struct.error):
        return b""


def is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def free_ports(count: int) -> list[int]:
    """All different: each is held until the last is found.

    Not the ones that the system itself would give: those are also lent to the other end of any connection, so that a
    broker which was killed could find its port taken when it comes back.
    """
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.randint(20_000, 30_000)
            with suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                _reserve(port)
                found.append(port)
        return found


_reserved: list[socket.socket] = []


def _reserve(port: int) -> None:
    """Against others who look for free ports, as long as this process lives: a broker takes its port when Java has started, and again
    when it comes back. `OSError`: somebody has.
    """
    if sys.platform == "linux":
        # An abstract name: it is nobody's when its owner has ended, however that was.
        owner = socket.socket(socket.AF_UNIX)
        owner.bind(f"\0pakka-port-{port}")
        _reserved.append(owner)


def find_jars() -> Path | None:
    """Where `make setup-kafka` has put them."""
    return JARS if (JARS / "jars.lock").exists() else None


def java_command(heap_mb: int, is_quick: bool) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    options = [
        f"-Xms{min(heap_mb, 64)}m",
        f"-Xmx{heap_mb}m",
        "-XX:+ExitOnOutOfMemoryError",
        *(QUICK if is_quick else []),
    ]
    logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    return [str(Path(home) / "bin" / "java") if home else "java", *options, logging, "-cp", f"{JARS}/*"]


@contextmanager
def running_kafka(port: int = 0, **options: Any) -> Iterator[Kafka]:
    """A cluster that is gone afterwards, with its data. The options are those of `Kafka`."""
    root = Path(tempfile.mkdtemp(prefix="pakka-kafka-"))
    kafka = Kafka(root, **options)
    try:
        kafka.create(port)
        kafka.start()
        yield kafka
    finally:
        kafka.kill()
        shutil.rmtree(root, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """`make kafka`: one broker in the foreground, until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="make kafka", description="Run Kafka here until Ctrl-C; its data goes with it."
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="where clients connect (%(default)s); 0 takes a free one"
    )
    parser.add_argument("--nodes", type=int, default=1, help="how many brokers (%(default)s)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a server property; repeatable"
    )
    asked = parser.parse_args(arguments)
    if find_jars() is None:
        parser.exit(1, "kafka: there is no broker here; `make setup-kafka` fetches it\n")
    if asked.port and not is_free(asked.port):
        parser.exit(1, f'kafka: port {asked.port} is taken; name another with `make kafka ARGS="--port 0"`\n')
    # Whoever tries an example by hand does not expect to create its topics first.
    settings = {"auto.create.topics.enable": "true", **dict(pair.split("=", 1) for pair in asked.set)}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with running_kafka(asked.port, nodes=asked.nodes, settings=settings, heap_mb=1024, is_quick=False) as kafka:
            sys.stdout.write(f"kafka: ready at {kafka.bootstrap}; Ctrl-C ends it and removes its data\n")
            sys.stdout.flush()
            kafka.await_end()
    except BrokerError as error:
        sys.stderr.write(f"kafka: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stdout.write("kafka: ended\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
