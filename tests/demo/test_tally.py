"""The demo's count is a judge that can say no: each kind of wrong output is found."""

import json
import shutil
import sqlite3
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples.refunds import settlements, tally

ROWS = 2000


@pytest.fixture
def root(tmp_path):
    """A directory as a perfect run leaves it, written here by hand and not by pakka."""
    settlements.make(tmp_path / "data" / "settlements", ROWS)
    _, refunds, dead = tally.expected(tmp_path / "data" / "settlements")
    rows = sorted(refunds.elements())
    half = len(rows) // 2
    for epoch, part in enumerate([rows[:half], rows[half:]]):
        columns = zip(*part, strict=True)
        table = pa.table(dict(zip(["refund_id", "merchant", "amount_paise"], map(list, columns), strict=True)))
        write(tmp_path / "out" / "refunds" / f"pakka_epoch={epoch}" / "0.parquet", table)
    letters = [
        {
            "rules": list(rules),
            "row": key if rules == (tally.MALFORMED,) else json.dumps({"settlement_id": key, "amount_paise": 0}),
        }
        for key, rules in dead.elements()
    ]
    write(tmp_path / "out" / "dead" / "pakka_epoch=0" / "0.parquet", pa.Table.from_pylist(letters))
    with closing(sqlite3.connect(tmp_path / "out" / "audit.db")) as db:
        db.execute("CREATE TABLE refund_audit (refund_id TEXT, ts TEXT)")
        db.executemany("INSERT INTO refund_audit VALUES (?, '')", [(refund,) for refund, _, _ in rows])
        db.commit()
    return tmp_path


def write(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def change(path, make):
    pq.write_table(make(pq.ParquetFile(path).read()), path)


def in_database(root, statement):
    with closing(sqlite3.connect(root / "out" / "audit.db")) as db:
        db.execute(statement)
        db.commit()


def test_a_perfect_output_is_called_right(root):
    counted = tally.tally(root)
    assert counted.wrong() == []
    assert counted.rows_in == ROWS
    assert counted.epochs == 2
    assert sum(there for _, there in counted.broken.values()) >= counted.outputs[2].there > 0


def test_the_settlements_break_every_rule_of_the_pipeline(root):
    assert set(tally.tally(root).broken) == {tally.MALFORMED, tally.NOT_NULL, tally.RANGE}


def test_a_parquet_file_that_is_there_twice_is_found(root):
    file = root / "out" / "refunds" / "pakka_epoch=1" / "0.parquet"
    shutil.copy(file, file.with_name("1.parquet"))
    refunds, *_ = tally.tally(root).outputs
    assert refunds.twice == refunds.there - refunds.expected == pq.read_metadata(file).num_rows
    assert (refunds.lost, refunds.strange) == (0, 0)
    assert any("refunds" in line for line in tally.tally(root).wrong())


def test_a_lost_epoch_is_found(root):
    shutil.rmtree(root / "out" / "refunds" / "pakka_epoch=0")
    refunds, *_ = tally.tally(root).outputs
    assert refunds.lost == refunds.expected - refunds.there > 0


def test_one_row_lost_and_another_twice_is_found_though_the_count_is_right(root):
    change(
        root / "out" / "refunds" / "pakka_epoch=0" / "0.parquet",
        lambda t: pa.concat_tables([t.slice(1), t.slice(1, 1)]),
    )
    refunds, *_ = tally.tally(root).outputs
    assert refunds.there == refunds.expected
    assert (refunds.lost, refunds.twice) == (1, 1)


def test_an_altered_amount_is_found(root):
    path = root / "out" / "refunds" / "pakka_epoch=0" / "0.parquet"
    change(path, lambda t: t.set_column(2, "amount_paise", pa.array([7, *t.column(2).to_pylist()[1:]])))
    refunds, *_ = tally.tally(root).outputs
    assert (refunds.lost, refunds.strange) == (1, 1)


def test_a_row_that_is_missing_in_the_database_is_found(root):
    in_database(root, "DELETE FROM refund_audit WHERE rowid = 1")
    _, audit, _ = tally.tally(root).outputs
    assert audit.lost == 1
    assert not audit.is_right


def test_a_row_that_is_twice_in_the_database_is_found(root):
    in_database(root, "INSERT INTO refund_audit SELECT * FROM refund_audit WHERE rowid = 1")
    _, audit, _ = tally.tally(root).outputs
    assert audit.twice == 1


def test_a_dead_letter_with_the_wrong_rule_is_found(root):
    path = root / "out" / "dead" / "pakka_epoch=0" / "0.parquet"
    change(path, lambda t: t.set_column(0, "rules", pa.array([[tally.RANGE]] * t.num_rows)))
    *_, dead = tally.tally(root).outputs
    assert dead.strange > 0
    assert any("not_null(merchant)" in line for line in tally.tally(root).wrong())


def test_no_output_at_all_is_found(root):
    shutil.rmtree(root / "out")
    assert [o.there for o in tally.tally(root).outputs] == [0, 0, 0]
    assert len(tally.tally(root).wrong()) >= 3
