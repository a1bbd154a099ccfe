"""`pakka check`: the guarantee, with the reason for each part."""

import json
import os

import pytest

from pakka.cli.place import is_on_network, places, trouble
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
    }
    assert told["parts"][0] == {
        "name": "source",
        "holds": True,
        "because": "rows are counted from the offset, so an epoch is the same each time it runs",
        "mend": "",
    }


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
