"""Broken twins of the Kafka applier: each makes one mistake that looks harmless, and says which case of the contract catches it."""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from unittest.mock import patch

from pakka.errors import UnknownOutcomeError
from pakka.model.outcome import COMMITTED
from pakka.model.prepared import Prepared
from pakka.sinks._kafka_applier import KafkaApplier
from pakka.sinks._kafka_ledger import LedgerTopic
from pakka.sinks._kafka_prepared import PreparedCommitter, handle_of
from pakka.sinks._kafka_raw import End, Registry
from pakka.sinks._kafka_shard import Shard, ShardedCommitter
from pakka.sinks._kafka_writer import KafkaWriter
from pakka.sinks._two_phase import Share
from pakka.sinks.kafka import KafkaSink
from pakka.testing.contract import Harness
from tests.conformance.kafka import DeafKafkaHarness, KafkaHarness, PreparedKafkaHarness

_PATIENCE_S = 60


class Unrecorded(KafkaApplier):
    """Keeps the epoch in mind only: its transaction has no ledger record."""

    def _enter(self, outbox, page):
        if page.entry == (self._session.page.entry if self._session else ""):
            super()._enter(outbox, page)  # a fence, and no epoch


class Apart(KafkaApplier):
    """Enters the epoch in the ledger in a transaction of its own, before the rows."""

    def _transact(self, session, page, fill):
        super()._transact(session, page, lambda outbox: KafkaApplier._enter(self, outbox, page))
        if page.epoch >= 0 and fill is not None:
            super()._transact(session, page, fill)

    def _enter(self, outbox, page):
        """Done already."""


class Unfenced(KafkaApplier):
    """A transactional id for each process: nobody is ever shut out."""

    def __init__(self, sink, binding):
        super().__init__(sink, binding)
        self.id = f"{self.id}.{uuid.uuid4().hex}"


class Hoarding(Unfenced):
    """The same, and has an epoch in memory before its transaction: no spool that the next driver has emptied stops it."""

    def apply(self, token, batches):
        return super().apply(token, iter([*batches]))


class Trusting(KafkaApplier):
    """Takes an answer that never came for a yes."""

    def _transact(self, session, page, fill):
        try:
            super()._transact(session, page, fill)
        except UnknownOutcomeError:
            session.page = page
            self._session = session


class Keeping(KafkaApplier):
    """Goes on under a handle of which a request to end may still be on its way."""

    def _end(self, session):
        end = super()._end(session)
        return End.DONE if end is End.REPEATED else end


class _Hasty(LedgerTopic):
    def read_to_end(self, *, is_settled: bool):
        # Nor does it look where its first record comes to lie, by which it would see what it has passed over.
        return super().read_to_end(is_settled=False)[0], None


class Hasty(KafkaApplier):
    """Reads the ledger as far as a reader gets, and not to its end."""

    def __init__(self, sink, binding):
        super().__init__(sink, binding)
        self.book = _Hasty(binding, self.address, self.book.name, self.book.key.decode())


@dataclass(frozen=True)
class TwinSink(KafkaSink):
    """The Kafka sink with another applier."""

    applier: type[KafkaApplier] = field(default=KafkaApplier, kw_only=True)

    def open_applier(self, binding):
        return self.applier(self, binding)


def harness_of(twin: type[KafkaApplier], base: type[KafkaHarness] = KafkaHarness) -> Callable[..., Harness]:
    """The harness of a twin's sink."""

    class TwinHarness(base):
        def sink(self):
            honest = super().sink()
            return TwinSink(
                honest.servers, topic=honest.topic, ledger=honest.ledger, settings=honest.settings, applier=twin
            )

    return TwinHarness


class AtPoints(KafkaHarness):
    """Breaks off at crash points, and not on the line."""

    cut = Harness.cut


CAUGHT_BY: dict[type[KafkaApplier], tuple[str, type[KafkaHarness], str]] = {
    Unrecorded: ("ledger_tells_the_truth", KafkaHarness, "ledger"),
    Apart: ("a_lost_request_is_not_called_committed", AtPoints, "12 lost"),
    Unfenced: ("an_old_fence_overtaken_in_its_commit_changes_nothing", KafkaHarness, "12 strange"),
    Trusting: ("a_lost_request_is_not_called_committed", DeafKafkaHarness, "12 lost"),
}
"""By twin, the case that catches it, on which line, and by what."""


class GoingOn(PreparedCommitter):
    """Takes a transaction that is gone for one that is done, and goes on: what Flink's committer does, beside a line in the log."""

    def _settle(self, epoch, record, known):
        known.shares[record.slot.number] = Share(
            record.slot.number, record.slot.fence, record.slot.attempt, 0, "0" * 16
        )
        return COMMITTED


class Blind(PreparedCommitter):
    """Takes a transaction that is gone for one that has expired, and does not look whether its rows are visible."""

    def _shares(self, page):
        return {}


class Eager(KafkaWriter):
    """Ends the transaction of its slot at once, and calls that prepared."""

    def prepare(self, checksum):
        record = super().prepare(checksum)
        handle = handle_of(record)
        if handle is not None:
            with closing(Registry(self.binding, self.sink.address)) as registry:
                registry.end(handle, is_commit=True)
        return record


@dataclass(frozen=True)
class PreparedTwinSink(KafkaSink):
    """The Kafka sink with another committer of prepared transactions, or another writer."""

    committer: type[PreparedCommitter] = field(default=PreparedCommitter, kw_only=True)
    writer: type[KafkaWriter] = field(default=KafkaWriter, kw_only=True)

    def open_writer(self, binding, slot, schema):
        return (
            self.writer(self, binding, slot, schema)
            if self.way == "prepared"
            else super().open_writer(binding, slot, schema)
        )

    def open_committer(self, binding, fence):
        return self.committer(self, binding, fence)


@dataclass(frozen=True)
class BlindShard(Shard):
    """Does not look whether its slot is visible."""

    def _send(self, sender):
        with patch("pakka.sinks._kafka_shard.shares_of", return_value={}):
            return super()._send(sender)


class BlindSharded(ShardedCommitter):
    """Has slots sent by such shards."""

    def _sent(self, left):
        return [BlindShard(self.sink, self.binding, self.fence, record)() for record in left]

    def _shares(self, page):
        return {}


class ExpiringHarness(PreparedKafkaHarness):
    """Transactions that the broker ends soon. What is sent again has as long, also on a busy machine."""

    def __init__(self, place, committer: type[PreparedCommitter] = PreparedCommitter, timeout_ms: int = 5000) -> None:
        super().__init__(place)
        self.committer = committer
        self.timeout_ms = timeout_ms

    def sink(self):
        honest = super().sink()
        settings = {**honest.settings, "transaction.timeout.ms": self.timeout_ms}
        return PreparedTwinSink(
            honest.servers,
            topic=honest.topic,
            ledger=honest.ledger,
            settings=settings,
            way="prepared",
            committer=self.committer,
        )

    def await_expiry(self, records: Sequence[Prepared]) -> None:
        """Until the broker has ended every one of these by itself."""
        wanted, give_up = {r.detail["id"] for r in records}, time.monotonic() + _PATIENCE_S
        while any(
            ident in wanted and state in ("Ongoing", "PrepareAbort")
            for ident, state in self.ground.transactions(self.prefix).items()
        ):
            assert time.monotonic() < give_up, f"a transaction of {self.timeout_ms} ms does not expire"
            time.sleep(0.1)
