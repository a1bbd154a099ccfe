"""What Kafka says when something goes wrong, as what a user can act on. For the sink, the source and the auditor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError

from pakka.errors import PakkaError, RefusedError, SinkError, UnavailableError
from pakka.kafka_line import PASSING, Address, DriverError, Grievance, error_of

_RIGHTS = "let the user of `settings` do it: `kafka-acls.sh --add --allow-principal User:NAME"
RIGHTS = f"{_RIGHTS} --operation WRITE --operation DESCRIBE_CONFIGS --topic NAME`; for the ledger `--operation READ` and `--operation CREATE` too"
MAKE_TOPIC = "make the topic first, or set `create: true`"
_TOO_OLD = "the brokers are too old, or work as older ones (`inter.broker.protocol.version`): a sink needs Kafka 3.0 or newer, a source 2.8"
READ_RIGHTS = f"{_RIGHTS} --operation READ --topic NAME`"
_HINTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: RIGHTS,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"{_RIGHTS} --operation WRITE --operation DESCRIBE --transactional-id ID`",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"{_RIGHTS} --operation READ --operation DESCRIBE --group NAME`",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"{_RIGHTS} --operation CREATE --cluster`, or make the topics beforehand",
    KafkaError.SASL_AUTHENTICATION_FAILED: "see that `sasl.username` and `sasl.password` of `settings` are right; take the password "
    "from `${env:NAME}`",
    KafkaError._AUTHENTICATION: "see that `sasl.mechanism`, `sasl.username` and `sasl.password` of `settings` are right; take the password "
    "from `${env:NAME}`",
    KafkaError._SSL: "see that `security.protocol` and the `ssl.` settings fit the listener at that port, and that the certificate is "
    "of that host",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "set `sasl.mechanism` of `settings` to one that the listener has",
    KafkaError.UNKNOWN_TOPIC_OR_PART: MAKE_TOPIC,
    KafkaError._UNKNOWN_TOPIC: MAKE_TOPIC,
    KafkaError._UNKNOWN_PARTITION: "keep such rows out by a rule, or add partitions to the topic",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise `max.message.bytes` of the topic, or keep such rows out by a rule",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise `max.message.bytes` of the topic, or keep such rows out by a rule",
    KafkaError.INVALID_RECORD: "the topic refuses such records: a compacted topic takes none without a key, and a timestamp may lie too "
    "far off",
    KafkaError.INVALID_TIMESTAMP: "raise `message.timestamp.before.max.ms` of the topic, or `message.timestamp.after.max.ms`, until the epoch "
    "is through",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "set `transaction.timeout.ms` in `settings` to no more than `transaction.max.timeout.ms` of the "
    "brokers",
    KafkaError.INVALID_REPLICATION_FACTOR: "set `replication` to no more than there are brokers",
    KafkaError.INVALID_PARTITIONS: "set `partitions` to at least 1",
    KafkaError.POLICY_VIOLATION: "the cluster's own policy refuses such a topic; make it beforehand as the policy wants it",
    KafkaError.INVALID_CONFIG: "the cluster refuses such a setting of a topic; make the topic beforehand",
    KafkaError.TOPIC_EXCEPTION: "the cluster refuses such a name of a topic; `.` and `_` count as the same character in it",
    KafkaError.UNSUPPORTED_VERSION: _TOO_OLD,
    KafkaError._UNSUPPORTED_FEATURE: _TOO_OLD,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic has an old message format; set its `message.format.version` to 3.0 or newer",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "set `compression.type` of `settings` to one that the brokers have",
}
_SERVERS = (
    "see that the brokers run, that `servers` is right and `security.protocol` of `settings` fits that port, and that what they "
    "advertise can be reached from here"
)
_PASSING = {
    KafkaError.NOT_ENOUGH_REPLICAS: "too few replicas of a partition are in sync (`min.insync.replicas`); run again when brokers are back",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "too few replicas of a partition are in sync (`min.insync.replicas`); run again when "
    "brokers are back",
    KafkaError.KAFKA_STORAGE_ERROR: "a broker cannot write to its disk; make room there, then run again",
    KafkaError.THROTTLING_QUOTA_EXCEEDED: "a quota of the cluster is used up; run again later, or have it raised",
    KafkaError.CONCURRENT_TRANSACTIONS: "run again: the transaction before this one is still being ended",
    KafkaError.INVALID_TXN_STATE: "the transaction has ended meanwhile: it took longer than `transaction.timeout.ms` of `settings`, or a "
    "newer driver came",
    KafkaError.INVALID_PRODUCER_EPOCH: "the transaction has ended meanwhile: it took longer than `transaction.timeout.ms` of `settings`, or "
    "another driver came by",
    KafkaError.PRODUCER_FENCED: "the transaction has ended meanwhile: it took longer than `transaction.timeout.ms` of `settings`, or another "
    "driver came by",
    KafkaError._FENCED: "the transaction has ended meanwhile: it took longer than `transaction.timeout.ms` of `settings`, or another driver "
    "came by",
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: "run again: a broker has lost records of this transaction, which is given up",
    KafkaError.TRANSACTION_ABORTABLE: "run again: the brokers have given this transaction up",
    KafkaError.UNKNOWN_PRODUCER_ID: "run again: the brokers have forgotten this producer",
    KafkaError.INVALID_PRODUCER_ID_MAPPING: "run again: the brokers have forgotten this producer",
}
FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_TXN_STATE}
)
"""Somebody else has asked for this transactional id, or the broker has ended the transaction as too old."""
# Complaints of a connection that say more than the call that waited for it.
_AT_THE_DOOR = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
)
_WAITED = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT_QUEUE)


@contextmanager
def told(
    subject: object,
    address: Address,
    grievance: Grievance | None = None,
    known: str = "nothing was changed",
    refusal: type[RefusedError] = SinkError,
    about: str = "",
) -> Iterator[None]:
    """Turn the library's errors into pakka's. For what changes nothing unless it ends well, or may be repeated freely.

    `about` names what was asked for, such as a topic, where the library's words do not.
    """
    try:
        yield
    except DriverError as error:
        raise told_error(subject, address, error, grievance, known, refusal, about) from None


def told_error(
    subject: object,
    address: Address,
    raised: BaseException | KafkaError,
    grievance: Grievance | None = None,
    known: str = "nothing was changed",
    refusal: type[RefusedError] = SinkError,
    about: str = "",
) -> PakkaError:
    error = why(raised, grievance)
    code = error.code()
    subject = f"{subject}: {address}: {about}" if about else f"{subject}: {address}"
    message = f"{subject}: {reason_of(raised, address, grievance)}; {known}"
    if code in _PASSING:
        return UnavailableError(message, hint=_PASSING[code])
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED and not issubclass(refusal, SinkError):
        # Who is no sink only reads.
        return refusal(message, hint=READ_RIGHTS)
    if code in _HINTS:
        return refusal(message, hint=_HINTS[code])
    if error.retriable() or code in PASSING or code in _WAITED or code == KafkaError._RESOLVE:
        return UnavailableError(message, hint=_SERVERS)
    return refusal(message, hint="the message is Kafka's own")


def is_mendable(raised: BaseException | KafkaError) -> bool:
    """Whether somebody has to change a setting, a right or a topic: to ask again gets the same answer."""
    return error_of(raised).code() in _HINTS


def why(raised: BaseException | KafkaError, grievance: Grievance | None = None) -> KafkaError:
    """The error that tells most: of a call that took too long, what the connections complained of."""
    error = error_of(raised)
    beside = grievance.error if grievance is not None else None
    if beside is not None and error.code() in _WAITED and beside.code() in _AT_THE_DOOR:
        return beside
    return error


def reason_of(raised: BaseException | KafkaError, address: Address, grievance: Grievance | None = None) -> str:
    """Kafka's words; of a call that took too long, with what the connections complained of."""
    error = error_of(raised)
    words = [error.str()]
    if grievance is not None and grievance.error is not None and error.code() in _WAITED:
        words.append(grievance.error.str())
    return address.scrub("\n".join(dict.fromkeys(words)))
