"""An audit as a user has it: by the command, whose own process is forked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PAKKA = str(Path(sys.executable).with_name("pakka"))


def told(target: str, cwd: Path | None = None) -> dict[str, Any]:
    """What `pakka audit TARGET` says of it."""
    command = [PAKKA, "audit", target, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if report["failed"] else 0)
    return report
