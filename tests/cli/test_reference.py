"""The reference pages say what the code says. `PAKKA_WRITE_DOCS=1 pytest tests/cli/test_reference.py` brings them up to date."""

import os
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from pakka.cli.app import VERBS
from pakka.cli.indoubt import command as indoubt
from pakka.config import json_schema
from pakka.model.event import Event

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PART = re.compile(r"<!-- (table|help): (\w+) -->\n.*?<!-- end -->", re.DOTALL)
WRITE = "PAKKA_WRITE_DOCS" in os.environ


def table(properties: dict[str, Any], required: list[str], defs: dict[str, Any]) -> str:
    rows = ["| field | value | meaning |", "| --- | --- | --- |"]
    for name, schema in properties.items():
        default = schema.get("default")
        end = "" if default in (None, [], {}, ()) else f" Default: `{default}`."
        told = schema.get("description", "").replace("|", "\\|")
        end = "" if "Default" in told or "(default)" in told else end
        value = kind(schema, defs) + (", required" if name in required else "")
        rows.append(f"| `{name}` | {value} | {told}{end} |".replace("  ", " "))
    return "\n".join(rows)


def kind(schema: dict[str, Any], defs: dict[str, Any]) -> str:
    """What may stand behind a field, in a word or two."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        kinds = [kind(part, defs) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    types = schema.get("type", "text")
    words = {
        "string": "text",
        "integer": "whole number",
        "array": "list",
        "object": "mapping",
        "boolean": "true or false",
    }
    listed = [types] if isinstance(types, str) else types
    return " or ".join(words.get(one, one) for one in listed if one != "null")


def kinds_text(role: str, kinds: dict[str, Any], defs: dict[str, Any]) -> str:
    parts = []
    for name, schema in kinds.items():
        options = (
            table(schema["properties"], schema.get("required", []), defs) if schema["properties"] else "No options."
        )
        parts.append(f"### {role} `{name}`\n\n{schema['description']}\n\n{options}")
    return "\n\n".join(parts)


def tables() -> dict[str, str]:
    schema = json_schema()
    defs, properties = schema["$defs"], schema["properties"]
    rules = defs["RuleShape"]["properties"]
    sinks = properties["sinks"]["additionalProperties"]["properties"]
    beside = {name: sinks.pop(name) for name in ("select", "where")}
    fields = {name: {k: v for k, v in entry.items() if k != "properties"} for name, entry in properties.items()}
    return {
        "fields": table(fields, schema["required"], defs),
        "source": kinds_text("source", properties["source"]["properties"], defs),
        "rules": table({n: r for n, r in rules.items() if n != "on_fail"}, [], defs),
        "beside": table(beside, [], defs),
        "sinks": kinds_text("sink", sinks, defs),
    }


def page_with(page: Path, parts: dict[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        return f"<!-- {match[1]}: {match[2]} -->\n{parts.pop(match[2])}\n<!-- end -->"

    text = PART.sub(fill, page.read_text())
    assert parts == {}, "these have no place in the page"
    return text


def check(page: Path, expected: str) -> None:
    if WRITE:
        page.write_text(expected)
    assert page.read_text() == expected, "run `PAKKA_WRITE_DOCS=1 pytest tests/cli/test_reference.py`"


def test_the_page_of_the_pipeline_file_says_what_the_schema_says():
    page = REFERENCE / "pipeline-file.md"
    check(page, page_with(page, tables()))


def test_the_page_of_the_command_line_says_what_help_says(pakka):
    page = REFERENCE / "cli.md"
    words = {verb: (verb,) for verb in VERBS} | {f"indoubt_{verb}": ("indoubt", verb) for verb in indoubt.commands}
    check(page, page_with(page, {name: f"```text\n{pakka(*of, '--help').stdout}```" for name, of in words.items()}))


def test_the_page_names_every_event_of_a_run_with_its_fields():
    lines = re.findall(r"^\| `(\w+)` \| .+? \| (`pipeline`.*) \|$", (REFERENCE / "cli.md").read_text(), re.MULTILINE)
    named = {event: re.sub(r"\(.*?\)", "", fields) for event, fields in lines}
    told = {name: ", ".join(f"`{field}`" for field in fields) for name, fields in events().items()}
    assert {event: re.sub(r" +(,|$)", r"\1", fields) for event, fields in named.items()} == told


def events() -> dict[str, list[str]]:
    """Each kind of event, as programs get it, and its fields."""
    kinds = {kind.__name__.lower(): list(kind.__dataclass_fields__) for kind in get_args(Event)}
    return {"serving": ["pipeline", "metrics"], **kinds}


def test_a_page_that_lacks_a_part_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: fields -->\n<!-- end -->\n")
    with pytest.raises(AssertionError, match="no place in the page"):
        page_with(page, {"fields": "a", "rules": "b"})
