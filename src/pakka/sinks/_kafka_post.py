"""Sending batches that are made already, in a transaction that is told of every place before it writes there.

Batches are sent in version 11 at most, which leaves it to us to tell the coordinator: protocol 1 of transactions, see
docs/decisions/0012-kafka-transactions-on-a-real-broker.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka import errors  # type: ignore[import-untyped]
from kafka.protocol.metadata import CoordinatorType  # type: ignore[import-untyped]
from kafka.protocol.producer import (  # type: ignore[import-untyped]
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
)

from pakka.errors import SinkError
from pakka.kafka_line import Address
from pakka.sinks._kafka_batch import Handle, Place, Signed
from pakka.sinks._kafka_parcel import Parcel
from pakka.sinks._kafka_raw import Registry, begin_request, begun
from pakka.sinks._kafka_wire import AWAY, expect_granted, expect_passing, words_of

_PRODUCE_VERSION = 11
"""The last one of the transactions that `PROTOCOL` names."""
_GROUP_VERSION = 3
"""Of what is asked of a group in a transaction: the first that names no member of it."""
_PRODUCE_S = 30.0
"""For the answer to one request with batches, replicas and all. Whoever has none by then sends it again, which is harmless."""


@dataclass(frozen=True, slots=True)
class Posted:
    """Batches on their way, one a place."""

    handle: Handle
    batches: Mapping[Place, Signed]
    answer: tuple[Any, Any] | None
    """The line, and what becomes the brokers' answers; None: they could not be sent."""


class Post(Registry):
    """A registry that sends as well."""

    def __init__(self, whose: object, address: Address) -> None:
        super().__init__(whose, address)
        self._leaders: dict[Place, int] = {}

    def close(self) -> None:
        self._leaders.clear()
        super().close()

    def begin_in(self, handle: Handle, places: Collection[Place]) -> int:
        """Tell the coordinator that the transaction writes to these places, before it does. It may be repeated freely. Comes back with the
        broker that has granted it.
        """
        request = begin_request(handle, places)

        def ask() -> int:
            node = self._coordinator(handle.id)
            # Of several answers the one that says something of its own: the others are only told that one was not granted.
            answers = [a for a in begun(self._send(request, node)) if a[1] is not errors.NoError]
            for place, error in sorted(
                answers, key=lambda answer: answer[1].errno == KafkaError.OPERATION_NOT_ATTEMPTED
            ):
                expect_granted(error, f"topic `{place[0]}`, partition {place[1]}")
            return node

        return self._patiently(ask)

    def find(self, places: Collection[Place]) -> None:
        """Know who leads these places. `SinkError`: a topic has fewer partitions than it had when its records were prepared."""

        def ask() -> None:
            unknown = {topic for topic, partition in places if (topic, partition) not in self._leaders}
            if unknown:
                self._look_up(unknown)

        self._patiently(ask)
        gone = max((place for place in places if place not in self._leaders), default=None)
        if gone is not None:
            topic, partition = gone
            count = sum(place[0] == topic for place in self._leaders)
            raise SinkError(
                f"{self.whose}: {self.address}: records wait for partition {partition} of topic `{topic}`, which has {count}: it was made "
                "anew with fewer since they were prepared; nothing was changed",
                hint=f"give topic `{topic}` as many partitions as it had, at least {partition + 1}, and run again",
            )

    def post(self, handle: Handle, batches: Mapping[Place, Signed]) -> Posted:
        """Send batches, one a place at most, and do not wait: `settle` does."""
        try:
            return Posted(handle, batches, self._posted(handle, batches))
        except AWAY:
            return Posted(handle, batches, None)

    def settle(self, posted: Posted, patience_s: float) -> dict[Place, int]:
        """Wait until the brokers have every batch. What has no answer is sent again: they know a batch by its number, and keep one. Comes back
        with the offset at which each begins, as far as they say it.

        `KafkaException`: they refuse one, for good.
        """
        left = dict(posted.batches)
        offsets: dict[Place, int] = {}
        answer = posted.answer

        def ask() -> None:
            nonlocal answer
            waited, answer = answer, None
            answers = self._waited(waited if waited is not None else self._posted(posted.handle, left))
            trouble: errors.KafkaError | None = None
            for place, error, words, offset in _taken(answers):
                if error in (errors.NoError, errors.DuplicateSequenceNumberError):
                    del left[place]
                    offsets[place] = offset
                    continue
                where = f"topic `{place[0]}`, partition {place[1]}: {words}"
                expect_passing(error, where)
                trouble = error(where)
            if trouble is not None:
                self._leaders.clear()
                raise trouble
            if left:
                raise errors.LeaderNotAvailableError(f"no answer for {sorted(left)}")

        self._patiently(ask, patience_s)
        return offsets

    def tell_group(self, handle: Handle, group: str, offsets: Mapping[Place, int]) -> list[Place]:
        """Commit the offsets of a consumer group as part of the transaction. Nobody need have joined the group. Comes back with the places
        that the cluster does not have any more: they are left out.
        """
        named = {
            "transactional_id": handle.id,
            "group_id": group,
            "producer_id": handle.producer_id,
            "producer_epoch": handle.producer_epoch,
        }
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            told = Topic.TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            topics.setdefault(topic, []).append(told)
        commit = TxnOffsetCommitRequest(
            **named,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[Topic(name=name, partitions=told) for name, told in topics.items()],
            max_version=_GROUP_VERSION,
        )

        def ask() -> list[Place]:
            add = AddOffsetsToTxnRequest(**named, max_version=_GROUP_VERSION)
            answer = self._send(add, self._coordinator(handle.id))
            expect_granted(errors.for_code(answer.error_code), f"group `{group}`")
            answer = self._send(commit, self._coordinator(group, CoordinatorType.GROUP))
            gone: list[Place] = []
            for topic in answer.topics:
                for part in topic.partitions:
                    error = errors.for_code(part.error_code)
                    if error is errors.UnknownTopicOrPartitionError:
                        gone.append((str(topic.name), int(part.partition_index)))
                    else:
                        expect_granted(error, f"group `{group}`, topic `{topic.name}`")
            return gone

        return self._patiently(ask)

    def _posted(self, handle: Handle, batches: Mapping[Place, Signed]) -> tuple[Any, Any]:
        unknown = {topic for topic, partition in batches if (topic, partition) not in self._leaders}
        if unknown:
            self._look_up(unknown)
        by_leader: dict[int, dict[Place, Signed]] = {}
        for (topic, partition), batch in batches.items():
            leader = self._leaders.get((topic, partition))
            if leader is None:
                raise KafkaException(
                    KafkaError(KafkaError._UNKNOWN_PARTITION, f"topic `{topic}` has no partition {partition}")
                )
            by_leader.setdefault(leader, {})[topic, partition] = batch
        admin = self._open()
        manager, lines = admin._manager, admin._manager._conns
        requests = [
            (Parcel(handle.id, theirs, int(_PRODUCE_S * 1000), _PRODUCE_VERSION, partial(lines.get, leader)), leader)
            for leader, theirs in by_leader.items()
        ]
        return admin, manager.call_soon(self._go_all(manager, requests, _PRODUCE_S))

    def _waited(self, answer: tuple[Any, Any]) -> Any:
        admin, future = answer
        if admin is not self._admin:
            raise errors.KafkaConnectionError("the line was closed meanwhile")

        async def wait() -> Any:
            return await admin._manager.wait_for(future, 2 * _PRODUCE_S * 1000)

        return admin._manager.run(wait)

    def _look_up(self, topics: Collection[str]) -> None:
        """Who leads the partitions of these topics. One that has no leader now, or is not there, is an error that may pass."""
        admin = self._open()
        for topic in admin._manager.run(admin._get_cluster_metadata, list(topics))["topics"]:
            expect_granted(errors.for_code(topic["error_code"]), f"topic `{topic['name']}`")
            for place in [place for place in self._leaders if place[0] == topic["name"]]:
                del self._leaders[place]
            for part in topic["partitions"]:
                if part["leader_id"] < 0:
                    raise errors.LeaderNotAvailableError(
                        f"topic `{topic['name']}`, partition {part['partition_index']}"
                    )
                self._leaders[topic["name"], part["partition_index"]] = part["leader_id"]


def _taken(answers: Collection[Any]) -> Iterator[tuple[Place, Any, str, int]]:
    """What the brokers say to each batch, and the offset at which it begins."""
    for answer in answers:
        for topic in answer.responses:
            for part in topic.partition_responses:
                error = errors.for_code(part.error_code)
                words = (getattr(each, "batch_index_error_message", None) for each in part.record_errors or ())
                said = next(filter(None, (part.error_message, *words)), None)
                yield (str(topic.name), int(part.index)), error, str(said or words_of(error)), int(part.base_offset)
