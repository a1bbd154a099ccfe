"""A disk that is weakened while a pipeline runs on Spark stops it before the next decision; mended, the next run goes on."""

import pyarrow.dataset as ds
import pytest

import pakka
from pakka import mount
from pakka.coordinator.epoch import Coordinator
from pakka.errors import RefusedError
from pakka.model.event import Delivered
from pakka.state import open_store
from tests.integration.conftest import write_lines

pytestmark = pytest.mark.spark


def test_a_weakened_disk_stops_the_run_and_nothing_is_lost_or_doubled(spark, here, monkeypatch):
    mounts = here / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    monkeypatch.setattr(mount, "MOUNTS", mounts)
    monkeypatch.setitem(Coordinator.__init__.__kwdefaults__, "probe_every", 1)
    for n in range(3):
        write_lines(here / f"data/{n}.json", [{"id": i} for i in range(n * 10, n * 10 + 10)])
    source = pakka.FilesSource("data", schema="id BIGINT", max_files_per_epoch=1)
    pipeline = pakka.Pipeline("refunds", source, {"out": pakka.ParquetSink("out/refunds")})

    def weaken(event) -> None:
        if isinstance(event, Delivered):
            mounts.write_text("/dev/sda1 / ext4 rw,nobarrier 0 0\n")

    with pytest.raises(RefusedError, match=r"was weakened while it runs: fsync is `nobarrier`.*epoch 1 is not decided"):
        pakka.run(pipeline, listen=weaken)
    store = open_store("sqlite:///.pakka/state.db")
    try:
        assert [row.epoch.number for row in store.window("refunds")] == [0]
    finally:
        store.close()
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    assert pakka.run(pipeline).epochs == 2
    rows = ds.dataset(here / "out" / "refunds", format="parquet").to_table().column("id").to_pylist()
    assert sorted(rows) == list(range(30))
