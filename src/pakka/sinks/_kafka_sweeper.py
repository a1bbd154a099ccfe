"""Looks after the transactional ids of all slots of a sink, which writers take and the driver ends.

What a broker forgets to tell the partitions of a slot (see `Mender`) is made up for at three places, each of which keeps one promise:

- a writer sees all closed under its id before it sends a record, so no end of its own can take older records with it;
- the driver sees all closed that is ended before it calls an epoch whole, so readers have it, and the next run has nothing to do;
- the driver sees all closed at its start, for an epoch that was left in part.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from pakka.sinks._kafka_ledger import LedgerTopic
from pakka.sinks._kafka_raw import Registry
from pakka.sinks._kafka_slots import SlotsTopic

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink


class Sweeper:
    """For the driver of one sink."""

    def __init__(self, sink: KafkaSink, registry: Registry, book: LedgerTopic, slots: SlotsTopic) -> None:
        self.sink = sink
        self.registry = registry
        self.book = book
        self.slots = slots

    @cached_property
    def _timeout_ms(self) -> int:
        return self.sink.transaction_ms(self.book.cluster)

    def end(self, ident: str, topics: Collection[str]) -> None:
        """Abort what is open under the id of a slot, shut out who opened it, and see it closed."""
        mender = self.sink.open_mender(self.registry, ident, self.book)
        # Also one that has not got as far as a record, for which nobody waits.
        mender.settle(topics, self._timeout_ms, is_wide=True)

    def take(self, ident: str, topics: Collection[str]) -> None:
        """Take the id away from whoever has it, and see closed what was open under it."""
        mender = self.sink.open_mender(self.registry, ident, self.book)
        mender.seize(
            topics,
            self._timeout_ms,
            lambda: self.registry.take(ident, self._timeout_ms),
            is_wide=not self.sink.topic,
        )

    def shut_out(self, topics: Collection[str]) -> None:
        """Take the ids of shards away from whoever has looked at the ledger and begun nothing yet: he would not look at it again.

        Who has begun is found open. Who takes an id from here on reads a ledger with the newer fence.
        """
        for ident in self.registry.taken(self.slots.prefix):
            if self.slots.is_shard(ident):
                self.take(ident, topics)

    def sweep(self, topics: Collection[str]) -> None:
        """See all closed that is ended. What is open is left so."""
        # The first look mostly comes while markers are on their way, and waits for them.
        if not self._unclosed(topics):
            return
        for ident in self._unclosed(topics):
            mender = self.sink.open_mender(self.registry, ident, self.book)
            mender.settle(topics, self._timeout_ms, leaves_open=True)

    def _unclosed(self, topics: Collection[str]) -> list[str]:
        """Ids under which nothing is open any more, and which readers wait for all the same; or may be, where it is not told."""
        held = self.slots.held(self.book.cluster, topics)
        found = self.registry.open_in(held) if held else {}
        producers = {producer for each in found.values() if each for producer in each}
        is_told = None not in found.values()
        if is_told and not producers:
            return []
        # For a stranger's transaction nobody waits here: one or another is always being ended in a busy cluster.
        known = self.registry.known(producers if is_told else (), self.slots.prefix)
        return sorted(t.id for t in known if self.slots.attempt_of(t.id) is not None and not t.is_open)
