"""Whether the user of a Kafka sink may do what the sink does: asked of the brokers, by questions that change nothing.

What may be done with a topic that is there, the brokers tell. For all else they are asked to do what they would do for nobody, or would only
judge; what is denied they say first.

IDEMPOTENT_WRITE is not needed, and not asked for: whatever the sink numbers is in a transaction, for which brokers want WRITE on its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kafka import errors  # type: ignore[import-untyped]
from kafka.protocol.admin import DescribeTransactionsRequest  # type: ignore[import-untyped]

from pakka.contract.audit import Finding
from pakka.kafka_topic import Lack
from pakka.model.id import Binding, Slot
from pakka.probing import BREAKS, FINE, WARNS
from pakka.sinks._kafka_batch import Handle
from pakka.sinks._kafka_raw import Registry, begin_request, begun, end_request, fetch_request

if TYPE_CHECKING:
    from pakka.kafka_cluster import Cluster
    from pakka.kafka_topic import TopicFacts
    from pakka.sinks._kafka_facts import Facts
    from pakka.sinks.kafka import KafkaSink

_ID = "transactional-id"
_NOBODY = -1
"""The id and epoch of no producer: brokers count from 0."""


class Asker(Registry):
    """Asks any broker. One that is not the coordinator, or does not lead a partition, says so after it has said what is denied."""

    def of_id(self, ident: str) -> list[str]:
        """What of WRITE and DESCRIBE this user may not do with a transactional id."""
        # The end of a transaction that nobody began.
        end = end_request(Handle(ident, _NOBODY, _NOBODY), is_commit=False)
        ended, described = self._ask([end, DescribeTransactionsRequest(transactional_ids=[ident])])
        # Who may write may describe, unless that is denied.
        codes = {"WRITE": ended.error_code, "DESCRIBE": described.transaction_states[0].error_code}
        return _denied(codes, errors.TransactionalIdAuthorizationFailedError)[:1]

    def of_absent(self, topic: str, ident: str) -> list[str]:
        """What of READ and WRITE this user may not do with a topic that is not there; the second is told to who may write under `ident`."""
        begin = begin_request(Handle(ident, _NOBODY, _NOBODY), [(topic, 0)])
        began, fetched = self._ask([begin, fetch_request(topic, 0)])
        ((_, write),) = begun(began)
        codes = {"READ": fetched.responses[0].partitions[0].error_code, "WRITE": write.errno}
        return _denied(codes, errors.TopicAuthorizationFailedError)

    def _ask(self, requests: Sequence[Any]) -> Any:
        def ask() -> Any:
            # Not just one that the cluster tells of: it may be dead.
            node = self._open()._manager.least_loaded_node()
            if node is None:
                raise errors.NodeNotReadyError("no broker takes a request now")
            return self._send_all([(request, node) for request in requests])

        return self._patiently(ask)


def _denied(codes: Mapping[str, int], denial: Any) -> list[str]:
    return [right for right, code in codes.items() if code == denial.errno]


def ask(
    sink: KafkaSink,
    binding: Binding | None,
    cluster: Cluster,
    targets: Iterable[TopicFacts],
    ledgers: Iterable[TopicFacts],
) -> tuple[Lack, ...]:
    """Every right that is missing. Where the sink's place in a pipeline is not known, ids are asked for that only begin as its own does."""
    # Without the second one a topic's limits are not known before the decision, unless the sink is told.
    to_target = ("WRITE", "DESCRIBE_CONFIGS") if sink.max_record_bytes is None else ("WRITE",)
    wanted = [*((t, to_target) for t in targets), *((t, ("READ", "WRITE")) for t in ledgers)]
    with closing(Asker(binding or "kafka", sink.address)) as asker:
        ids = _ids(sink, binding)
        found = [Lack(right, _ID, *of) for ident, of in ids.items() for right in asker.of_id(ident)]
        ident = next(iter(ids))
        for topic, rights in wanted:
            found += [Lack(right, "topic", topic.name) for right in _missing(cluster, asker, ident, topic, rights)]
    return tuple(found)


def _ids(sink: KafkaSink, binding: Binding | None) -> dict[str, tuple[str, bool]]:
    """Transactional ids to ask for; for each what a right to it is given for, and whether that is how names begin."""
    if binding is None:
        return {f"{sink.ledger}.anybody": (f"{sink.ledger}.", True)}
    own = sink.transactional_id(binding)
    if not sink.has_slots:
        return {own: (own, False)}
    # One of the slots stands for all: nobody gives a right to each of them.
    slot = sink.slot_id(binding, Slot(binding.pipeline, binding.sink, 0, 0, 0, 0))
    return {own: (own, False), slot: (f"{own}.", True)}


def _missing(cluster: Cluster, asker: Asker, ident: str, topic: TopicFacts, rights: Sequence[str]) -> list[str]:
    if topic.topic is not None:
        told = topic.topic.operations
        # Brokers without ACLs name every operation; those that name none are too old to tell.
        return [right for right in rights if right not in told] if told else []
    if not topic.is_hidden and not topic.is_to_make:
        return []
    # Either of the two would show a topic that is hidden.
    lacks = {"READ", "WRITE"} if topic.is_hidden else {*asker.of_absent(topic.name, ident)}
    if "DESCRIBE_CONFIGS" in rights and cluster.hides_settings(topic.name):
        lacks.add("DESCRIBE_CONFIGS")
    return [*([] if topic.may_make else ["CREATE"]), *(right for right in rights if right in lacks)]


def judge(sink: KafkaSink, facts: Facts) -> Finding:
    """The probe of rights."""
    name = "rights"
    certain = [lack for lack in facts.lacks if facts.is_placed or lack.kind != _ID]
    lacks = certain or facts.lacks
    value, fix = ", ".join(map(str, lacks)), "; ".join(lack.grant(sink.address) for lack in lacks)
    if certain:
        return Finding(name, BREAKS, value, "the user of `settings` cannot do what the sink does", fix)
    if lacks:
        why = "the sink's own id has the name of its pipeline in it, which is not known here: `pakka check FILE` asks for that one"
        return Finding(name, WARNS, f"not known; {value}", why, fix)
    return Finding(name, FINE, "enough", "records and ledger may be written, in transactions")
