"""House rules about every file that a commit could hold."""

import re
import tomllib

import pytest

from tests.tidy.source import ROOT, relative, text, tracked

# Written in pieces, so that this file keeps its own rule.
MACHINE_PATHS = re.compile(
    r"(?<![\w.}~-])/(" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers"]) + r")/\w"
)
REGISTRIES = re.compile(
    r"\b("
    + "|".join(
        [
            r"py" + r"pi\.org",
            r"pythonho" + r"sted\.org",
            r"registry\.np" + r"mjs\.org",
            r"crat" + r"es\.io/",
            r"proxy\.gol" + r"ang\.org",
            r"(repo\d?|central)\.(ma" + r"ven|sona" + r"type)\.",
            r"deb\.deb" + r"ian\.org",
        ]
    )
    + r")",
    re.IGNORECASE,
)


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked():
        try:
            content = text(path)
        except UnicodeDecodeError:
            continue
        found += [
            f"{relative(path)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(content.splitlines(), start=1)
            if pattern.search(line)
        ]
    return found


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRIES], ids=["machine-path", "registry-host"])
def test_no_file_names_a_machine_or_a_registry(pattern):
    assert lines_with(pattern) == []


def test_machine_paths_are_found():
    bad, fine = "/ho" + "me/ana/pakka", "docs/ho" + "me/page"
    assert MACHINE_PATHS.search(f'open("{bad}")')
    assert not MACHINE_PATHS.search(fine)
    assert REGISTRIES.search("https://py" + "pi.org/simple")


def test_the_lock_knows_every_declared_dependency():
    project = tomllib.loads(text(ROOT / "pyproject.toml"))
    declared = [
        *project["project"]["dependencies"],
        *(line for extra in project["project"]["optional-dependencies"].values() for line in extra),
        *project["dependency-groups"]["dev"],
    ]
    names = {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].lower() for line in declared}
    locked = set(re.findall(r"^([\w.-]+)==", text(ROOT / "requirements.lock"), flags=re.MULTILINE))
    assert names - locked == set(), "run `make lock`"
