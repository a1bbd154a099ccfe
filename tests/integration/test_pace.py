"""Wide rows come to Python fewer at a time from the second epoch on, and whoever chose otherwise keeps what he chose."""

from pathlib import Path

import pytest

import pakka
from pakka.spark.pace import SETTINGS
from tests.integration.conftest import write_lines

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
WHOLE = [3000]
SMALL = [512] * 5 + [440]
WIDE = "SELECT id, repeat('x', 4000) AS text FROM source"


@pytest.fixture
def noted(here):
    """A sink that writes down how many rows it is given at a time, by epoch; and what is written down so far."""
    notes = str(here / "notes")
    Path(notes).mkdir()

    class Noting(pakka.ParquetSink):
        def open_writer(self, binding, slot, schema):
            writer = super().open_writer(binding, slot, schema)
            write = writer.write

            def write_noted(batch):
                with open(f"{notes}/{slot.epoch}", "a") as file:
                    file.write(f"{batch.num_rows}\n")
                write(batch)

            writer.write = write_noted
            return writer

    def read():
        files = sorted(Path(notes).iterdir(), key=lambda file: int(file.name))
        return [[int(line) for line in file.read_text().split()] for file in files]

    return Noting("out"), read


@pytest.fixture
def chosen(spark):
    """Settings that someone has chosen for the session, as the pipeline's `spark:` does. After the test it has ours again."""

    def choose(settings):
        for key, value in settings.items():
            spark.conf.set(key, value)

    yield choose
    choose(SETTINGS)


def put_files(here, count, first=0):
    for n in range(first, first + count):
        write_lines(here / f"data/{n}.json", [{"id": n * 3000 + i} for i in range(3000)])


def pipeline(sink, process):
    source = pakka.FilesSource("data", schema="id BIGINT", max_files_per_epoch=1)
    return pakka.Pipeline("refunds", source, {"out": sink}, process, slots=1)


def test_wide_rows_come_in_small_batches_from_the_second_epoch_on(spark, here, noted):
    sink, read = noted
    put_files(here, 3)
    pakka.run(pipeline(sink, WIDE))
    assert read() == [WHOLE, SMALL, SMALL]
    assert spark.conf.get(ROWS) == "10000"


def test_narrow_rows_come_as_before(spark, here, noted):
    sink, read = noted
    put_files(here, 2)
    pakka.run(pipeline(sink, None))
    assert read() == [WHOLE, WHOLE]


def test_rows_that_become_narrow_come_in_large_batches_again(spark, here, noted):
    sink, read = noted
    put_files(here, 4)
    pakka.run(pipeline(sink, "SELECT id, repeat('x', IF(id < 6000, 4000, 40)) AS text FROM source"))
    assert read() == [WHOLE, SMALL, SMALL, WHOLE]


@pytest.mark.parametrize(
    ("settings", "batches"), [({ROWS: "2000"}, [2000, 1000]), ({ROWS: "20000"}, WHOLE), ({BYTES: "1g"}, WHOLE)]
)
def test_what_the_user_has_chosen_stays(spark, here, noted, chosen, settings, batches):
    sink, read = noted
    put_files(here, 2)
    chosen(settings)
    pakka.run(pipeline(sink, WIDE))
    assert read() == [batches, batches]
    assert {key: spark.conf.get(key) for key in settings} == settings


def query_of(spark, here, on_batch):
    stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(str(here / "data"))
    writer = stream.selectExpr("id", "repeat('x', 4000) AS text").writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(here / "ck")).foreachBatch(on_batch).start().awaitTermination()


def test_all_epochs_of_a_query_have_one_session_and_a_query_started_again_has_another(spark, here, noted):
    sink, read = noted
    callback = pakka.deliver(to=[sink], pipeline="refunds", slots=1)
    sessions, rows = [], []

    def on_batch(batch, number):
        callback(batch, number)
        sessions.append(batch.sparkSession._jsparkSession)
        rows.append(batch.sparkSession.conf.get(ROWS))

    put_files(here, 3)
    query_of(spark, here, on_batch)
    put_files(here, 2, first=3)
    query_of(spark, here, on_batch)
    callback.close()
    first, second = sessions[0], sessions[3]
    assert [session == first for session in sessions] == [True, True, True, False, False]
    assert [session == second for session in sessions] == [False, False, False, True, True]
    assert rows == ["512"] * 5
    assert read() == [WHOLE, SMALL, SMALL, WHOLE, SMALL]


def test_the_users_own_session_is_not_changed_where_his_frame_makes_the_rows(spark, here, noted, chosen):
    sink, read = noted
    callback = pakka.deliver(to=[sink], pipeline="refunds", slots=1)
    everything = spark.range(9000).coalesce(1)
    put_files(here, 3)
    query_of(spark, here, lambda batch, number: callback(everything.join(batch.hint("broadcast"), "id"), number))
    callback.close()
    assert read() == [WHOLE, WHOLE, WHOLE]
    assert spark.conf.get(ROWS) == "10000"


def test_a_batch_frame_leaves_the_session_as_it_is(spark, here, noted, chosen):
    sink, read = noted
    frame = spark.range(3000).selectExpr("id", "repeat('x', 4000) AS text").coalesce(1)
    for key in ("first", "second"):
        pakka.deliver_batch(frame, [sink], "daily", key, slots=1)
    assert read() == [WHOLE, WHOLE]
    assert spark.conf.get(ROWS) == "10000"
