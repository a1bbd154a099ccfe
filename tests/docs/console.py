"""Console blocks: the commands on a page, and whether a run printed what the page says it prints."""

import re


def steps(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def plain(line: str) -> str:
    """A line without what differs from run to run: figures and the width of columns."""
    return " ".join(re.sub("─+", "─", re.sub(r"\d+(\.\d+)?", "0", line.replace(",", ""))).split())


def missing(told: list[str], printed: str) -> list[str]:
    """The lines of the page that were not printed. Three dots on the page stand for anything."""
    lines = [plain(line) for line in printed.splitlines()]
    patterns = {line: ".*".join(re.escape(plain(part)) for part in line.split("...")) for line in told}
    return [line for line, pattern in patterns.items() if not any(re.search(pattern, printed) for printed in lines)]
