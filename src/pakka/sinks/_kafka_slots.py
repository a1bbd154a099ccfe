"""The slots topic: which slots of an epoch are committed, told by a record inside each slot's own transaction.

It is a topic beside the ledger's, since a `read_committed` reader stops at the first transaction that is open, and here there are
many. So it is read whole, with the markers between the records: every record is then committed, aborted or open, whatever stands
before it. One partition, one key a slot, compacted: it has as many records as there are slots, and what was written of late.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pakka.errors import SinkError, UnavailableError
from pakka.kafka_cluster import Cluster
from pakka.kafka_error import told
from pakka.kafka_line import Address
from pakka.kafka_transactions import Listed
from pakka.model.id import Binding, Slot
from pakka.sinks._kafka_batch import Place
from pakka.sinks._kafka_ledger import PARTITION, SETTINGS, LedgerTopic
from pakka.sinks._kafka_mender import Mender
from pakka.sinks._kafka_raw import Marker, Registry
from pakka.sinks._two_phase import Share

SLOT_SETTINGS = {
    **SETTINGS,
    # It is read from its beginning, and compaction takes whole segments.
    "segment.bytes": str(1 << 20),
    "segment.ms": str(3600 * 1000),
    # Whoever reads it need not know the codecs of whoever wrote it.
    "compression.type": "uncompressed",
}

SHARD = 0
"""The attempt in whose name a slot is sent out of the spool, whichever attempt at it was decided: it has one id."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A slot's record: which attempt it is of, and what was in it."""

    slot: Slot
    rows: int
    checksum: str

    @property
    def key(self) -> bytes:
        return str(self.slot.number).encode()

    @property
    def share(self) -> Share:
        return Share(self.slot.number, self.slot.fence, self.slot.attempt, self.rows, self.checksum)

    def to_bytes(self) -> bytes:
        s = self.slot
        named = {"pipeline": s.pipeline, "sink": s.sink, "epoch": s.epoch, "fence": s.fence, "slot": s.number}
        data = {"v": 1, **named, "attempt": s.attempt, "rows": self.rows, "checksum": self.checksum}
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, whose: object, topic: str, raw: bytes) -> Entered:
        try:
            data = json.loads(raw)
            if data["v"] == 1:
                names = (data["pipeline"], data["sink"], data["epoch"], data["fence"], data["slot"], data["attempt"])
                return cls(Slot(*names), int(data["rows"]), str(data["checksum"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{whose}: slots topic `{topic}` holds a record that pakka did not write: {raw[:60]!r}; nothing was changed",
                hint="see who else writes to that topic; only pakka may",
            ) from error
        raise SinkError(
            f"{whose}: slots topic `{topic}` was written by a newer pakka (version {data['v']}, and 1 is known here); nothing was "
            "changed",
            hint="run the newer pakka",
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What the topic says: the newest committed record of each slot, and what is open or lost, by producer."""

    committed: Mapping[int, Entered] = field(default_factory=dict)
    is_open: Mapping[int, Slot] = field(default_factory=dict)
    lost: Mapping[int, Slot] = field(default_factory=dict)
    """Open in the topic, and no coordinator knows it any more: whether it was committed, nobody can tell."""
    topic: str = ""
    """The topic's own id, which another one under its name does not have; empty if there is none."""

    def of_epoch(self, epoch: int) -> dict[int, Share]:
        return {number: e.share for number, e in self.committed.items() if e.slot.epoch == epoch}

    def lost_of_epoch(self, epoch: int) -> list[Slot]:
        """Slots of which nobody can tell whether they are visible. Of one with a committed record it is known: there is only one."""
        known = self.of_epoch(epoch)
        lost = [slot for slot in self.lost.values() if slot.epoch == epoch and slot.number not in known]
        return sorted(lost, key=lambda slot: slot.number)


class SlotsTopic:
    """Reads the slots topic of one sink. It is written by the transactions of writers, and by the driver where it replays one."""

    def __init__(
        self,
        binding: Binding,
        address: Address,
        name: str,
        prefix: str,
        open_mender: Callable[[Registry, str, Cluster], Mender],
        ids_of: Callable[[Slot], Collection[str]],
    ) -> None:
        self.binding = binding
        self.address = address
        self.name = name
        self.prefix = prefix
        """What the transactional ids of all slots begin with."""
        self._open_mender = open_mender
        self._ids_of = ids_of
        """Every transactional id by which an attempt at a slot may have been sent."""

    def make(self, cluster: Cluster) -> str:
        """Its id, once it is there."""
        topic = self.topic()
        topic.use(cluster)
        return topic.make().id

    def topic(self) -> LedgerTopic:
        """The topic alone, which is made like the ledger's."""
        return LedgerTopic(self.binding, self.address, self.name, "", SLOT_SETTINGS)

    def read(self, cluster: Cluster, registry: Registry) -> Found:
        """All of it. Transactions that are being ended are waited for first, so that none is called open which is decided."""
        registry.listed(self.prefix)
        with told(self.binding, self.address, cluster.grievance, about=f"slots topic `{self.name}`"):
            topic = cluster.topic(self.name)
            if topic is None:
                return Found()
            start = cluster.start_offsets(self.name, [PARTITION])[PARTITION]
            end = cluster.end_offsets(self.name, [PARTITION], is_committed=False)[PARTITION]
        committed: dict[int, Entered] = {}
        waiting: dict[int, Entered] = {}
        for each in registry.log(self.name, start, end):
            if isinstance(each, Marker):
                entered = waiting.pop(each.producer_id, None)
                if entered is not None and each.is_commit:
                    committed[entered.slot.number] = entered
            elif each.value is not None:
                waiting[each.producer_id] = Entered.from_bytes(self.binding, self.name, each.value)
        lost: dict[int, Slot] = {}
        for producer, known in self._known(waiting, registry).items():
            if known is None:
                lost[producer] = waiting.pop(producer).slot
            elif not known.is_open:
                # It has ended, and a broker has forgotten to say so here. What is still there of it is of its last transaction.
                last = waiting.pop(producer)
                if self._is_commit(known, cluster, registry):
                    committed[last.slot.number] = last
        self._expect_open(lost, registry)
        return Found(committed, {producer: e.slot for producer, e in waiting.items()}, lost, topic.id)

    def _known(self, waiting: Mapping[int, Entered], registry: Registry) -> dict[int, Listed | None]:
        """What coordinators say of producers that have a record here without an end. None: nobody knows it any more."""
        if not waiting:
            return {}
        found: dict[int, Listed | None] = {t.producer_id: t for t in registry.known(waiting)}
        for producer in waiting.keys() - found.keys():
            # A coordinator that has just come up lists nothing yet; asked for an id, it answers or says that it cannot.
            told = map(registry.settled, self._ids_of(waiting[producer].slot))
            found[producer] = next((each for each in told if each is not None and each.producer_id == producer), None)
        return {producer: found[producer] for producer in waiting}

    def _expect_open(self, lost: Collection[int], registry: Registry) -> None:
        """What was found without an end may have got one since, and its id another producer."""
        opened = registry.open_in([(self.name, PARTITION)])[self.name, PARTITION] if lost else None
        if opened is not None and not opened.keys() >= set(lost):
            raise UnavailableError(
                f"{self.binding}: {self.address}: slots topic `{self.name}` has changed while it was read; nothing was changed by this",
                hint="run again",
            )

    def held(self, cluster: Cluster, topics: Collection[str]) -> dict[Place, int]:
        """Where in these topics readers wait for anybody."""
        with told(self.binding, self.address, cluster.grievance):
            return cluster.held(topics)

    def attempt_of(self, ident: str) -> tuple[int, int] | None:
        """The slot and attempt that a transactional id is for, if it is of this sink."""
        number, _, attempt = ident.removeprefix(self.prefix).partition(".")
        if not ident.startswith(self.prefix) or not (number.isdigit() and attempt.isdigit()):
            return None
        return int(number), int(attempt)

    def is_shard(self, ident: str) -> bool:
        """Whether it is an id by which a slot may be sent out of the spool."""
        attempt = self.attempt_of(ident)
        return attempt is not None and attempt[1] == SHARD

    def _is_commit(self, ended: Listed, cluster: Cluster, registry: Registry) -> bool:
        if ended.is_commit is not None:
            return ended.is_commit
        # Whoever came to mend it has taken its id, by which the coordinator forgets, and may have died before it was done.
        return self._open_mender(registry, ended.id, cluster).was_commit(self.name)
