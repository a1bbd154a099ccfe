"""The Spark session: quiet, on this machine unless told otherwise, and with settings that were measured to help."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import pakka
from pakka.contract.source import Jars
from pakka.errors import UnavailableError, UsageError
from pakka.spark import daemon, pace
from pakka.spark.jars import check_loaded, not_resolved, with_jars

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine; a task that fails may be tried four times, as on a cluster."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The epoch's time and every timestamp mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Saves about 60 ms an epoch on local disks. Both managers check for an existing entry and then rename, so neither
    # alone keeps two drivers apart; the fence does.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A batch bounded by bytes is measured after every row, which costs more than all the rest of the way to Python: 2 million
    # rows took 2.4 s, and 1.4 s bounded by rows alone. From the second epoch on wide rows come fewer at a time; where the first
    # may have rows of megabytes, it wants the bytes back.
    **pace.SETTINGS,
    # A column or a value may be called `${env:HOME}` and mean just that. What a pipeline file takes from the
    # environment, pakka has put in before.
    "spark.sql.variable.substitute": "false",
}
_AVRO = "spark-avro"
_AVRO_BYTES_MAX = 64 * 1024 * 1024
# Avro makes room for as much as a value claims to be, before it looks whether it is there: a broken one of ten bytes ends the JVM for want of
# 2 GiB, and meets the next one. Records of Kafka are rarely above 1 MiB. An item of a list costs eight bytes of room.
_AVRO_LIMITS = {
    "string": _AVRO_BYTES_MAX,
    "bytes": _AVRO_BYTES_MAX,
    "collectionItems": _AVRO_BYTES_MAX // 8,
}
_SOCKET_PATH_MAX = 104
_TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}


def open_session(
    name: str, settings: Mapping[str, str], log: Path | None, jars: Jars | None = None, sinks: Iterable[object] = ()
) -> SparkSession:
    """Start Spark, or take the session there is. Its talk goes to `log`; None lets it through to the terminal.

    `jars` is what the source needs beside Spark; of `sinks` the modules are loaded before there are tasks.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        check_loaded(active, jars)
        return active
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise UsageError(
            "Spark needs Java 17 or newer, and there is none on this machine; nothing was started",
            hint="on Debian: apt-get install openjdk-17-jre-headless; elsewhere set JAVA_HOME",
        )
    # Executors on this machine must run the same Python, with the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = settings.get("spark.master", LOCAL_MASTER)
    builder = SparkSession.builder.appName(name).master(master)
    local = _LOCAL_SETTINGS | _sockets() | _preload(sinks) if master.startswith("local") else {}
    asked = {**_SETTINGS, **local, **with_jars(settings, jars), **_avro_limits(settings, jars)}
    for key, value in asked.items():
        builder = builder.config(key, value)
    printed_before = log.stat().st_size if log is not None and log.exists() else 0
    try:
        with _output_to(log):
            session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        printed = log.read_bytes()[printed_before:].decode(errors="replace") if log is not None else ""
        if trouble := not_resolved(jars, asked, printed):
            raise trouble from error
        where = f"see {log}" if log else "see Spark's own messages above"
        raise UnavailableError(f"Spark did not start with master {master}: {error}", hint=where) from error
    session.sparkContext.setLogLevel("ERROR" if log is not None else "WARN")
    if log is not None:
        # These print the stack of every error that passes them; ours are raised, and told once.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        for logger in _TALKATIVE:
            PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    if not master.startswith("local"):
        _ship(session)
    return session


def _avro_limits(settings: Mapping[str, str], jars: Jars | None) -> dict[str, str]:
    """Where Avro is read, no value may claim more memory than a record can need."""
    if jars is None or not any(_AVRO in package for package in jars.packages):
        return {}
    options = " ".join(f"-Dorg.apache.avro.limits.{kind}.maxLength={most}" for kind, most in _AVRO_LIMITS.items())
    # Spark puts these before `extraJavaOptions`, wherever the user has those from, and of two that set the same the last one counts.
    names = [f"spark.{who}.defaultJavaOptions" for who in ("driver", "executor")]
    return {name: f"{options} {settings.get(name, '')}".strip() for name in names}


def _sockets() -> dict[str, str]:
    """Let Spark and its Python workers talk without TCP, whose delayed acknowledgements cost every small epoch 40 ms."""
    # Longer paths are refused by the system; the shortest limit is that of macOS.
    is_short = (
        len(tempfile.gettempdir()) + len("/pakka-12345678/.") + len(str(uuid.uuid4())) + len(".sock") < _SOCKET_PATH_MAX
    )
    if not hasattr(socket, "AF_UNIX") or not is_short:
        return {}
    directory = tempfile.mkdtemp(prefix="pakka-")
    # Spark leaves some of them behind.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": directory}


def _preload(sinks: Iterable[object]) -> dict[str, str]:
    """On this machine workers are forked from a process that has imported pakka; a cluster's has not got it when it starts."""
    modules = {type(sink).__module__ for sink in sinks}
    # What a module of the user's does when it is imported, it should do in a worker.
    own = sorted(module for module in modules if module.startswith(f"{pakka.__name__}."))
    return {"spark.python.daemon.module": daemon.__name__, f"spark.executorEnv.{daemon.PRELOAD}": ",".join(own)}


def _ship(session: SparkSession) -> None:
    """Send this very package to the executors of a cluster."""
    root = Path(pakka.__file__).parent
    archive = Path(tempfile.mkdtemp(prefix="pakka-")) / "pakka.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, path.relative_to(root.parent))
    session.sparkContext.addPyFile(str(archive))


@contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """Let the JVM and its workers inherit a log file, or stderr, for all that they print: some of it no logging setting can
    silence, and stdout is for what pakka tells.
    """
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    file = os.dup(2) if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    saved = {fd: os.dup(fd) for fd in (1, 2)}
    try:
        for fd in saved:
            os.dup2(file, fd)
        yield
    finally:
        for fd, old in saved.items():
            os.dup2(old, fd)
            os.close(old)
        os.close(file)
