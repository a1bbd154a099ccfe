"""Many records into librdkafka's queue by one call, straight from Arrow's memory.

confluent-kafka takes records one by one, as Python objects. The library below it has a call for many, which this reaches by
ctypes, on the handle of the same producer, so that transactions and errors stay where they are: numpy fills the library's
public record structure with addresses into the Arrow buffers, and the library copies each record once.

Measured on a broker of its own in one transaction, 8 partitions: 1.61 us of processor time a record of 100 bytes against
2.64 us one by one, and 3.13 us against 5.12 us at 1 KB; by the clock 1.3 times as many records a second at 100 bytes.

What the call cannot do is left to the other way: headers and times have no place in the structure; and a partition that is
not there is counted by the library as waiting for ever (2.16), so that named partitions are sent one by one as well.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, Producer

from pakka.sinks._numpy import is_valid_of

_KNOWN = ("2.15.", "2.16.")
"""Versions of confluent-kafka in which the library's handle is the first thing behind the head of a producer's object."""
_RECORD = np.dtype(
    [
        ("err", "i4"),
        ("topic", "u8"),
        ("partition", "i4"),
        ("value", "u8"),
        ("value_bytes", "u8"),
        ("key", "u8"),
        ("key_bytes", "u8"),
        ("offset", "i8"),
        ("private", "u8"),
    ],
    align=True,
)
"""`rd_kafka_message_t`, which is public and has not changed since it was made."""
Records = npt.NDArray[np.void]
_ANY_PARTITION = -1
_COPY = 0x2
_TOO_LONG = 1 << 40
"""More than any record may have. The library says so without a look at it, unless it takes none at all."""


class Bulk:
    """Queues many records at once on a producer."""

    def __init__(self, producer: Producer, library: ctypes.CDLL) -> None:
        self.producer = producer
        self._library = library

    @classmethod
    def of(cls, producer: Producer) -> Bulk | None:
        """None: this confluent-kafka is not one that is known from inside."""
        return None if _library is None else cls(producer, _library)

    def queue(self, topic: str, records: Records) -> int:
        """Queue records of one topic in their order; the library's code of the first that it does not take, or 0."""
        producer = ctypes.c_void_p.from_address(id(self.producer) + object.__basicsize__).value
        handle = producer and self._library.rd_kafka_topic_new(producer, topic.encode(), None)
        if not handle:
            return int(KafkaError._STATE)  # the producer is closed
        try:
            place = records.ctypes.data
            taken = self._library.rd_kafka_produce_batch(handle, _ANY_PARTITION, _COPY, place, len(records))
        finally:
            # At once: a producer cannot be let go of while somebody holds one of its topics.
            self._library.rd_kafka_topic_destroy(handle)
        return 0 if taken == len(records) else int(records["err"][np.flatnonzero(records["err"])[0]])

    def trouble(self, topic: str) -> int:
        """The library's code if it takes no records any more, because the transaction has failed; else 0."""
        record = np.zeros(1, _RECORD)
        # An address is needed, and is not looked at.
        record["value"], record["value_bytes"] = record.ctypes.data, _TOO_LONG
        code = self.queue(topic, record)
        return 0 if code == KafkaError.MSG_SIZE_TOO_LARGE else code


def records_of(keys: pa.Array, values: pa.Array) -> Records:
    """Records that point into the columns, which must outlive them; both of large binary."""
    records = np.zeros(len(values), _RECORD)
    records["key"], records["key_bytes"] = _spans(keys)
    records["value"], records["value_bytes"] = _spans(values)
    return records


def _spans(array: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Where each value of a column of large binary begins, and its bytes; a null begins nowhere."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1].astype(np.uint64)
    # Without any bytes Arrow may have no memory for them, and the library takes an address for what is not null.
    base = np.uint64(data.address if data is not None and data.size else offsets.address)
    starts, sizes = base + ends[:-1], np.diff(ends)
    if array.null_count:
        is_null = ~is_valid_of(array)
        starts[is_null] = sizes[is_null] = 0
    return starts, sizes


def _load() -> ctypes.CDLL | None:
    """The library that confluent-kafka has loaded from its own wheel. Another copy of it would not know its producers."""
    package = Path(confluent_kafka.__file__).parent
    places = [package.parent / "confluent_kafka.libs", package / ".dylibs"]
    found = [path for place in places for path in place.glob("librdkafka*")]
    if not str(confluent_kafka.version()).startswith(_KNOWN) or len(found) != 1:
        return None
    try:
        library = ctypes.CDLL(str(found[0]), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.rd_kafka_topic_new.restype = pointer
    library.rd_kafka_topic_new.argtypes = [pointer, ctypes.c_char_p, pointer]
    library.rd_kafka_topic_destroy.restype = None
    library.rd_kafka_topic_destroy.argtypes = [pointer]
    library.rd_kafka_produce_batch.restype = number
    library.rd_kafka_produce_batch.argtypes = [pointer, ctypes.c_int32, number, pointer, number]
    return library


_library = _load()
