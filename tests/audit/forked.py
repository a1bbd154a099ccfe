"""`python -m tests.audit.forked PATH CHEAT`: an audit of a twin whose processes are forked, as those of the command are."""

import json
import sys

from pakka.audit import interrogate
from pakka.audit.host import fork
from pakka.audit.report import Verdict
from pakka.audit.run import audit
from tests.audit.twins import BookSink

if __name__ == "__main__":
    if sys.argv[2] == "checks the fence too early":
        # Nothing is in the way of its heir, and one that was only slow would let the twin pass.
        interrogate._BLOCKED_S = 30.0
    report = audit(BookSink(*sys.argv[1:]), "book", start=fork)
    print(json.dumps([a.guarantee.name for a in report.answers if a.verdict is Verdict.FAIL]))
