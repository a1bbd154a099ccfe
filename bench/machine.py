"""On what the figures were measured."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path

from tools.kafka.broker import find_jars

from tests.fixtures import mysql, postgres


def describe() -> dict[str, str]:
    """The machine and the versions, in the order in which they are shown."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{_memory_gib():.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "SQLite": sqlite3.sqlite_version,
        "PostgreSQL": _server(binaries / "postgres" if (binaries := postgres.find_binaries()) else None),
        "MariaDB": _server(mysql.find_binaries()),
        "Kafka": _kafka(),
    }


def _processor() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or "unknown"


def _memory_gib() -> float:
    match = re.search(r"^MemTotal:\s*(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    return int(match[1]) / (1 << 20) if match else 0.0


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    said = _said([java, "-version"]) if java else ""
    match = re.search(r'version "([^"]+)"', said)
    return match[1] if match else "none"


def _server(program: Path | None) -> str:
    match = re.search(r"\d+(\.\d+)+", _said([str(program), "--version"])) if program else None
    return match[0] if match else "none"


def _kafka() -> str:
    jars = find_jars()
    found = next(iter(jars.glob("kafka_2.13-*.jar")), None) if jars else None
    return found.stem.removeprefix("kafka_2.13-") if found else "none"


def _commit() -> str:
    commit = _said(["git", "rev-parse", "--short", "HEAD"]).strip()
    changed = _said(["git", "status", "--porcelain", "--untracked-files=no", "src"]).strip()
    return f"{commit or 'unknown'}{' with changes in src' if changed else ''}"


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
