"""The Kafka source seen from the driver: are the topics still the same, is everything still there, does it go on?

Spark reads by topic name and offset. A topic that was deleted and made again has the same name and other records under the same
offsets; what retention has taken is passed over or ends the query in Spark's words; and one transaction that a producer
left open holds back all that comes after it, in silence. Each of them is said here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pakka.errors import PakkaError, RefusedError, RegressError
from pakka.kafka_cluster import Cluster, Topic
from pakka.kafka_error import READ_RIGHTS, told
from pakka.kafka_line import Address
from pakka.model.event import Noticed
from pakka.sources import _kafka_said as said
from pakka.sources._kafka_offsets import Offsets, misfit, moved, offsets_of, position_at, spelt
from pakka.sources._kafka_topics import Wanted
from pakka.sources._note import Note

STALLED_AFTER_S = 30.0
"""A transaction that holds back a partition for longer than this is told of."""
WHOSE = "source kafka"


@dataclass(slots=True)
class _Stall:
    """A partition of which a `read_committed` reader gets no more, though more is there."""

    end: int
    since: float
    is_told: bool = False


class KafkaLookout:
    """Asks the cluster with an admin client of its own."""

    def __init__(
        self,
        address: Address,
        wanted: Wanted,
        pipeline: str,
        group: str,
        note: Note,
        start: Offsets | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.address = address
        self.wanted = wanted
        self.pipeline = pipeline
        self.group = group
        self.note = note
        self.start = start
        self.clock = clock
        self.cluster = Cluster(address, WHOSE)
        self._id = ""
        self._topics: dict[str, Topic] = {}
        self._before: Offsets = {}
        """Up to here all is delivered, or nothing was to be read."""
        self._is_placed = False
        """Whether that is known: Spark writes where a new pipeline begins when it begins."""
        self._after: Offsets = {}
        """Where the epoch under way ends."""
        self._stalls: dict[tuple[str, int], _Stall] = {}
        self._untold: list[Noticed] = []

    # What the run asks.

    def begin(self, offsets: str | None, is_new: bool, first: str | None = None) -> Sequence[Noticed]:
        with self._told():
            self._id = self.cluster.id
        place = offsets or first
        self._is_placed = place is not None
        self._before = self._after = offsets_of(place) if place else {}
        now = self._now()
        noted = None if is_new else self.note.read()
        notices: list[Noticed] = [] if is_new or noted is not None else [self._unnoted()]
        if noted is not None:
            self._check_cluster(str(noted["cluster"]))
            known = {n: Topic(n, t["id"], tuple(range(t["partitions"])), 0) for n, t in noted["topics"].items()}
            notices = self._compare(known, now)
        if self.wanted.pattern is not None and not now:
            notices.append(self._nothing_matches())
        self._topics = now
        if offsets is None:
            self._check_start(offsets_of(first) if first else None)
        self._check_kept()
        self._check_added()
        # Not before: who takes a topic out again that was refused has read nothing of it.
        self._remember(now)
        return notices

    def position(self, offsets: str) -> str:
        self._after = offsets_of(offsets)
        if not self._after.keys() <= self._topics.keys():
            # Made since the last look; or Spark matches in another way. Seen before it is read, it can be compared once it was.
            self._untold += self._look_again()
            self._check_seen()
        return position_at(self._id, self.group, self._after)

    def passed(self) -> None:
        self._before = self._after
        self._is_placed = True

    def check(self) -> Sequence[Noticed]:
        untold, self._untold = self._untold, []
        return [*untold, *self._look_again()]

    def look(self, is_last: bool = False) -> Sequence[Noticed]:
        now = self.clock()
        found: list[Noticed] = []
        for name, topic in self._topics.items():
            with self._told(name):
                ends = self.cluster.end_offsets(name, topic.partitions, is_committed=True)
                whole = self.cluster.end_offsets(name, topic.partitions, is_committed=False)
            for partition in topic.partitions:
                notice = self._stall(name, partition, ends[partition], whole[partition], now, is_last)
                found += [notice] if notice else []
        return found

    def explain(self, error: BaseException) -> PakkaError | None:
        if denied := said.denied(error):
            return RefusedError(
                f"{self._who}: Spark is not let in: {denied}; nothing of that epoch is visible", hint=READ_RIGHTS
            )
        if mistimed := said.mistimed(error):
            return self._mistimed(mistimed)
        if not (lost := said.lost(error)):
            return None
        try:
            self.check()
            self._check_kept()
            self._check_added()
        except PakkaError as reason:
            return reason
        return RefusedError(
            f"{self._who}: Spark says that records are gone which it was to read: {lost}; nothing of that epoch is visible",
            hint="run again; if it is said again, compare the topic's retention with how far the pipeline is behind",
        )

    def close(self) -> None:
        """The admin client ends with the last who knows it."""

    # What is found.

    def _look_again(self) -> list[Noticed]:
        now = self._now()
        notices = self._compare(self._topics, now)
        if now != self._topics:
            self._remember(now)
        return notices

    def _check_seen(self) -> None:
        """Is every topic that Spark reads looked after?"""
        unseen = sorted(self._after.keys() - self._topics.keys())
        if unseen:
            option = "`topics`" if self.wanted.pattern is None else f"the pattern `{self.wanted.pattern}`"
            raise RefusedError(
                f"{self._who}: Spark reads topic `{unseen[0]}`, which pakka does not see by {option}: whether it is made again, or loses records, "
                "would pass unnoticed; nothing of that epoch is visible",
                hint="write `pattern` so that Java and Python read it alike, or name the topics in `topics`; or let the user of `settings` "
                "describe the topic, if it may not",
            )

    def _compare(self, known: Mapping[str, Topic], now: Mapping[str, Topic]) -> list[Noticed]:
        for name, before in known.items():
            after = now.get(name)
            if after is None:
                raise self._dropped(name)
            if after.id != before.id:
                raise self._refused(
                    f"topic `{name}` was deleted and made again: its id was {before.id}, and is {after.id}; the records that were not "
                    f"read before are lost, and other ones stand under the offsets after {spelt(self._before.get(name, {}))}",
                    self._next(anew=name),
                )
            if len(after.partitions) < len(before.partitions):
                raise self._refused(
                    f"topic `{name}` had {len(before.partitions)} partitions, and has {len(after.partitions)}",
                    self._next(anew=name),
                )
        return [*self._more_partitions(known, now), *self._more_topics(known, now)]

    def _dropped(self, name: str) -> RegressError:
        reached = f"it was read up to {spelt(self._before.get(name, {}))}"
        with self._told(name):
            is_there = self.cluster.topics([name])[name] is not None
        if not is_there:
            return self._refused(f"topic `{name}` is not there any more; {reached}", self._next(dropped=name))
        option = "`topics` names it no more" if self.wanted.pattern is None else "`pattern` matches it no more"
        return self._refused(
            f"topic `{name}` was read by this pipeline, and {option}; the topic itself is there; {reached}",
            f"put it back; or {self._next(dropped=name, goal='to go on without it')}",
        )

    def _more_partitions(self, known: Mapping[str, Topic], now: Mapping[str, Topic]) -> list[Noticed]:
        grown = [(known[n], t) for n, t in now.items() if n in known and len(t.partitions) > len(known[n].partitions)]
        return [
            Noticed(
                self.pipeline,
                "partitions",
                f"source kafka: topic `{after.name}` had {len(before.partitions)} partitions and has {len(after.partitions)}; the new ones are "
                "read from their beginning",
                hint="records of one key may now be in two partitions: what was written before and after is read in any order",
            )
            for before, after in grown
        ]

    def _more_topics(self, known: Mapping[str, Topic], now: Mapping[str, Topic]) -> list[Noticed]:
        return [
            Noticed(self.pipeline, "topics", f"source kafka: topic `{name}` is new, and read from its beginning")
            for name in now
            # What the offsets name was read before, though nobody has noted it.
            if name not in known and name not in self._before
        ]

    def _nothing_matches(self) -> Noticed:
        return Noticed(
            self.pipeline,
            "topics",
            f"source kafka: no topic of {self.address} matches the pattern `{self.wanted.pattern}`; nothing is read until one does",
            hint="a pattern must match the whole name of a topic, and only topics that the user of `settings` may DESCRIBE are seen",
        )

    def _unnoted(self) -> Noticed:
        """A checkpoint that was copied without its notes, or a driver that died while it wrote them on a remote file system."""
        return Noticed(
            self.pipeline,
            "unnoted",
            f"source kafka: the checkpoint has offsets, and {self.note.path}, which says of which topics, is not there: one that was deleted "
            "and made again since cannot be told from the one that was read; the topics are taken as they are now, and noted",
            hint="if one was made again, stop, and begin anew as docs/reference/kafka-source.md has it; a checkpoint is copied together with "
            "the directory of its notes",
        )

    def _check_kept(self) -> None:
        """Is the next record of every partition still there?"""
        for name, reached in self._before.items():
            topic = self._topics.get(name)
            if topic is None:
                continue
            with self._told(name):
                starts = self.cluster.start_offsets(name, [p for p in reached if p in topic.partitions])
            for partition, start in starts.items():
                if start > reached[partition]:
                    raise self._refused(
                        f"topic `{name}` partition {partition}: the records from offset {reached[partition]} to {start - 1} are gone before "
                        "they were read: retention has passed over them",
                        self._next(),
                    )

    def _check_start(self, noted: Offsets | None) -> None:
        """Nothing is delivered: does `start` name what is there? Spark looks at it when it reads, and has noted it by then."""
        # The notes are beside the checkpoint.
        anew = "" if noted is None else f"remove the directory {self.note.directory.removesuffix('.source')}"
        for name, topic in self._topics.items() if self.start is not None else ():
            named = (self.start or {}).get(name, {})
            if noted is None and not named:
                continue
            with self._told(name):
                firsts = self.cluster.start_offsets(name, topic.partitions)
                ends, wholes = (self.cluster.end_offsets(name, topic.partitions, is_committed=c) for c in (True, False))
            if noted is not None and (found := moved(name, named, noted.get(name, {}), firsts)):
                raise self._refused(
                    found, f"set `start` as it was; or {anew} to begin where it says now, and run again"
                )
            if found := misfit(name, named, firsts, ends, wholes):
                right = "set `start` to an offset that it has, or to the next one, and run again"
                raise self._refused(found, f"{anew}, {right}" if anew else right)

    def _check_added(self) -> None:
        """Spark takes a partition that it has not read before from offset 0 or not at all: it cannot tell what was taken from the beginning."""
        for name, topic in self._topics.items() if self._is_placed else ():
            added = [p for p in topic.partitions if p not in self._before.get(name, {})]
            if not added:
                continue
            with self._told(name):
                starts = self.cluster.start_offsets(name, added)
            for partition, start in starts.items():
                if start > 0:
                    raise self._refused(
                        f"topic `{name}` partition {partition} is new to this pipeline and begins at offset {start}: what was before is gone, as by "
                        "retention, and Spark reads a partition that is added only from offset 0 on",
                        self._next(),
                    )

    def _mistimed(self, record: said.Mistimed) -> RefusedError:
        """One record that Spark cannot make a row of, whatever is done with its value: no epoch that has it comes through."""
        try:
            hint = self._past(record.topic, record.partition, record.offset)
        except PakkaError:
            hint = "run again to be told how to go on behind it"
        return RefusedError(
            f"{self._who}: topic `{record.topic}` partition {record.partition}: the record at offset {record.offset} has the time {record.ms} ms, which is later than any that "
            "Spark can hold: its producer counts in another unit; nothing of that epoch is visible",
            hint=f"{hint}. Let the producer write milliseconds; a topic refuses such times by `message.timestamp.after.max.ms`, and takes its "
            "own by `message.timestamp.type=LogAppendTime`",
        )

    def _past(self, topic: str, partition: int, offset: int) -> str:
        """How to go on behind a record, and lose nothing that stands before it."""
        if not self._is_placed:
            return "nothing is delivered yet: run again to be told how to go on behind it"
        before = offset - self._before.get(topic, {}).get(partition, 0)
        if before > 0:
            # Spark shares a limit out among the partitions that have something, so that no epoch which begins there gets as far as the record.
            first = self._next(goal="to have first what stands before it", limit=before)
            return f"{first}; the run after that stops again, and says how to go on"
        return self._next(goal="to go on without it", behind=(topic, partition, offset + 1))

    def _check_cluster(self, noted: str) -> None:
        if noted != self._id:
            raise self._refused(
                f"`servers` leads to the cluster {self._id}, and the checkpoint is of the cluster {noted}: offsets of one mean nothing in "
                "the other",
                "set `servers` to the cluster that was read before; or give this pipeline a name and a checkpoint of its own",
            )

    def _stall(self, topic: str, partition: int, end: int, whole: int, now: float, is_last: bool) -> Noticed | None:
        place = (topic, partition)
        if whole <= end:
            self._stalls.pop(place, None)
            return None
        seen = self._stalls.get(place)
        if seen is None or seen.end != end:
            seen = self._stalls[place] = _Stall(end, now)
        held_s = now - seen.since
        if seen.is_told or not (is_last or held_s >= STALLED_AFTER_S):
            return None
        seen.is_told = True
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen.since))
        return Noticed(
            self.pipeline,
            "stalled",
            f"source kafka: topic `{topic}` partition {partition}: a transaction that some producer has left open holds back everything from "
            f"offset {end} on, {whole - end} offsets up to now; seen since {since}",
            hint="records behind it are read when it ends, at the latest by its transaction.timeout.ms; `kafka-transactions.sh find-hanging` "
            "and `abort` are for one that never does",
        )

    # How it is said.

    @property
    def _who(self) -> str:
        return f"pipeline `{self.pipeline}`: {WHOSE}: {self.address}"

    def _told(self, about: str = "") -> AbstractContextManager[None]:
        words = f"topic `{about}`" if about else ""
        whose = f"pipeline `{self.pipeline}`: {WHOSE}"
        return told(whose, self.address, self.cluster.grievance, "nothing was written", RefusedError, words)

    def _refused(self, what: str, hint: str) -> RegressError:
        return RegressError(f"{self._who}: {what}; nothing was written", hint=hint)

    def _next(
        self,
        anew: str | None = None,
        dropped: str | None = None,
        goal: str = "to go on without what is gone",
        behind: tuple[str, int, int] | None = None,
        limit: int | None = None,
    ) -> str:
        """What to type to go on without the records that are gone, and without one of the others twice."""
        start: dict[str, dict[str, int]] = {}
        for name, topic in self._now().items():
            if name == dropped:
                continue
            reached = {} if name == anew else self._before.get(name, {})
            with self._told(name):
                starts = self.cluster.start_offsets(name, topic.partitions)
            start[name] = {str(p): max(starts[p], reached.get(p, 0)) for p in topic.partitions}
        if behind is not None:
            start[behind[0]][str(behind[1])] = behind[2]
        most = f" and `max_offsets_per_epoch: {limit}`" if limit is not None else ""
        return (
            f"{goal}: remove the checkpoint directory, set `start: "
            f"{json.dumps(start)}`{most} in the source, and type `pakka reset {self.pipeline} --checkpoint --yes`"
        )

    def _now(self) -> dict[str, Topic]:
        with self._told():
            found = self.wanted.of(self.cluster)
        return {name: topic for name, topic in found.items() if topic is not None}

    def _remember(self, topics: dict[str, Topic]) -> None:
        self._topics = topics
        noted: dict[str, Any] = {n: {"id": t.id, "partitions": len(t.partitions)} for n, t in topics.items()}
        data = {"v": 1, "cluster": self._id, "topics": noted}
        if self.note.read() != data:
            self.note.write(data)
