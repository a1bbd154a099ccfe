"""What the JVM and its workers print goes where it was told to; and where they meet."""

import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from pakka.sinks.files import JsonSink, ParquetSink
from pakka.sinks.sqlite import SqliteSink
from pakka.sources.kafka import KafkaSource
from pakka.spark import daemon
from pakka.spark.session import _avro_limits, _output_to, _preload, _sockets

_LOUD = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"]


def test_a_child_prints_into_the_log(tmp_path, capfd):
    log = tmp_path / "logs" / "spark.log"
    with _output_to(log):
        subprocess.run(_LOUD, check=True)
    subprocess.run(_LOUD, check=True)
    assert sorted(log.read_text().split()) == ["err", "out"]
    assert capfd.readouterr() == ("out\n", "err\n")


def test_without_a_log_a_child_prints_to_stderr(capfd):
    with _output_to(None):
        subprocess.run(_LOUD, check=True)
    out, err = capfd.readouterr()
    assert (out, sorted(err.split())) == ("", ["err", "out"])


def test_workers_meet_the_jvm_in_a_directory_that_only_this_user_may_enter():
    place = Path(_sockets()["spark.python.unix.domain.socket.dir"])
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_temporary_directory_whose_name_is_too_long_for_a_socket_leaves_them_to_tcp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 20)))
    assert _sockets() == {}


def test_workers_find_the_sinks_of_the_pipeline_loaded_and_the_users_own_not():
    class Own(SqliteSink):
        """Of a module that may do anything."""

    sinks = [ParquetSink("out"), JsonSink("other"), SqliteSink("out.db", "rows"), Own("own.db", "rows")]
    assert _preload(sinks)["spark.executorEnv.PAKKA_PRELOAD"] == "pakka.sinks.files,pakka.sinks.sqlite"


def test_the_process_that_workers_are_forked_from_loads_what_it_is_told_before_it_forks(monkeypatch):
    seen = []
    monkeypatch.setenv(daemon.PRELOAD, "pakka.sinks.files,pakka.sinks.sqlite")
    monkeypatch.setattr(daemon, "import_module", seen.append)
    monkeypatch.setattr("pyspark.daemon.manager", lambda: seen.append("manager"))
    monkeypatch.setattr("gc.freeze", lambda: None)
    daemon.main()
    assert seen == [*daemon._EVERY_TASK, "pakka.sinks.files", "pakka.sinks.sqlite", "manager"]


def test_where_avro_is_read_no_value_may_claim_more_memory_than_a_record_needs():
    plain, avro = (
        KafkaSource("a:1", "t", format=f, schema=s).jars_for("4.9.9") for f, s in (("json", "id INT"), ("avro", "{}"))
    )
    assert _avro_limits({}, None) == _avro_limits({}, plain) == {}
    mine = "-Dorg.apache.avro.limits.string.maxLength=5"
    made = _avro_limits({"spark.driver.defaultJavaOptions": mine, "spark.driver.extraJavaOptions": "-Dx=1"}, avro)
    limits = (
        "-Dorg.apache.avro.limits.string.maxLength=67108864 -Dorg.apache.avro.limits.bytes.maxLength=67108864 "
        "-Dorg.apache.avro.limits.collectionItems.maxLength=8388608"
    )
    # The last one counts, and what the user has as `extraJavaOptions` is left to him.
    assert made == {
        "spark.driver.defaultJavaOptions": f"{limits} {mine}",
        "spark.executor.defaultJavaOptions": limits,
    }
