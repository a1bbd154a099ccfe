"""`pakka check`: the guarantee, with the reason for each part."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from pakka.cli import option
from pakka.cli.place import is_on_network, places, trouble
from pakka.cli.render import Screen
from pakka.config import load
from tests.cli.conftest import PIPELINE

CLUSTER = PIPELINE + "spark: {spark.master: 'spark://host:7077'}\n"
PRINTED = PIPELINE + "dead_letters: {console: }\n"


def test_the_guarantee_is_told_with_its_reasons(pakka, refunds):
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout
        == """\
pipeline `refunds` is exactly-once

part            holds  because
source          yes    rows are counted from the offset, so an epoch is the same each time it runs
sink `refunds`  yes    spooled: rows, ledger and fence change under one lock
durability      yes    single-node: state, spool and writers are on this machine, and outlive any of its processes
fencing         yes    state store and sinks each refuse a driver whose fence is older
"""
    )


def test_what_is_missing_is_named_with_what_would_mend_it(pakka, refunds):
    refunds.write_text(CLUSTER)
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout
        == """\
pipeline `refunds` is at-least-once

part            holds  because
source          yes    rows are counted from the offset, so an epoch is the same each time it runs
sink `refunds`  yes    spooled: rows, ledger and fence change under one lock
durability      NO     Spark runs on spark://host:7077, and the state store is a file of the driver's machine, which another \
driver cannot see
fencing         yes    state store and sinks each refuse a driver whose fence is older

to mend it:
  durability: use a state store that every machine reaches, `state: postgresql://...`
"""
    )


def test_a_requirement_that_is_met_is_silent(pakka, refunds):
    assert pakka("check", "refunds.yaml", "--require", "exactly-once").exit_code == 0


def test_a_requirement_that_is_not_met_fails(pakka, refunds):
    refunds.write_text(CLUSTER)
    result = pakka("check", "refunds.yaml", "--require", "exactly-once")
    assert result.exit_code == 1
    assert result.stdout.startswith("pipeline `refunds` is at-least-once\n")
    assert result.stderr == (
        "error: pipeline `refunds` is at-least-once, and exactly-once is required: durability: Spark runs on "
        "spark://host:7077, and the state store is a file of the driver's machine, which another driver cannot see; nothing "
        "was started\n\nhint: use a state store that every machine reaches, `state: postgresql://...`\n"
    )


def test_at_least_once_is_always_met(pakka, refunds):
    refunds.write_text(CLUSTER)
    assert pakka("check", "refunds.yaml", "--require", "at-least-once").exit_code == 0


def test_a_sink_that_cannot_keep_the_contract_is_named(pakka, refunds):
    refunds.write_text(PRINTED)
    told = json.loads(pakka("check", "refunds.yaml", "--json").stdout)
    assert told["level"] == "at-least-once"
    assert {p["name"]: p["holds"] for p in told["parts"]} == {
        "source": True,
        "sink `refunds`": True,
        "sink `dead_letters`": False,
        "durability": True,
        "fencing": False,
    }


def test_programs_get_all_of_it(pakka, refunds, current_directory):
    told = json.loads(pakka("check", "refunds.yaml", "--json").stdout)
    assert told == {
        "pipeline": "refunds",
        "level": "exactly-once",
        "parts": told["parts"],
        "source": "10 numbered rows an epoch",
        "sinks": {"refunds": "memory:refunds"},
        "places": [
            {"field": "checkpoint", "path": f"{current_directory}/.pakka/checkpoints/refunds", "trouble": ""},
            {"field": "spool", "path": ".pakka/spool", "trouble": ""},
            {"field": "state", "path": ".pakka/state.db", "trouble": ""},
        ],
        "settings": told["settings"],
    }
    assert [(s["of"], s["name"], s["value"], s["severity"]) for s in told["settings"]] == [
        ("the state store", "file system", "ext4", "fine"),
        ("the state store", "fsync", "honoured", "fine"),
        ("the spool", "file system", "ext4", "fine"),
        ("the spool", "fsync", "honoured", "fine"),
        ("the spool", "rename", "ext4", "fine"),
    ]
    assert told["parts"][0] == {
        "name": "source",
        "holds": True,
        "because": "rows are counted from the offset, so an epoch is the same each time it runs",
        "mend": "",
    }


WEAK = "fsync of the state store"


def test_a_setting_that_breaks_the_guarantee_is_a_part_that_is_missing(pakka, refunds, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libeatmydata.so")
    result = pakka("check", "refunds.yaml")
    assert result.exit_code == 0
    assert result.stdout.startswith("pipeline `refunds` is at-least-once\n")
    assert f"{WEAK}  NO     it is libeatmydata: libeatmydata answers every fsync without doing it" in result.stdout
    assert result.stdout.endswith(f"to mend it:\n  {WEAK}: unset LD_PRELOAD\n  fsync of the spool: unset LD_PRELOAD\n")
    refused = pakka("check", "refunds.yaml", "--require", "exactly-once")
    assert refused.exit_code == 1
    assert (
        "pipeline `refunds` is at-least-once, and exactly-once is required: fsync of the state store" in refused.stderr
    )


def test_a_setting_worth_knowing_is_a_note(pakka, refunds, current_directory):
    mounts = current_directory.parent / "mounts"
    mounts.write_text("tmpfs / tmpfs rw 0 0\n")
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "pipeline `refunds` is exactly-once")
    assert result.stderr == (
        "note: the state store: file system is tmpfs: rows outlive the process, and are gone when the machine stops "
        "(choose a path on a disk)\n"
        "note: the spool: file system is tmpfs: rows outlive the process, and are gone when the machine stops "
        "(choose a path on a disk)\n"
    )


def test_a_state_store_that_does_not_answer_is_told_without_its_password(pakka, refunds):
    refunds.write_text(PIPELINE + "state: postgresql://ana:hunter22@127.0.0.1:1/pakka\n")
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "state store postgresql://ana@127.0.0.1:1/pakka: " in result.stderr
    assert "hunter22" not in result.stderr


def test_the_settings_of_a_database_that_is_there_are_read(pakka, refunds, current_directory):
    refunds.write_text(PIPELINE.replace("memory: {space: refunds}", "sqlite: {path: a.db, table: t}"))
    with closing(sqlite3.connect(current_directory / "a.db")) as db:
        db.execute("CREATE TABLE t (id INTEGER)")
    before = (current_directory / "a.db").read_bytes()
    told = json.loads(pakka("check", "refunds.yaml", "--json").stdout)
    assert {s["name"]: s["value"] for s in told["settings"] if s["of"] == "sink `refunds`"} == {
        "file system": "ext4",
        "fsync": "honoured",
        "locks": "ext4",
        "journal_mode": "delete",
        "synchronous": "extra",
    }
    assert (current_directory / "a.db").read_bytes() == before


def test_nothing_is_written(pakka, refunds, current_directory):
    pakka("check", "refunds.yaml")
    assert [p.name for p in current_directory.iterdir()] == ["refunds.yaml"]


def test_a_path_that_cannot_be_written_to_fails(pakka, refunds, current_directory):
    (current_directory / "file").write_text("")
    refunds.write_text(PIPELINE + "spool: file/spool\n")
    result = pakka("check", "refunds.yaml")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: pipeline `refunds` cannot write where it has to: spool: file/spool: {current_directory}/file is not a "
        "directory; nothing was started\n\nhint: change the path, or its permissions\n"
    )


def test_the_environment_is_hidden_in_what_is_told(pakka, refunds, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter22")
    refunds.write_text(PIPELINE.replace("space: refunds", "space: '${env:SECRET}'") + "spool: 'x/${env:SECRET}'\n")
    told = json.loads(pakka("check", "refunds.yaml", "--json").stdout)
    assert told["sinks"] == {"refunds": "memory:${env:SECRET}"}
    assert "hunter22" not in json.dumps(told)


def test_a_wrong_file_is_wrong_use(pakka, refunds):
    refunds.write_text(PIPELINE + "slot: 3\n")
    result = pakka("check", "refunds.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: refunds.yaml:6:1: slot: there is no such field\n  6 | slot: 3\n    | ^\n\nhint: did you mean `slots`?\n"
    )


def test_a_python_process_beside_the_file_is_found(pakka, refunds, current_directory):
    (current_directory / "beside.py").write_text("def clean(frame): return frame\n")
    refunds.write_text(PIPELINE + "process: {python: 'beside:clean'}\n")
    assert pakka("check", "refunds.yaml").exit_code == 0


def test_every_local_path_of_a_pipeline_is_looked_at(refunds):
    refunds.write_text(
        PIPELINE.replace("memory: {space: refunds}", "sqlite: {path: out/a.db, table: t}")
        + "state: postgresql://db/pakka\ncheckpoint: s3a://bucket/checkpoint\n"
    )
    assert [(p.field, p.trouble) for p in places(load(refunds))] == [("sink `refunds`", ""), ("spool", "")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_the_right_to_write_is_found(current_directory):
    (current_directory / "closed").mkdir(mode=0o555)
    assert trouble(current_directory / "closed" / "new").endswith("closed may not be written to")


def test_a_place_without_the_right_to_write_is_found(current_directory, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert trouble(current_directory / "new") == f"{current_directory} may not be written to"


def test_a_file_that_is_there_is_judged_itself(current_directory):
    (current_directory / "state.db").write_text("")
    assert trouble(current_directory / "state.db") == ""


MOUNTS = r"""/dev/sda1 / ext4 rw 0 0
server:/export /mnt nfs4 rw 0 0
/dev/sdb1 /mnt/local\040disk ext4 rw 0 0
bucket /data/bucket fuse.s3fs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/spool", False),
        ("/mnt", True),
        ("/mnt/spool", True),
        ("/mnt/local disk/spool", False),
        ("/mntx/spool", False),
        ("/data/bucket/spool", True),
    ],
)
def test_a_network_file_system_is_told_from_a_disk(current_directory, path, expected):
    mounts = current_directory / "mounts"
    mounts.write_text(MOUNTS)
    assert is_on_network(path, mounts) is expected


def test_without_a_mount_table_nothing_is_known_to_be_shared(current_directory):
    assert is_on_network("/mnt/spool", current_directory / "none") is False


def test_a_command_that_is_told_can_be_typed_in_a_shell(refunds, monkeypatch):
    monkeypatch.setenv("KAFKA_SERVERS", "broker1:9092")
    sink = "kafka: {servers: '${env:KAFKA_SERVERS}', topic: refunds}"
    refunds.write_text(PIPELINE.replace("memory: {space: refunds}", sink))
    screen = Screen()
    option.load(str(refunds), screen)
    told = "no topic at broker1:9092: kafka-topics.sh --bootstrap-server broker1:9092 --create"
    assert screen.hide(told) == (
        "no topic at ${env:KAFKA_SERVERS}: kafka-topics.sh --bootstrap-server $KAFKA_SERVERS --create"
    )
