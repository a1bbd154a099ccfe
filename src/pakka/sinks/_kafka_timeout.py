"""Whether a transaction of a Kafka sink may be open for as long as it has to: for what a run has seen, else for what is usual."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pakka.contract.audit import Finding, Took
from pakka.kafka_topic import grant
from pakka.probing import BREAKS, FINE, WARNS, age

if TYPE_CHECKING:
    from pakka.sinks._kafka_facts import Facts
    from pakka.sinks.kafka import KafkaSink

NAME = "transaction.max.timeout.ms"
SHORT_MS = 60 * 1000
"""A transaction that may not take longer than this may be too short for an epoch."""
LONG_MS = 3600 * 1000
HELD_MS = 5 * 60 * 1000
"""By `way: prepared` a transaction is open from a slot's first row until the decision is carried out, if need be by the next driver: an
epoch, and the start of a driver, should take less than this."""
_RESENT = "is sent a second time from its copy in the spool: nothing is lost, and it is slow"
_OWN = "take `transaction.timeout.ms` out of `settings`"


def judge(sink: KafkaSink, facts: Facts, took: Took) -> Finding:
    """The probe of the time that transactions have."""
    asked, most = facts.asked_ms, facts.most_ms
    value = f"{'not known' if most is None else most}, and {asked} is asked for"
    if most is not None and asked > most:
        why = "the brokers refuse a transaction that may take so long, so nothing can be written"
        fix = f"set `transaction.timeout.ms: {most}` in `settings`; or {_raised(900_000)}"
        return Finding(NAME, BREAKS, value, why, fix)
    needed_s = _needed_s(sink, took)
    if needed_s is not None and needed_s > asked / 2000:
        return _tight(sink, facts, took, value, needed_s)
    if most is None:
        why = "the user of `settings` may not read the settings of brokers, and so the sink asks for what every broker gives"
        return Finding(NAME, WARNS, "not known", why, grant(sink.address, "DESCRIBE_CONFIGS"))
    if needed_s is None and (finding := _unusual(sink, asked, most, value)):
        return finding
    if asked > LONG_MS:
        why = "a driver that dies in the middle of a commit leaves readers waiting so long, or until it starts again"
        return Finding(NAME, WARNS, value, why, "set `transaction.timeout.ms: 900000` in `settings`")
    if sink.way == "prepared":
        why = "there is time for an epoch and the start of a driver; what takes longer is sent again from its copy in the spool"
        return Finding(NAME, FINE, value, why)
    why = "there is time to write an epoch; rows that wait for the decision are in the spool, and in no transaction"
    return Finding(NAME, FINE, value, why)


def _needed_s(sink: KafkaSink, took: Took) -> float | None:
    """How long a transaction was open lately, or would have been, had the driver been started again; None: not known."""
    if sink.way == "prepared":
        return None if took.epoch_s is None else took.epoch_s + (took.start_s or 0.0)
    # A commit in shards is of many transactions, and how long one of them takes nobody has seen.
    return None if sink.has_slots else took.commit_s


def _tight(sink: KafkaSink, facts: Facts, took: Took, value: str, needed_s: float) -> Finding:
    wanted_ms = math.ceil(needed_s / 20) * 60_000
    fix = f"take less in one epoch; or set `transaction.timeout.ms: {wanted_ms}` in `settings`"
    if facts.most_ms is None or wanted_ms > facts.most_ms:
        fix += f", and {_raised(wanted_ms)}"
    if sink.way == "prepared":
        value += f"; an epoch took {age(took.epoch_s or 0.0)}, and the start of this driver {age(took.start_s or 0.0)}"
        much = "more than there is" if needed_s > facts.asked_ms / 1000 else "more than half of that"
        why = f"together it is {much}, and an epoch that waits longer in open transactions {_RESENT}"
        return Finding(NAME, WARNS, value, why, fix)
    value += f"; a commit took {age(needed_s)}"
    # It went through, so its transaction was open for less: what breaks nothing yet is told, and does not stop a run.
    why = "that is more than half of the time: one that takes longer is decided, and then aborted by the brokers each time it is tried"
    return Finding(NAME, WARNS, value, why, fix)


def _unusual(sink: KafkaSink, asked: int, most: int, value: str) -> Finding | None:
    """Where nothing is known of the pipeline: less than is usually enough."""
    if asked < SHORT_MS:
        why = "an epoch whose records take longer to be written is aborted by the brokers each time it is tried"
        return Finding(NAME, WARNS, value, why, _raised(900_000) if most < SHORT_MS else _OWN)
    if sink.way == "prepared" and asked < HELD_MS:
        why = (
            "slots wait for the decision in open transactions, and an epoch that waits longer, such as for a driver that is started "
            f"again, {_RESENT}"
        )
        fix = _raised(900_000) if most < HELD_MS else _OWN
        return Finding(NAME, WARNS, value, why, f"{fix}; or `way: spooled`")
    return None


def _raised(ms: int) -> str:
    return f"set {NAME}={ms} in server.properties of all brokers, and start them again"
