"""Who has the transactional id of a Kafka sink that commits slot by slot: writes the ledger, and sends slots again that have expired."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from pakka.points import reach
from pakka.sinks._kafka_applier import KafkaApplier
from pakka.sinks._kafka_ledger import PARTITION, Page
from pakka.sinks._kafka_produce import Outbox
from pakka.sinks._kafka_slots import Entered


class Control(KafkaApplier):
    """The driver's producer, and the ledger as it is for as long as nobody else asks for the id."""

    knows_parts = True

    def page(self) -> Page:
        """The ledger as it is now."""
        fence, entry = self.ledger()
        return Page(fence, json.loads(entry)["epoch"]["number"] if entry else -1, entry)

    def enter(self, page: Page, position: str = "") -> bool:
        """Make `page` the newest of the ledger, and tell the source's group. False: a newer fence is there, and nothing was done."""
        session = self._ready(page.fence)
        if session is None or session.page.fence != page.fence or session.page.epoch > page.epoch:
            return False

        def fill(outbox: Outbox) -> None:
            self._enter(outbox, page)
            self._tell_group(outbox.seat, position)
            reach("commit.kafka.ending", page.epoch)

        self._transact(session, page, fill)
        return True

    @property
    def topics(self) -> set[str]:
        """All that the sink has written to, as far as it is known."""
        return {*self._topics, *self._touched, *self._targets()}

    def know(self, topics: Iterable[str]) -> None:
        """What slots have written to goes into the ledger with the next page."""
        self._topics.update(topics)

    def own(self, fence: int) -> Page | None:
        """Have the id, and the ledger as it is for as long as we have it. None: a newer fence is there."""
        session = self._ready(fence)
        return session.page if session is not None else None

    def replay(self, topic: str, entered: Entered, batches: Iterator[pa.RecordBatch]) -> bool:
        """Send a slot, in one transaction. `own` comes first. False: the id was lost since."""
        session = self._session
        if session is None:
            return False

        def fill(outbox: Outbox) -> None:
            outbox.foresee(topic, PARTITION)
            for batch in batches:
                outbox.send(batch)
            outbox.send_one(topic, entered.to_bytes(), entered.key, PARTITION)
            outbox.settle()
            self._reach_sent(entered.slot.epoch)

        self._transact(session, session.page, fill)
        return True

    def _reach_sent(self, epoch: int) -> None:
        reach("commit.kafka.replayed", epoch)

    def _targets(self) -> list[str]:
        return [*super()._targets(), self.sink.slots_topic(self.binding)]
