"""The life of an epoch in files: invisible, then visible once, whatever crashes and whoever comes back."""

import json
import os
import pickle
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pydantic import TypeAdapter

from pakka import points
from pakka.errors import FencedError, SchemaError, SinkError
from pakka.model.id import Binding
from pakka.model.outcome import Kind
from pakka.sinks.files import CsvSink, JsonSink, ParquetSink
from tests.unit.sinks.files_kit import (
    READERS,
    Driver,
    epoch,
    expected_ids,
    ids,
    output,
    read_pyarrow,
    sink_at,
    staged,
    table,
)


@pytest.fixture(params=[(), ("merchant",)], ids=["plain", "partitioned"])
def sink(request, tmp_path):
    return sink_at(tmp_path, partition_by=request.param)


@pytest.fixture
def driver(sink):
    return Driver(sink, 1)


# The life of an epoch


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("reader", READERS)
def test_an_epoch_is_invisible_until_its_commit(sink, driver, slots, reader):
    prepared = driver.prepare(0, slots)
    assert ids(sink, reader) == {}
    assert driver.commit(0, prepared).kind is Kind.COMMITTED
    assert ids(sink, reader) == expected_ids(0, slots)
    assert staged(sink) == []


def test_pandas_reads_the_directory_and_gains_the_epoch(sink, driver):
    driver.deliver(0)
    driver.deliver(12)
    frame = pd.read_parquet(output(sink))
    assert frame.groupby(frame["pakka_epoch"].astype(int))["id"].count().to_dict() == {0: 100, 12: 100}


def test_a_slot_without_rows_leaves_no_file(sink, driver):
    empty = driver.prepare_slot(0, 1, rows=0)
    assert (empty.rows, empty.detail) == (0, {"files": []})
    assert staged(sink) == []
    prepared = [*driver.prepare(0, 1), empty]
    assert driver.commit(0, prepared).kind is Kind.COMMITTED
    assert ids(sink) == expected_ids(0)


def test_an_epoch_without_records_is_entered_in_the_ledger(sink, driver):
    assert driver.commit(0, []).kind is Kind.COMMITTED
    assert driver.commit(0, []).kind is Kind.ALREADY_COMMITTED
    assert os.listdir(output(sink) / "pakka_epoch=0") == ["_pakka.manifest"]
    entry = driver.committer.ledger().last
    assert (entry.epoch, entry.rows, entry.checksum) == (epoch(0), 0, "0" * 16)
    assert ids(sink) == {}


# The ledger


def test_the_manifest_names_what_is_in_the_directory(sink, driver):
    prepared = driver.prepare(0, 2)
    driver.commit(0, prepared)
    place = output(sink) / "pakka_epoch=0"
    manifest = json.loads((place / "_pakka.manifest").read_text())
    assert manifest["slots"] == [str(p.slot) for p in prepared]
    assert sum(rows for _, rows, _ in manifest["files"]) == manifest["rows"] == 200
    sizes = {str(p.relative_to(place)): p.stat().st_size for p in place.rglob("*.parquet")}
    assert sizes == {name: size for name, _, size in manifest["files"]}


def test_old_epochs_may_be_deleted_by_their_owner(sink, driver):
    for number in range(3):
        driver.deliver(number)
    shutil.rmtree(output(sink) / "pakka_epoch=0")
    again = Driver(sink, 2)
    assert again.committer.ledger().last.epoch == epoch(2)
    again.deliver(3)
    assert ids(sink) == expected_ids(1) + expected_ids(2) + expected_ids(3)


def test_a_newest_epoch_without_its_manifest_is_an_error_that_names_it(sink, driver):
    driver.deliver(0)
    (output(sink) / "pakka_epoch=0" / "_pakka.manifest").unlink()
    with pytest.raises(SinkError, match=r"pakka_epoch=0 has no _pakka\.manifest"):
        driver.committer.ledger()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"v": 1}'])
def test_a_damaged_manifest_is_an_error_that_names_it(sink, driver, damage):
    driver.deliver(0)
    (output(sink) / "pakka_epoch=0" / "_pakka.manifest").write_text(damage)
    with pytest.raises(SinkError, match="is damaged"):
        driver.committer.ledger()


def test_a_directory_that_somebody_else_made_is_not_touched(sink, driver):
    place = output(sink) / "pakka_epoch=0"
    place.mkdir()
    (place / "mine.txt").write_text("hands off")
    prepared = driver.prepare(0)
    with pytest.raises(SinkError, match=r"has no _pakka\.manifest"):
        driver.commit(0, prepared)
    assert os.listdir(place) == ["mine.txt"]
    shutil.rmtree(place)
    assert driver.commit(0, prepared).kind is Kind.COMMITTED


def test_other_names_beside_the_epochs_are_nothing_to_us(sink, driver):
    driver.deliver(3)
    for name in ("pakka_epoch=", "pakka_epoch=x", "pakka_epoch=007", "pakka_epoch=-1", "README"):
        (output(sink) / name).mkdir()
    assert driver.committer.ledger().last.epoch == epoch(3)


def test_an_epoch_of_another_origin_is_not_taken_for_this_one(sink, driver):
    driver.deliver(0)
    prepared = driver.prepare(0, attempt=1)
    with pytest.raises(SinkError, match="nothing was changed"):
        driver.committer.commit_epoch(epoch(0, query="another"), prepared)
    assert ids(sink) == expected_ids(0)


# Abort


def test_a_refused_abort_aborts_none_of_its_records(sink, driver):
    committed, pending = driver.prepare(0), driver.prepare(1)
    driver.commit(0, committed)
    with pytest.raises(SinkError):
        driver.committer.abort([*pending, *committed])
    assert driver.commit(1, pending).kind is Kind.COMMITTED


# Records that are lost


def staged_files(sink):
    return [output(sink).with_name(".refunds.pakka") / n for n in staged(sink) if n.endswith(".parquet")]


def test_a_staged_file_that_is_gone_is_refused_with_its_name(sink, driver):
    prepared = driver.prepare(0, 2)
    gone = staged_files(sink)[-1]
    gone.unlink()
    outcome = driver.commit(0, prepared)
    assert outcome.kind is Kind.REFUSED
    assert gone.name in outcome.reason
    assert ids(sink) == {}


@pytest.mark.parametrize("change", ["torn", "longer"])
def test_a_staged_file_of_another_size_is_refused(sink, driver, change):
    prepared = driver.prepare(0, 2)
    path = staged_files(sink)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-1] if change == "torn" else content + b"x")
    outcome = driver.commit(0, prepared)
    assert (outcome.kind, f"was prepared with {len(content)}" in outcome.reason) == (Kind.REFUSED, True)
    assert ids(sink) == {}


def test_an_epoch_that_ran_again_after_a_loss_holds_only_the_new_run(sink, driver):
    """A commit crashed half-way, then a file was lost: what had been moved belongs to a decision that is gone."""
    lost = driver.prepare(0, 3)
    driver.crash("commit.move", lambda: driver.commit(0, lost))
    for path in staged_files(sink):
        if "epoch-0" not in str(path):
            path.unlink()
    again = Driver(sink, 2)
    assert again.commit(0, lost).kind is Kind.REFUSED
    assert again.commit(0, again.prepare(0, 3)).kind is Kind.COMMITTED
    assert ids(sink) == expected_ids(0, 3)
    again.committer.abort(again.committer.pending())
    assert staged(sink) == []


def test_half_a_commit_whose_decision_is_gone_is_aborted_without_a_trace(sink, driver):
    driver.crash("commit.move", lambda: driver.commit(0, driver.prepare(0, 3)))
    again = Driver(sink, 2)
    pending = again.committer.pending()
    assert len(pending) == 3
    again.committer.abort(pending)
    assert staged(sink) == []
    assert ids(sink) == {}


def test_aborting_a_loser_spares_the_winners_of_half_a_commit(sink, driver):
    loser = driver.prepare_slot(0, 0, rows=50, attempt=1)
    winners = driver.prepare(0, 3)
    driver.crash("commit.publish", lambda: driver.commit(0, winners))
    again = Driver(sink, 2)
    again.committer.abort([loser])
    assert again.commit(0, winners).kind is Kind.COMMITTED
    assert ids(sink) == expected_ids(0, 3)


def test_an_older_epoch_that_was_deleted_is_not_made_again(sink, driver):
    first = driver.prepare(0)
    driver.commit(0, first)
    driver.deliver(1)
    shutil.rmtree(output(sink) / "pakka_epoch=0")
    with pytest.raises(SinkError, match=r"epoch 0 is not in .*, and epoch 1 is"):
        driver.commit(0, first)
    assert ids(sink) == expected_ids(1)


# Crashes


@pytest.mark.parametrize("times", [2, 5])
def test_a_commit_may_crash_at_every_move_and_every_start(sink, driver, times):
    prepared = driver.prepare(0, 4)
    for fence in range(2, 2 + times):
        driver.crash("commit.move", lambda driver=driver: driver.commit(0, prepared))
        driver = Driver(sink, fence)
    assert driver.commit(0, prepared).kind is Kind.COMMITTED
    assert ids(sink) == expected_ids(0, 4)


def test_what_a_crash_after_the_rename_left_is_not_pending_even_without_a_decision(sink, driver):
    driver.crash("commit.published", lambda: driver.commit(0, driver.prepare(0, 2)))
    assert driver.committer.pending() == []
    again = Driver(sink, 2)
    assert again.committer.pending() == []
    assert again.committer.ledger().last.epoch == epoch(0)
    assert staged(sink) == []


# Fences


def test_an_old_driver_is_refused_even_where_nothing_is_left_to_do(sink, driver):
    driver.deliver(0)
    Driver(sink, 2)
    with pytest.raises(FencedError):
        driver.commit(0, [])


@pytest.mark.parametrize("point", ["commit.move", "commit.publish"])
def test_a_driver_frozen_in_the_middle_of_a_commit_is_fenced_when_it_wakes(sink, driver, point):
    """The fence is raised between two of its lines; after its check of the fence, before its rename."""
    prepared = driver.prepare(0, 3)
    new = []

    def strike(reached, _):
        if reached == point and not new:
            new.append(Driver(sink, 2))

    points.arm(strike)
    try:
        with pytest.raises(FencedError):
            driver.commit(0, prepared)
    finally:
        points.arm(None)
    assert ids(sink) == {}
    assert new[0].commit(0, prepared).kind is Kind.COMMITTED
    assert ids(sink) == expected_ids(0, 3)


def wake_and_finish(writer, batches):
    for batch in batches:
        writer.write(batch)  # into files that have no name any more, or into ones that cannot be made
    writer.prepare("00")


def test_a_frozen_writer_with_open_files_cannot_publish(sink, driver, monkeypatch):
    monkeypatch.setattr("pakka.sinks._files._GATHER_BYTES", 1)
    frozen = driver.writer(0)
    batches = table().to_batches(max_chunksize=10)
    frozen.write(batches[0])
    new = Driver(sink, 2)
    new.committer.abort(new.committer.pending())
    new.deliver(0)
    with pytest.raises(FencedError):
        wake_and_finish(frozen, batches[1:])
    frozen.discard()
    assert ids(sink) == expected_ids(0)
    assert staged(sink) == []


# What the sinks are


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink, CsvSink])
def test_a_file_sink_is_built_from_options(kind, tmp_path):
    options = {"path": str(tmp_path / "out"), "partition_by": ["merchant"]}
    sink = TypeAdapter(kind).validate_python(options)
    assert sink == kind(str(tmp_path / "out"), ("merchant",))


def test_making_a_sink_and_opening_it_touches_nothing(tmp_path):
    sink = sink_at(tmp_path)
    Driver(sink, 1, raised=False).committer.ledger()
    assert os.listdir(tmp_path) == []


def test_a_relative_path_is_settled_where_the_pipeline_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = ParquetSink("out/../out/refunds")
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(sink)).target() == str(tmp_path / "out" / "refunds")


def test_two_names_of_one_directory_are_one_target(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert ParquetSink(str(tmp_path / "link")).target() == ParquetSink(str(tmp_path / "real")).target()


def test_a_linked_output_is_published_where_the_link_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    sink = ParquetSink(str(tmp_path / "link"))
    Driver(sink, 1).deliver(0)
    assert read_pyarrow(tmp_path / "link").num_rows == 100
    assert sorted(os.listdir(tmp_path)) == [".real.pakka", "link", "real"]


@pytest.mark.parametrize("other", [Binding("orders", "out", ""), Binding("refunds", "audit", "")])
@pytest.mark.parametrize("is_staging_lost", [False, True])
def test_two_sinks_on_one_output_are_refused_before_anything_is_written(sink, driver, other, is_staging_lost):
    driver.deliver(0)
    if is_staging_lost:
        shutil.rmtree(output(sink).with_name(".refunds.pakka"))
    stranger = Driver(sink, 2, other, raised=False)
    with pytest.raises(SinkError, match=r"sink `refunds\.out`"):
        stranger.committer.ledger()
    if not is_staging_lost:
        with pytest.raises(SinkError, match=r"belongs to sink `refunds\.out`"):
            stranger.committer.raise_fence()
    assert ids(sink) == expected_ids(0)


def test_an_output_that_another_sink_has_claimed_and_not_used_yet_is_refused(sink, driver):
    with pytest.raises(SinkError, match=r"belongs to sink `refunds\.out`"):
        Driver(sink, 2, Binding("orders", "out", ""), raised=False).committer.ledger()


def test_a_lost_staging_area_loses_what_was_staged_and_nothing_else(sink, driver):
    driver.deliver(0)
    prepared = driver.prepare(1)
    shutil.rmtree(output(sink).with_name(".refunds.pakka"))
    again = Driver(sink, 2)
    assert again.commit(1, prepared).kind is Kind.REFUSED
    again.deliver(1)
    assert ids(sink) == expected_ids(0) + expected_ids(1)


def test_row_groups_are_gathered_and_files_stay_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("pakka.sinks._files._GATHER_ROWS", 60)
    sink = sink_at(tmp_path)
    Driver(sink, 1).deliver(0)  # 100 rows, 30 at a time
    (fragment,) = ds.dataset(output(sink), partitioning="hive").get_fragments()
    assert [group.num_rows for group in fragment.row_groups] == [60, 40]


def test_more_partitions_than_open_files_cost_files_and_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("pakka.sinks._files._OPEN_FILES_MAX", 2)
    monkeypatch.setattr("pakka.sinks._files._GATHER_BYTES", 1)
    sink = sink_at(tmp_path, partition_by=("merchant",))
    Driver(sink, 1).deliver(0, 2)
    assert ids(sink) == expected_ids(0, 2)
    assert len(list(output(sink).rglob("*.parquet"))) > 8


def test_a_batch_with_other_columns_is_refused(driver):
    writer = driver.writer(0)
    with pytest.raises(SchemaError, match="rows came as id int32"):
        writer.write(pa.record_batch({"id": pa.array([1], pa.int32()), "merchant": ["a"]}))
