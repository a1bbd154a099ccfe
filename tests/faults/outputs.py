"""The sinks of a site, by name. A spec names one of these functions, so that every process makes the same sinks."""

from pathlib import Path

from pakka.contract.sink import Sink
from pakka.sinks.files import ParquetSink
from pakka.sinks.sqlite import SqliteSink
from tests.faults.slips import SlipSink


def standard(site: Path) -> dict[str, Sink]:
    """Files, a database and the dead letters, in one epoch."""
    out = site / "out"
    return {
        "refunds": ParquetSink(str(out / "refunds")),
        "audit": SqliteSink(str(out / "audit.db"), "refund_audit"),
        "dead_letters": ParquetSink(str(out / "dead")),
    }


def with_slips(site: Path) -> dict[str, Sink]:
    """One more, that commits slot by slot."""
    (site / "out").mkdir(parents=True, exist_ok=True)
    return {"slips": SlipSink(str(site / "out" / "slips.db")), **standard(site)}


def impatient(site: Path) -> dict[str, Sink]:
    """The standard sinks, but a lock that another process holds is waited for only a moment."""
    audit = SqliteSink(str(site / "out" / "audit.db"), "refund_audit", busy_timeout_s=0.05)
    return {**standard(site), "audit": audit}
