"""The lookout, on a cluster that is only told of: what it notices, what it refuses, and what it says then."""

import json
from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaError, KafkaException

from pakka.errors import PakkaError, RefusedError, RegressError
from pakka.kafka_cluster import Topic
from pakka.kafka_error import told
from pakka.kafka_line import Address
from pakka.sources import _kafka_lookout
from pakka.sources._kafka_lookout import KafkaLookout
from pakka.sources._kafka_topics import Wanted
from pakka.sources._note import Note


class Fake:
    """A cluster as `kafka_cluster.Cluster` shows it."""

    def __init__(self) -> None:
        self.id = "cluster-1"
        self.grievance = None
        self.parts = {"t": ("id-1", 2)}
        self.starts: dict[int, int] = {}
        self.stable: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def names(self) -> list[str]:
        return sorted(self.parts)

    def topics(self, names) -> dict[str, Topic | None]:
        made = {n: Topic(n, self.parts[n][0], tuple(range(self.parts[n][1])), 1) for n in names if n in self.parts}
        return {name: made.get(name) for name in names}

    def start_offsets(self, topic, partitions):
        return {p: self.starts.get(p, 0) for p in partitions}

    def end_offsets(self, topic, partitions, *, is_committed):
        return {p: (self.stable if is_committed else self.ends).get(p, 0) for p in partitions}


@pytest.fixture
def cluster() -> Fake:
    return Fake()


@pytest.fixture
def open_(tmp_path, cluster, monkeypatch):
    """A new driver's lookout, on the same cluster and the same notes."""
    monkeypatch.setattr(_kafka_lookout, "Cluster", lambda _address, _whose: cluster)
    monkeypatch.setattr(_kafka_lookout, "told", lambda *_: nullcontext())
    now = [1_700_000_000.0]

    def make(wanted: Wanted = Wanted(("t",)), start=None) -> KafkaLookout:  # noqa: B008
        note = Note(None, str(tmp_path / "cp.source"), "kafka.json")
        lookout = KafkaLookout(Address("h:1"), wanted, "refunds", "pakka.refunds", note, start, clock=lambda: now[0])
        lookout.wait = lambda seconds: now.__setitem__(0, now[0] + seconds)
        return lookout

    return make


REACHED = '{"t":{"0":5,"1":7}}'


def test_the_position_says_cluster_group_and_offsets(open_):
    lookout = open_()
    assert list(lookout.begin(None, is_new=True)) == []
    assert json.loads(lookout.position(REACHED)) == {
        "kafka": {"cluster": "cluster-1", "group": "pakka.refunds", "offsets": {"t": {"0": 5, "1": 7}}}
    }


def test_the_same_topics_are_no_news_to_the_next_driver(open_):
    open_().begin(None, is_new=True)
    lookout = open_()
    assert list(lookout.begin(REACHED, is_new=False)) == []
    assert list(lookout.check()) == []


def test_a_topic_made_again_is_refused_at_the_start_and_before_a_decision(open_, cluster):
    running = open_()
    running.begin(None, is_new=True)
    running.position(REACHED)
    running.passed()
    running.position('{"t":{"0":9,"1":9}}')
    cluster.parts["t"] = ("id-2", 2)
    with pytest.raises(
        RegressError, match=r"was id-1, and is id-2;.*after 5 in partition 0, 7 in partition 1; nothing was"
    ) as e:
        running.check()
    assert '`start: {"t": {"0": 0, "1": 0}}`' in e.value.hint
    assert "pakka reset refunds --checkpoint --yes" in e.value.hint
    with pytest.raises(RegressError, match="deleted and made again"):
        open_().begin(REACHED, is_new=False)
    assert list(open_().begin(None, is_new=True)) == []


def test_that_nothing_is_noted_of_the_topics_of_a_checkpoint_is_told_once(open_, cluster, tmp_path):
    """Also if a topic was made again: then nobody can know."""
    open_().begin(None, is_new=True)
    (tmp_path / "cp.source" / "kafka.json").unlink()
    cluster.parts["t"] = ("id-2", 2)
    (notice,) = open_().begin(REACHED, is_new=False)
    assert (notice.pipeline, notice.about) == ("refunds", "unnoted")
    assert f"{tmp_path}/cp.source/kafka.json, which says of which topics, is not there" in notice.message
    assert "cannot be told from the one that was read" in notice.message
    assert list(open_().begin(REACHED, is_new=False)) == []
    (tmp_path / "cp.source" / "kafka.json").unlink()
    # Planned, and nothing acknowledged: the same offsets are read again, of whatever is there.
    assert [notice.about for notice in open_().begin(None, is_new=False)] == ["unnoted"]


def test_a_topic_that_is_gone_is_refused_with_where_the_others_go_on(open_, cluster):
    cluster.parts["u"] = ("id-u", 1)
    both = Wanted(("t", "u"))
    open_(both).begin(None, is_new=True)
    del cluster.parts["t"]
    with pytest.raises(RegressError, match="topic `t` is not there any more") as e:
        open_(both).begin('{"t":{"0":5,"1":7},"u":{"0":3}}', is_new=False)
    assert '`start: {"u": {"0": 3}}`' in e.value.hint


def test_a_topic_that_the_source_names_no_more_is_not_said_to_be_gone(open_, cluster):
    cluster.parts["u"] = ("id-u", 1)
    reached = '{"t":{"0":5,"1":7},"u":{"0":3}}'
    for before, after, option in (
        (Wanted(("t", "u")), Wanted(("u",)), "`topics` names it no more"),
        (Wanted(pattern="[tu]"), Wanted(pattern="u"), "`pattern` matches it no more"),
    ):
        open_(before).begin(None, is_new=True)
        with pytest.raises(RegressError, match=f"topic `t` was read by this pipeline, and {option}; .* is there") as e:
            open_(after).begin(reached, is_new=False)
        assert e.value.hint.startswith("put it back; or to go on without it: remove")
        assert '`start: {"u": {"0": 3}}`' in e.value.hint


def test_a_pattern_that_matches_nothing_is_told_of_and_so_is_the_first_topic_that_it_matches(open_, cluster):
    lookout = open_(Wanted(pattern="settlements-.*"))
    [notice] = lookout.begin(None, is_new=True)
    assert (notice.pipeline, notice.about) == ("refunds", "topics")
    assert (
        "no topic of kafka://h:1 matches the pattern `settlements-.*`; nothing is read until one does" in notice.message
    )
    cluster.parts["settlements-1"] = ("id-s", 1)
    assert ["topic `settlements-1` is new" in notice.message for notice in lookout.check()] == [True]


def test_a_topic_that_was_read_and_not_noted_is_not_said_to_be_new(open_, cluster):
    open_(Wanted(pattern="t")).begin(None, is_new=True)
    cluster.parts["u"] = ("id-u", 1)
    assert list(open_(Wanted(pattern="t|u")).begin('{"t":{"0":5},"u":{"0":3}}', is_new=False)) == []


def test_a_topic_that_spark_reads_and_nobody_sees_is_refused_before_it_is_read(open_, cluster):
    lookout = open_(Wanted(pattern="t.?"))
    lookout.begin(None, is_new=True)
    with pytest.raises(
        RefusedError, match="Spark reads topic `other`, which pakka does not see by the pattern `t"
    ) as e:
        lookout.position('{"t":{"0":5},"other":{"0":1}}')
    assert "name the topics in `topics`" in e.value.hint


def test_a_topic_that_was_made_since_the_last_look_is_seen_before_it_is_read_and_told_once(open_, cluster):
    lookout = open_(Wanted(pattern="t.?"))
    lookout.begin(None, is_new=True)
    cluster.parts["t2"] = ("id-9", 1)
    lookout.position('{"t":{"0":5},"t2":{"0":1}}')
    [new] = lookout.check()
    assert "topic `t2` is new" in new.message
    assert list(lookout.check()) == []
    lookout.position('{"t":{"0":5},"t2":{"0":1}}')
    cluster.parts["t2"] = ("id-10", 1)
    with pytest.raises(RegressError, match="topic `t2` was deleted and made again"):
        lookout.check()


def test_an_error_of_the_clusters_names_the_pipeline(open_, cluster, monkeypatch):
    monkeypatch.setattr(_kafka_lookout, "told", told)

    def denied(_names):
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    cluster.topics = denied
    with pytest.raises(PakkaError, match=r"^pipeline `refunds`: source kafka: kafka://h:1: .*; nothing was written"):
        open_().begin(None, is_new=True)


def test_another_cluster_is_refused(open_, cluster):
    open_().begin(None, is_new=True)
    cluster.id = "cluster-2"
    with pytest.raises(
        RegressError, match="leads to the cluster cluster-2, and the checkpoint is of the cluster cluster-1"
    ):
        open_().begin(REACHED, is_new=False)


def test_records_that_are_gone_are_named_by_partition_and_offset(open_, cluster):
    open_().begin(None, is_new=True)
    cluster.starts = {0: 5, 1: 9}
    with pytest.raises(RegressError, match="topic `t` partition 1: the records from offset 7 to 8 are gone") as e:
        open_().begin(REACHED, is_new=False)
    assert '`start: {"t": {"0": 5, "1": 9}}`' in e.value.hint


def test_what_is_added_and_does_not_begin_at_zero_is_refused_with_the_way_on(open_, cluster):
    """As Spark would: at the start, and when it has met it."""
    open_().begin(None, is_new=True)
    cluster.parts["t"] = ("id-1", 3)
    cluster.starts = {1: 6, 2: 4}
    refusal = "topic `t` partition 2 is new to this pipeline and begins at offset 4: what was before is gone"
    # Up to here delivered; or nothing is, and here it began.
    for lookout, place in ((open_(), {"offsets": REACHED}), (open_(), {"offsets": None, "first": REACHED})):
        with pytest.raises(RegressError, match=refusal) as e:
            lookout.begin(is_new=False, **place)
        assert '`start: {"t": {"0": 5, "1": 7, "2": 4}}`' in e.value.hint
    running = open_()
    cluster.parts["t"] = ("id-1", 2)
    running.begin(REACHED, is_new=False)
    cluster.parts["t"] = ("id-1", 3)
    found = running.explain(RuntimeError("[KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO] x"))
    assert refusal in found.message


def test_a_topic_that_was_refused_was_not_read_and_may_be_taken_out_again(open_, cluster):
    open_().begin(None, is_new=True)
    cluster.parts["u"] = ("id-u", 1)
    cluster.starts = {0: 4}
    with pytest.raises(RegressError, match="topic `u` partition 0 is new"):
        open_(Wanted(("t", "u"))).begin(REACHED, is_new=False)
    assert list(open_().begin(REACHED, is_new=False)) == []


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (3, "from 4 on, and the next one is 9"),
        (11, "from 4 on, and the next one is 9, and up to 12 behind a transaction that is still open"),
        (50, "from 4 on, and the next one is 9"),
    ],
)
def test_a_start_that_the_topic_does_not_have_is_refused_before_spark_notes_it(open_, cluster, offset, words):
    cluster.starts, cluster.stable, cluster.ends = {1: 4}, {1: 9}, {1: 12}
    start = {"t": {1: offset}}
    with pytest.raises(
        RegressError,
        match=f"`start` says offset {offset} of topic `t` partition 1, which has offsets {words}; nothing was",
    ) as e:
        open_(start=start).begin(None, is_new=True)
    assert e.value.hint.startswith("set `start` to an offset")
    # As of a driver that did not look: Spark goes on there whatever `start` says.
    with pytest.raises(RegressError, match=words) as e:
        open_(start=start).begin(None, is_new=False, first=f'{{"t":{{"0":0,"1":{offset}}}}}')
    assert "/cp, set `start` to an offset" in e.value.hint
    for fits in (4, 9):
        open_(start={"t": {1: fits}}).begin(None, is_new=True)
    # What has begun goes on where it was.
    assert list(open_(start=start).begin('{"t":{"0":0,"1":9}}', is_new=False)) == []


def test_a_start_that_was_changed_before_anything_was_delivered_is_not_passed_over(open_, cluster):
    cluster.parts["u"] = ("id-u", 1)
    cluster.stable = cluster.ends = {0: 9, 1: 9}
    noted = '{"t":{"0":5,"1":7}}'
    cluster.starts = {0: 1}
    for start, words in (
        ({"t": {0: 6}}, "offset 6 of topic `t` partition 0, and the checkpoint, of which nothing .*, begins at 5"),
        (
            {"t": {0: 5, 1: 7}, "u": {0: 1}},
            "offset 1 of topic `u` partition 0, and the checkpoint, .* does not know it yet",
        ),
        ({"t": {0: 5}}, "the earliest, which is 0, of topic `t` partition 1, and the checkpoint, .* begins at 7"),
        ({}, "the earliest, which is 1, of topic `t` partition 0, and the checkpoint, .* begins at 5"),
    ):
        with pytest.raises(RegressError, match=words) as e:
            open_(Wanted(("t", "u")), start).begin(None, is_new=False, first=noted)
        # This first: removed, what an earlier life of the pipeline has delivered may come again.
        assert e.value.hint.startswith("set `start` as it was; or remove the directory /")
        assert "/cp to begin where it says now, and run again" in e.value.hint
    # As it was; a time, and `latest`, of which nobody knows any more what they meant then.
    for start in ({"t": {0: 5, 1: 7}}, None):
        open_(start=start).begin(None, is_new=False, first=noted)


def test_a_new_pipeline_begins_wherever_its_topics_do(open_, cluster):
    cluster.starts = {0: 4}
    lookout = open_()
    assert list(lookout.begin(None, is_new=True)) == []
    # Before its first epoch nobody knows yet where Spark has begun.
    lost = RuntimeError("[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost")
    assert "are gone which it was to read" in lookout.explain(lost).message


def test_an_error_of_sparks_is_told_in_our_words(open_, cluster):
    lookout = open_()
    lookout.begin(REACHED, is_new=True)
    assert lookout.explain(RuntimeError("no room on the disk")) is None
    lost = RuntimeError("x\n[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost")
    assert "KAFKA_DATA_LOSS.START_OFFSET_RESET" in lookout.explain(lost).message
    lookout.position('{"t":{"0":20,"1":20}}')
    cluster.starts = {0: 11}
    assert "partition 0: the records from offset 5 to 10 are gone" in lookout.explain(lost).message
    lookout.passed()
    assert "are gone which it was to read" in lookout.explain(lost).message


def test_a_record_whose_time_spark_cannot_hold_is_named_with_the_way_past_it(open_, cluster):
    """Deep in what a task that failed has said: first what stands before it is delivered, and then what is behind it."""
    cause = RuntimeError(
        "Caused by: x: Record at topic t partition 1 offset 9 has timestamp value 1767261600000000000 that"
    )
    error = RuntimeError("a task failed for good: java.lang.ArithmeticException: long overflow")
    error.__cause__ = cause
    running = open_()
    running.begin(None, is_new=True)
    found = running.explain(error)
    assert "topic `t` partition 1: the record at offset 9 has the time 1767261600000000000 ms, which" in found.message
    assert found.hint.startswith("nothing is delivered yet: run again")
    running = open_()
    running.begin(None, is_new=False, first=REACHED)
    hint = running.explain(error).hint
    assert (
        '`start: {"t": {"0": 5, "1": 7}}` and `max_offsets_per_epoch: 2` in the source, and type `pakka reset' in hint
    )
    assert "message.timestamp.type=LogAppendTime" in hint
    running.position('{"t":{"0":6,"1":9}}')
    running.passed()
    assert '`start: {"t": {"0": 6, "1": 10}}` in the source, and type `pakka reset' in running.explain(error).hint


def test_a_right_that_is_taken_away_is_told_in_our_words(open_):
    lookout = open_()
    lookout.begin(None, is_new=True)
    denied = RuntimeError(
        "x\norg.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]\n\tat y"
    )
    told = lookout.explain(denied)
    assert told.message == (
        "pipeline `refunds`: source kafka: kafka://h:1: Spark is not let in: Not authorized to access topics: [t]; nothing of that epoch is visible"
    )
    assert "--operation READ" in told.hint


def test_more_partitions_and_more_topics_are_told_once(open_, cluster):
    every = Wanted(pattern="t.*")
    open_(every).begin(None, is_new=True)
    cluster.parts["t"] = ("id-1", 4)
    lookout = open_(every)
    [grown] = lookout.begin(REACHED, is_new=False)
    assert "had 2 partitions and has 4; the new ones are read from their beginning" in grown.message
    cluster.parts |= {"t2": ("id-9", 1), "other": ("id-o", 1)}
    [new] = lookout.check()
    assert (new.about, new.message) == ("topics", "source kafka: topic `t2` is new, and read from its beginning")
    assert list(lookout.check()) == list(open_(every).begin(REACHED, is_new=False)) == []


def test_a_partition_that_is_held_back_is_told_of_once_it_lasts(open_, cluster):
    lookout = open_()
    lookout.begin(None, is_new=True)
    cluster.stable, cluster.ends = {0: 10, 1: 10}, {0: 10, 1: 15}
    assert list(lookout.look()) == []
    lookout.wait(29)
    assert list(lookout.look()) == []
    lookout.wait(1)
    cluster.ends = {0: 10, 1: 17}
    [notice] = lookout.look()
    assert notice.about == "stalled"
    assert "topic `t` partition 1" in notice.message
    assert "from offset 10 on, 7 offsets up to now; seen since 2023-11-14T22:13:20Z" in notice.message
    assert list(lookout.look()) == []


def test_a_partition_that_moves_is_not_held_back(open_, cluster):
    lookout = open_()
    lookout.begin(None, is_new=True)
    for end in range(0, 100, 10):
        cluster.stable, cluster.ends = {0: end}, {0: end + 5}
        assert list(lookout.look()) == []
        lookout.wait(20)


def test_what_a_last_look_finds_is_told_at_once(open_, cluster):
    lookout = open_()
    lookout.begin(None, is_new=True)
    cluster.stable, cluster.ends = {0: 3}, {0: 4}
    assert len(lookout.look(is_last=True)) == 1


def test_notes_that_cannot_be_written_are_told(tmp_path):
    (tmp_path / "file").touch()
    note = Note(None, str(tmp_path / "file"), "kafka.json")
    with pytest.raises(PakkaError, match=r"notes at .*cannot be read or written"):
        note.write({})
    with pytest.raises(PakkaError, match="cannot be read or written"):
        note.read()
