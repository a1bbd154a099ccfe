"""What topics take, and which record they would not: found on the executors, while the epoch can still be aborted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pakka.errors import SchemaError
from pakka.kafka_cluster import INTERNAL
from pakka.model.id import Binding
from pakka.sinks._numpy import Ints, is_valid_of, numbers_of, starts_of

OVERHEAD_BYTES = 97
"""What a record takes on its way beside its own bytes: 61 for the batch in which it may stand alone, and at most 36 for its
lengths, its time and its offset. librdkafka counts the 36 before it takes a record, the broker both."""
_HEADER_BYTES = 10
"""At most that for the two lengths of a header."""
_FOR_EVER_MS = (1 << 63) - 1
"""What Kafka itself means by it."""
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Limits(NamedTuple):
    """What a topic takes, as the broker says."""

    partitions: int
    record_bytes: int
    """`max.message.bytes`, unless something else allows less."""
    needs_key: bool = False
    """A compacted topic refuses a record without a key."""
    ahead_ms: int | None = None
    """`message.timestamp.after.max.ms`: how far the time of a record may be ahead; None if the topic sets its own."""
    behind_ms: int | None = None
    """`message.timestamp.before.max.ms`: how far it may be behind when it is sent."""


def time_ms(settings: Mapping[str, str], side: str) -> int | None:
    """How far the time of a record may be off; None: however far. Brokers before 4.0 have one bound for both sides too."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    names = (f"message.timestamp.{side}.max.ms", "message.timestamp.difference.max.ms")
    return min((int(settings[name]) for name in names if name in settings), default=None)


Look = Callable[[str], Limits | None]
"""What a topic takes; None if it is not there."""


class Refuser:
    """How a refusal begins. Counts the rows of a slot, so that it can name one."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.rows = 0

    def plain(self, what: str, hint: str) -> SchemaError:
        return SchemaError(f"{self.binding}: {what}; nothing was written", hint=hint)

    def misfit(self, field: pa.Field, why: str, hint: str) -> SchemaError:
        return self.plain(f"column `{field.name}` is {field.type}, and {why}", hint)

    def row(self, column: str, row: int, what: str, hint: str) -> SchemaError:
        """`row` counts within the batch at hand."""
        return self.plain(f"column `{column}` of row {self.rows + row} of a slot {what}", hint)


class Gauge:
    """Holds every record against its topic. Topics are looked at once, when the first record of theirs comes."""

    def __init__(self, refuser: Refuser, topic: str | None, record_bytes: int, look: Look | None) -> None:
        self.refuser = refuser
        self.topic = topic
        self.record_bytes = record_bytes
        self.look = look
        self._known: dict[str, Limits] = {}
        if topic is not None:
            trouble = self._learn(topic)
            if trouble is not None:
                raise refuser.plain(f"`topic` {trouble}", _TOPIC_HINT)

    def limits(self, topic: str) -> Limits:
        """Of a topic that some record has named: as it was when the first one came, or the order of a key would not be kept."""
        return self._known[topic]

    @property
    def topics(self) -> list[str]:
        """Of all records so far."""
        return sorted(self._known)

    def learn(self, column: str, topics: pa.Array) -> None:
        """Refuse a name that is none of a topic, or of none that is there."""
        for number, topic in enumerate(topics.dictionary.to_pylist()):
            trouble = None if topic in self._known else self._learn(topic)
            row = first(pc.equal(topics.indices, pa.scalar(number, pa.int32()))) if trouble else None
            if trouble is not None and row is not None:
                raise self.refuser.row(column, row, trouble, _TOPIC_HINT)

    def check_size(self, records: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        """Refuse a record that is too large. `rows` is what they were made of: the widest column is named."""
        sizes = lengths_of(records.column("key")) + lengths_of(records.column("value")) + OVERHEAD_BYTES
        if "headers" in records.schema.names:
            sizes += _header_bytes(records.column("headers"))
        most = self._each(records, lambda limits: min(limits.record_bytes, self.record_bytes))
        row = _index(sizes > most)
        if row is None:
            return
        bytes_in_row = {field.name: rows.column(field.name).slice(row, 1).nbytes for field in rows.schema}
        raise self.refuser.row(
            max(bytes_in_row, key=bytes_in_row.__getitem__),
            row,
            f"makes a record of {sizes[row]} bytes, and {self._topic_of(records, row)} takes {most[row]}",
            "keep such rows out by a rule, or raise `max.message.bytes` of the topic and `max_record_bytes` of the sink",
        )

    def check_key(self, records: pa.RecordBatch, column: str) -> None:
        row = _index(self._each(records, lambda limits: limits.needs_key) & ~is_valid_of(records.column("key")))
        if row is not None:
            what = f"is null, and {self._topic_of(records, row)} is compacted by key"
            raise self.refuser.row(column, row, what, "name a `key` that no row lacks")

    def check_partition(self, records: pa.RecordBatch, column: str) -> None:
        numbers = filled(records.column("partition"))
        partitions = self._each(records, lambda limits: limits.partitions)
        row = _index((numbers < 0) | (numbers >= partitions))
        if row is not None:
            what = f"is {numbers[row]}, and {self._topic_of(records, row)} has no such partition"
            raise self.refuser.row(column, row, what, "partitions begin at 0; a null leaves the choice to the key")

    def check_timestamp(self, records: pa.RecordBatch, column: str) -> None:
        times = records.column("timestamp")
        # A record without a time gets one that is near enough.
        ahead = np.where(is_valid_of(times), filled(times) - time.time_ns() // 1_000_000, 0)
        for setting, way, row in (
            ("after", "ahead of now", _index(ahead > self._each(records, lambda limits: _bound(limits.ahead_ms)))),
            ("before", "behind now", _index(-ahead > self._each(records, lambda limits: _early(limits.behind_ms)))),
        ):
            if row is not None:
                what = f"is further {way} than {self._topic_of(records, row)} takes"
                hint = f"keep such rows out by a rule, or raise `message.timestamp.{setting}.max.ms` of the topic"
                raise self.refuser.row(column, row, what, hint)

    def _learn(self, topic: str) -> str | None:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            return f"is {topic[:60]!r}, which cannot be the name of a topic"
        limits = Limits(1 << 31, self.record_bytes) if self.look is None else self.look(topic)
        if limits is None:
            return f"is `{topic}`, and there is no such topic"
        self._known[topic] = limits
        return None

    def _each(self, records: pa.RecordBatch, limit: Callable[[Limits], int]) -> npt.NDArray[Any]:
        """The limit of each record's topic."""
        if self.topic is not None:
            return np.full(records.num_rows, limit(self._known[self.topic]))
        topics = records.column("topic")
        known: npt.NDArray[Any] = np.array([limit(self._known[topic]) for topic in topics.dictionary.to_pylist()])
        each: npt.NDArray[Any] = known[numbers_of(topics.indices)]
        return each

    def _topic_of(self, records: pa.RecordBatch, row: int) -> str:
        return f"topic `{self.topic or records.column('topic')[row].as_py()}`"


def is_own(topic: str, ledger: str) -> bool:
    """Whether a topic is one of Kafka's own, or one in which sinks with this prefix remember what is committed: a row there would be
    believed, or could never be written.
    """
    return topic in INTERNAL or topic.startswith((f"{ledger}.ledger.", f"{ledger}.slots."))


def _bound(ms: int | None) -> int:
    return _FOR_EVER_MS if ms is None else ms


def _early(behind_ms: int | None) -> int:
    """Records grow older until they are sent, which may be by the next driver: a tenth of the bound is kept for that."""
    return _bound(behind_ms) - _bound(behind_ms) // 10


_TOPIC_HINT = "name a topic that is there: 1 to 249 letters of ASCII, digits, `.`, `_` and `-`"


def first(mask: pa.Array) -> int | None:
    """The first row for which it is true."""
    row: int = pc.index(mask, pa.scalar(True)).as_py()
    return None if row < 0 else row


def culprit(array: pa.Array, work: Callable[[pa.Array], object]) -> int:
    """The first row that makes `work` fail, which fails for the whole."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            work(array.slice(low, middle - low))
        except ValueError:
            high = middle
        else:
            low = middle
    return low


def filled(array: pa.Array) -> npt.NDArray[Any]:
    """A column of numbers, with 0 for null."""
    return numbers_of(pc.fill_null(array, pa.scalar(0, array.type)))


def lengths_of(array: pa.Array) -> Ints:
    """The bytes of each value; a null has none."""
    return filled(pc.binary_length(array)).astype(np.int64)


def _header_bytes(lists: pa.Array) -> Ints:
    entries = pc.list_flatten(lists)
    sizes = lengths_of(entries.field("key")) + lengths_of(entries.field("value")) + _HEADER_BYTES
    sums: Ints = np.diff(starts_of(sizes)[starts_of(filled(pc.list_value_length(lists)))])
    return sums


def _index(mask: npt.NDArray[Any]) -> int | None:
    found = np.flatnonzero(mask)
    return int(found[0]) if len(found) else None
