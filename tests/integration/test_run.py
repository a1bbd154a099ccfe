"""Whole pipelines on Spark, into memory sinks: what goes where, and what is said when it cannot."""

import threading

import pytest
from pyspark.sql.functions import col

import pakka
from pakka.errors import AbortedError, ConfigError, QualityError, SchemaError
from pakka.model.event import Committed, Delivered, Started, Stopped
from pakka.model.rule import OnFail, Rule
from pakka.state import open_store
from tests.integration.conftest import write_lines

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, merchant STRING, amount BIGINT"


def settlements(first: int, count: int) -> list[dict]:
    return [{"id": i, "merchant": f"m{i % 3}", "amount": i * 10} for i in range(first, first + count)]


def files(**options) -> pakka.FilesSource:
    return pakka.FilesSource("data", **{"schema": SCHEMA, **options})


def counted(name: str = "refunds"):
    store = open_store("sqlite:///.pakka/state.db")
    try:
        return [row.count for row in reversed(store.window(name))]
    finally:
        store.close()


def test_each_file_is_an_epoch_and_each_row_lands_once(spark, here, memory):
    for n in range(3):
        write_lines(here / f"data/{n}.json", settlements(n * 10, 10))
    events = []
    pipeline = pakka.Pipeline("refunds", files(max_files_per_epoch=1), {"out": memory["out"]})
    stopped = pakka.run(pipeline, listen=events.append)
    assert memory.column("out", "id") == list(range(30))
    assert stopped == Stopped("refunds", 3, 30, "done")
    assert [type(e) for e in events] == [Started, *[Committed, Delivered] * 3, Stopped]


def test_a_second_run_delivers_only_what_is_new(spark, here, memory):
    pipeline = pakka.Pipeline("refunds", files(), {"out": memory["out"]})
    write_lines(here / "data/0.json", settlements(0, 5))
    pakka.run(pipeline)
    assert pakka.run(pipeline).epochs == 0
    write_lines(here / "data/1.json", settlements(5, 5))
    assert pakka.run(pipeline).epochs == 1
    assert memory.column("out", "id") == list(range(10))


def test_sinks_get_what_they_select_of_the_rows_they_want(spark, here, memory):
    write_lines(here / "data/0.json", settlements(0, 10))
    pakka.run(
        pakka.Pipeline(
            "refunds",
            files(),
            {
                "all": memory["all"],
                "some": pakka.Output(memory["some"], ("concat('RFD-', id) AS refund", "merchant"), "amount >= 50"),
                "star": pakka.Output(memory["star"], ("*", "amount / 100 AS rupees")),
            },
        )
    )
    assert memory.column("all", "id") == list(range(10))
    assert memory.rows("some")[0] == {"refund": "RFD-5", "merchant": "m2"}
    assert memory.column("some", "refund") == [f"RFD-{i}" for i in range(5, 10)]
    assert sorted(memory.rows("star")[3]) == ["amount", "id", "merchant", "rupees"]


def test_a_sink_computes_only_of_the_rows_it_gets(spark, here, memory):
    """A map key that is null and a division by zero would each fail the task, on rows that this sink never gets."""
    write_lines(
        here / "data/0.json", [*settlements(1, 4), {"id": 9, "merchant": None, "amount": 1}, {"id": 0, "amount": 0}]
    )
    computing = pakka.Output(memory["some"], ("id", "map(merchant, 100 / amount) AS share"), "amount > 0")
    pipeline = pakka.Pipeline(
        "refunds", files(), {"some": computing}, None, (Rule.not_null("merchant"),), dead_letters=memory["dead"]
    )
    pakka.run(pipeline)
    assert memory.column("some", "id") == [1, 2, 3, 4]
    assert len(memory.rows("dead")) == 2


BROKEN = [
    {"id": 100, "merchant": None, "amount": 5},
    {"id": 101, "merchant": "m1", "amount": -5},
    {"id": 102, "merchant": "M 1", "amount": 5},
    {"id": 103, "merchant": "m1", "amount": 13},
    {"id": 104, "merchant": "m1", "amount": 1},
    {"id": 104, "merchant": "m1", "amount": 2},
    '{"id": 105, "merchant": ',
    '{"id": 106, "merchant": "m1", "amount": "not a number"}',
]
RULES = (
    Rule.not_null("merchant"),
    Rule.range("amount", 0, 1000),
    Rule.regex("merchant", r"^m\d$"),
    Rule.unique("id"),
    Rule.expr("amount <> 13", OnFail.DROP),
)


@pytest.mark.parametrize(
    "process", [None, "SELECT id, merchant, amount FROM source", lambda f: f.where(col("id") >= 0)]
)
def test_broken_rows_go_to_the_dead_letters_in_the_same_epoch(spark, here, memory, process):
    write_lines(here / "data/0.json", [*settlements(0, 10), *BROKEN])
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, process, RULES, dead_letters=memory["dead"]))
    assert memory.column("out", "id") == list(range(10))
    dead = memory.rows("dead")
    assert sorted(tuple(d["rules"]) for d in dead) == [
        ("malformed",),
        ("malformed",),
        ("not_null(merchant)",),
        ("range(amount, 0..1000)",),
        (r"regex(merchant, ^m\d$)",),
        ("unique(id)",),
        ("unique(id)",),
    ]
    rows = {d["row"] for d in dead}
    assert '{"id":100,"merchant":null,"amount":5}' in rows
    assert {r for r in BROKEN if isinstance(r, str)} <= rows
    assert {d["epoch"] for d in dead} == {0}
    [count] = counted()
    assert (count.rows_in, count.good, count.dead, count.dropped) == (18, 10, 7, 1)
    assert count.broken["unique(id)"] == 2
    assert count.broken["expr(amount <> 13)"] == 1


def test_a_rule_set_to_fail_aborts_the_epoch_and_shows_a_row(spark, here, memory):
    write_lines(here / "data/0.json", [*settlements(0, 10), *BROKEN[:1]])
    rules = (Rule.not_null("merchant", OnFail.FAIL),)
    with pytest.raises(QualityError, match=r"1 rows break not_null\(merchant\).*\"id\":100"):
        pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, None, rules))
    assert memory.rows("out") == []
    fixed = pakka.Pipeline("refunds", files(), {"out": memory["out"]}, None, (), dead_letters=memory["dead"])
    pakka.run(fixed)
    assert len(memory.rows("out")) == 11


def test_a_malformed_line_without_dead_letters_fails_and_loses_nothing(spark, here, memory):
    write_lines(here / "data/0.json", [*settlements(0, 3), '{"id": '])
    with pytest.raises(AbortedError, match=r"FAILED_READ_FILE.*0\.json.*MALFORMED_RECORD"):
        pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}))
    assert memory.rows("out") == []


def test_a_schema_is_inferred_once_and_then_kept(spark, here, memory):
    pipeline = pakka.Pipeline("refunds", files(schema=None), {"out": memory["out"]}, dead_letters=memory["dead"])
    write_lines(here / "data/0.json", settlements(0, 5))
    pakka.run(pipeline)
    write_lines(here / "data/1.json", [{"id": 5, "merchant": "m1", "amount": "now a text"}, *settlements(6, 2)])
    pakka.run(pipeline)
    assert memory.column("out", "id") == [0, 1, 2, 3, 4, 6, 7]
    assert [d["rules"] for d in memory.rows("dead")] == [["malformed"]]


def test_no_files_and_no_schema_is_a_clear_error(spark, here, memory):
    (here / "data").mkdir()
    with pytest.raises(SchemaError, match=r"no schema can be inferred|no columns to infer"):
        pakka.run(pakka.Pipeline("refunds", files(schema=None), {"out": memory["out"]}))


def test_a_source_that_is_not_there_is_a_clear_error(spark, here, memory):
    with pytest.raises(ConfigError, match="source files: data cannot be read"):
        pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}))


def test_empty_files_and_rows_that_are_all_filtered_make_no_harm(spark, here, memory):
    write_lines(here / "data/0.json", [])
    write_lines(here / "data/1.json", settlements(0, 3))
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, "SELECT * FROM source WHERE id > 99"))
    assert memory.rows("out") == []


def test_a_missing_column_is_null_and_extra_ones_are_ignored(spark, here, memory):
    write_lines(here / "data/0.json", [{"id": 1, "amount": 5, "surprise": True}])
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}))
    assert memory.rows("out") == [{"id": 1, "merchant": None, "amount": 5}]


@pytest.mark.parametrize(
    ("change", "words", "hint"),
    [
        ({"process": "SELECT nope FROM source"}, "process: .*nope", "columns id, merchant, amount"),
        ({"process": "SELEC id FROM source"}, "process: ", "columns id"),
        ({"select": ("merchnat",)}, "sinks.out.select", "did you mean `merchant`?"),
        ({"select": ("id AS x", "amount AS x")}, "two columns called `x`", "rename one"),
        ({"select": ("id +",)}, "SYNTAX_ERROR", "backquotes"),
        ({"where": "amuont > 1"}, "sinks.out.where", "did you mean `amount`?"),
        ({"rule": Rule.not_null("merchnt")}, "no column `merchnt`", "did you mean `merchant`?"),
        ({"rule": Rule.expr("amnt > 1")}, "quality", "did you mean `amount`?"),
    ],
)
def test_a_wrong_name_is_found_before_anything_starts(spark, here, memory, change, words, hint):
    write_lines(here / "data/0.json", settlements(0, 3))
    output = pakka.Output(memory["out"], change.get("select", ()), change.get("where"))
    rules = (change["rule"],) if "rule" in change else ()
    pipeline = pakka.Pipeline(
        "refunds", files(), {"out": output}, change.get("process"), rules, dead_letters=memory["dead"]
    )
    with pytest.raises(ConfigError, match=words) as error:
        pakka.run(pipeline)
    assert hint in error.value.hint
    assert not (here / ".pakka/state.db").exists()


def test_a_task_that_fails_for_good_aborts_the_epoch_and_a_restart_goes_on(spark, here, memory):
    write_lines(here / "data/0.json", settlements(0, 5))
    bad = "SELECT id, merchant, IF(id = 3, raise_error('poison'), amount) AS amount FROM source"
    with pytest.raises(AbortedError, match="poison"):
        pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, bad))
    assert memory.rows("out") == []
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}))
    assert memory.column("out", "id") == list(range(5))


def test_a_run_asked_to_stop_ends_between_two_epochs(spark, here, memory):
    stop = threading.Event()
    seen = []

    def listen(event):
        seen.append(event)
        if isinstance(event, Delivered) and event.epoch == 2:
            stop.set()

    trigger = pakka.Trigger(interval_s=0.0)
    pipeline = pakka.Pipeline("refunds", pakka.RateSource(10, 2), {"out": memory["out"]}, trigger=trigger)
    stopped = pakka.run(pipeline, listen=listen, stop=stop)
    assert stopped.reason == "asked"
    values = memory.column("out", "value")
    assert values == list(range(len(values)))
    store = open_store("sqlite:///.pakka/state.db")
    assert store.read("refunds").open == ()
    store.close()
    pakka.run(pipeline, listen=lambda e: stop.set(), stop=stop)
    values = memory.column("out", "value")
    assert values == list(range(len(values)))


def test_slots_bound_the_writers_of_an_epoch(spark, here, memory):
    for n in range(6):
        write_lines(here / f"data/{n}.json", settlements(n * 10, 10))
    made = []

    class Counting(type(memory["out"])):
        def open_committer(self, binding, fence):
            committer = super().open_committer(binding, fence)
            commit = committer.commit_epoch

            def commit_epoch(epoch, prepared):
                made.append(len(prepared))
                return commit(epoch, prepared)

            committer.commit_epoch = commit_epoch
            return committer

    pakka.run(pakka.Pipeline("refunds", files(), {"out": Counting(memory["out"].space)}, slots=1))
    assert made == [1]
    assert memory.column("out", "id") == list(range(60))


def test_an_existing_stream_is_delivered_by_one_line(spark, here, memory):
    write_lines(here / "data/0.json", settlements(0, 10))
    callback = pakka.deliver(to=[memory["out"]], pipeline="refunds")
    for _ in range(2):
        stream = spark.readStream.schema(SCHEMA).json(str(here / "data"))
        query = (
            stream.writeStream.option("checkpointLocation", str(here / "ck"))
            .trigger(availableNow=True)
            .foreachBatch(callback)
        )
        query.start().awaitTermination()
        callback.close()
    assert memory.column("out", "id") == list(range(10))


def test_a_batch_is_one_epoch_and_its_key_is_delivered_once(spark, here, memory):
    frame = spark.range(10)
    first = pakka.deliver_batch(frame, [memory["out"]], "daily", "2026-11-14")
    again = pakka.deliver_batch(frame, [memory["out"]], "daily", "2026-11-14")
    other = pakka.deliver_batch(spark.range(10, 15), [memory["out"]], "daily", "2026-11-15")
    assert (first.is_new, again.is_new, other.is_new) == (True, False, True)
    assert memory.column("out", "id") == list(range(15))


def test_a_checkpoint_deleted_under_an_old_name_is_refused(spark, here, memory):
    import shutil

    from pakka.errors import RegressError

    write_lines(here / "data/0.json", settlements(0, 5))
    pipeline = pakka.Pipeline("refunds", files(), {"out": memory["out"]})
    pakka.run(pipeline)
    shutil.rmtree(pipeline.checkpoint_path)
    with pytest.raises(RegressError, match="is new, but epochs up to 0"):
        pakka.run(pipeline)
    assert len(memory.rows("out")) == 5


HARD = """
    SELECT id, CAST(NULL AS STRING) AS nothing, CAST('NaN' AS DOUBLE) AS nan, CAST('-Infinity' AS DOUBLE) AS inf,
    CAST('12345678901234567890123456789012345678' AS DECIMAL(38,0)) AS big, DATE'1500-01-01' AS old, X'00FF' AS bytes,
    TIMESTAMP'2026-11-15 01:02:03.456789' AS at, TIMESTAMP_NTZ'2026-11-15 01:02:03' AS wall, '' AS empty,
    'nul\\u0000 and \\U0001F600' AS astral, array(1, NULL) AS list, map('a', 1) AS map, struct(1 AS x, map('k', 'v') AS m) AS deep
    FROM source
"""


def test_hard_values_reach_the_sink_as_they_are(spark, here, memory):
    write_lines(here / "data/0.json", settlements(0, 2))
    pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, HARD))
    row = memory.rows("out")[0]
    assert str(row["big"]) == "12345678901234567890123456789012345678"
    assert (row["nothing"], row["empty"], row["bytes"], row["list"]) == (None, "", b"\x00\xff", [1, None])
    assert row["nan"] != row["nan"]
    assert row["inf"] == float("-inf")
    assert str(row["old"]) == "1500-01-01"
    assert row["at"].isoformat() == "2026-11-15T01:02:03.456789+00:00"
    assert row["astral"] == "nul\x00 and \U0001f600"
    assert (row["map"], row["deep"]) == ([("a", 1)], {"x": 1, "m": [("k", "v")]})


def test_a_type_that_cannot_travel_is_refused_before_anything_starts(spark, here, memory):
    write_lines(here / "data/0.json", settlements(0, 2))
    process = "SELECT id, make_interval(1, 2) AS gap FROM source"
    with pytest.raises(SchemaError, match="cannot travel as Arrow"):
        pakka.run(pakka.Pipeline("refunds", files(), {"out": memory["out"]}, process))
