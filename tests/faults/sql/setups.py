"""What a driver is told to do before it begins: be less patient than in production, so that a test need not wait."""

from pakka import postgres_line
from pakka.sinks import _mysql_applier, _mysql_line, _postgres_applier, _postgres_writer

ANSWER_S = 1.5
LOCK_S = 1


def impatient() -> None:
    """Wait for an answer, and for somebody else's lock, only a moment."""
    postgres_line.ANSWER_S = ANSWER_S
    postgres_line._CONNECT["connect_timeout"] = "2"  # the least that its library takes
    _mysql_line._CONNECT_S = 1
    opened = _mysql_line.Line.__init__

    def open_impatiently(line: _mysql_line.Line, address: _mysql_line.Address, _: float = 0) -> None:
        opened(line, address, ANSWER_S)

    _mysql_line.Line.__init__ = open_impatiently  # type: ignore[method-assign,assignment]
    short_locks()


def short_locks() -> None:
    """Wait for somebody else's lock only a moment."""
    _postgres_writer._LOCK_MS = _postgres_applier._LOCK_MS = LOCK_S * 300
    _mysql_line._SESSION = _mysql_line._SESSION.replace(f"timeout = {_mysql_line._LOCK_WAIT_S}", f"timeout = {LOCK_S}")
    _mysql_applier._LOCK_WAIT_S = LOCK_S


IMPATIENT = f"{__name__}:impatient"
SHORT_LOCKS = f"{__name__}:short_locks"
