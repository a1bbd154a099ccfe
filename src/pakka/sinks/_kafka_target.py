"""For which topic rows were prepared. Where it is the sink's own, batches in the spool do not name it, and the sink may have another one by now.

To send them there would split an epoch over two topics, by the number of partitions of the one that it was not prepared for. So each
record names its topic, and so does the ledger of an epoch in part; what is undecided may be aborted whatever it says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pakka.errors import SinkError
from pakka.model.id import Binding
from pakka.model.prepared import Prepared
from pakka.sinks._kafka_ledger import Page
from pakka.sinks.spooled import SpooledCommitter

if TYPE_CHECKING:
    from pakka.sinks.kafka import KafkaSink


def named(prepared: Prepared, sink: KafkaSink) -> Prepared:
    """A record that says which topic it is for; null: its rows name theirs. One without rows says it too: it may be the first to be committed."""
    return replace(prepared, detail={**prepared.detail, "topic": sink.topic or None})


def check_records(binding: Binding, sink: KafkaSink, records: Sequence[Prepared]) -> None:
    """Refuse to commit what was prepared for another topic. A record of an older pakka says none, and is believed."""
    for record in records:
        topic = record.detail.get("topic", sink.topic or None)
        if topic != (sink.topic or None):
            raise _other(binding, sink, record.slot.epoch, "was prepared for", topic)


def check_part(binding: Binding, sink: KafkaSink, page: Page) -> None:
    """Refuse an epoch that is visible in part in another topic, also if it was lost and has to be prepared once more."""
    if page.is_whole or not page.entry:
        return
    topic = json.loads(page.entry).get("topic", sink.topic or None)
    if topic != (sink.topic or None):
        raise _other(binding, sink, page.epoch, "was begun in", topic)


def _other(binding: Binding, sink: KafkaSink, epoch: int, what: str, topic: str | None) -> SinkError:
    setting = f"`topic: {topic}`" if topic else "`topic_column`"
    return SinkError(
        f"{binding}: epoch {epoch} {what} {_words(topic)}, and the sink's is {_words(sink.topic)} by now; no rows were changed",
        hint=f"set {setting} back, run once, which finishes the epoch, and then change it",
    )


def _words(topic: str | None) -> str:
    return f"topic `{topic}`" if topic else "the topic that each row names"


class WholeCommitter(SpooledCommitter):
    """Settles epochs that are one transaction each."""

    def __init__(self, sink: KafkaSink, binding: Binding, fence: int) -> None:
        super().__init__(binding, fence, sink.open_applier(binding), is_exact=True)
        self.sink = sink

    def _check_records(self, prepared: Sequence[Prepared]) -> None:
        check_records(self.binding, self.sink, prepared)
