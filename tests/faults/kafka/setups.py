"""What a driver is told to do before it begins: be less patient than in production, so that a test need not wait."""

from pakka import kafka_cluster
from pakka.sinks import _kafka_ledger, _kafka_wire

ANSWER_S = 3.0


def impatient() -> None:
    """Wait for an answer only a moment."""
    kafka_cluster.ANSWER_S = _kafka_ledger.ANSWER_S = _kafka_wire.PATIENCE_S = ANSWER_S


IMPATIENT = f"{__name__}:impatient"
