"""A reader that looks at every table of a site all the time, in a process of its own, through crashes of the server too."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.sql.judge import Memory, SqlJudge
from tests.faults.sql.outputs import SqlOutlet
from tests.faults.watched import REST_S, note
from tests.faults.workload import SCHEMAS, Workload


def watch(root: str, state: str, batches: int, slots: int, rows: int, notes: str) -> int:
    """Look until `notes` is gone. A finding is written there at once, and each round of looks leaves a file `looked`."""
    site, told = Path(root), Path(notes)
    outlet = SqlOutlet.read(site)
    judge = SqlJudge(site, state, Workload(batches, slots, rows), tuple(outlet.options), outlet=outlet)
    memory, db = Memory(judge), None
    while told.is_dir():
        try:
            db = db or outlet.server.connect(outlet.direct)
            for sink in outlet.served:
                for finding in memory.look(sink, outlet.server.rows(db, sink, SCHEMAS[sink].names)):
                    note(told / "findings", finding)
        except (outlet.server.trouble, OSError):  # the server is down, or was while we looked
            _close(db)
            db = None
        else:
            note(told / "looked", ".")
        time.sleep(REST_S)
    _close(db)
    return 0


def _close(db: Any) -> None:
    if db is not None:
        with suppress(Exception):
            db.close()
