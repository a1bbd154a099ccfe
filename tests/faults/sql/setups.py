"""What a driver is told to do before it begins: be less patient than in production, so that a test need not wait."""

from pakka import postgres_line
from pakka.sinks import _postgres_applier, _postgres_writer

ANSWER_S = 1.0
LOCK_MS = 300


def impatient() -> None:
    """Wait for an answer, and for somebody else's lock, only a moment."""
    postgres_line.ANSWER_S = ANSWER_S
    short_locks()


def short_locks() -> None:
    """Wait for somebody else's lock only a moment."""
    _postgres_writer._LOCK_MS = _postgres_applier._LOCK_MS = LOCK_MS
    _postgres_writer._PREPARE_LOCK_MS = LOCK_MS


IMPATIENT = f"{__name__}:impatient"
SHORT_LOCKS = f"{__name__}:short_locks"
