"""A YAML file as plain data, with the place of every field.

Scalars are read by YAML 1.2's rules, as editors do: `NO`, `on` and `2024-01-01` are text, and so is `007`, which YAML 1.1
would turn into a truth value, a date or an octal number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pakka.config.environment import REFERENCE, resolve
from pakka.config.problem import Loc, Place, Problem, refuse
from pakka.errors import ConfigError

_NODES_MAX = 100_000
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_START = Place(1, 1)
_TAGS = "tag:yaml.org,2002:"
# What PyYAML takes plain YAML for. Text is read by our own rules, whatever it says.
_KINDS = frozenset({"map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value"})


@dataclass
class Document:
    """The file's name and lines, its data, and where each field's key and value stand."""

    name: str
    lines: list[str]
    data: dict[str, Any] = field(default_factory=dict)
    keys: dict[Loc, Place] = field(default_factory=dict)
    values: dict[Loc, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, loc: Loc, at_key: bool = False) -> Place:
        """Where a field stands, or the nearest field around it that is in the file."""
        if at_key and loc in self.keys:
            return self.keys[loc]
        while loc and loc not in self.values:
            loc = loc[:-1]
        return self.values.get(loc, _START)

    def report(self, loc: Loc, what: str, advice: str = "", at_key: bool = False) -> None:
        """Note a mistake; all of them are raised together. Of several about one field, the first caused the others."""
        if loc not in {problem.loc for problem in self.problems}:
            self.problems.append(Problem(self.place(loc, at_key), loc, what, advice))

    def check(self) -> None:
        """Raise what has been reported so far."""
        if self.problems:
            raise refuse(self.name, self.lines, self.problems)


def read(path: str | Path, environ: Mapping[str, str]) -> Document:
    """Read a pipeline file. What cannot be read as YAML at all is raised here, with its line."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}", hint=_near_files(Path(path))) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    return parse(text, str(path), environ)


def parse(text: str, name: str, environ: Mapping[str, str]) -> Document:
    """The same from text; `name` stands for the file in messages."""
    document = Document(name, text.splitlines())
    root = _compose(document, text)
    if root is None:
        document.report((), "the file is empty", "`pakka init` writes an example")
    elif not isinstance(root, yaml.MappingNode):
        document.values[()] = _place(root.start_mark)
        document.report((), "a pipeline file is a mapping of fields, such as `pipeline: refunds`")
    else:
        document.data = _Reader(document, environ).read(root, ())
    return document


def _compose(document: Document, text: str) -> yaml.Node | None:
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(mark) if mark else _START
        what, advice = _syntax(error.problem or "", "".join(document.lines[place.line - 1 : place.line]))
        raise refuse(document.name, document.lines, [Problem(place, (), what, advice)]) from error
    except (yaml.YAMLError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise refuse(document.name, document.lines, [Problem(_START, (), f"this is not YAML: {what}")]) from error


def _syntax(problem: str, line: str) -> tuple[str, str]:
    """What the parser stumbled over, and what people usually meant."""
    if "'\\t'" in problem:
        return "this is not YAML: there is a tab", "indent with spaces"
    if problem == "mapping values are not allowed here":
        return f"this is not YAML: {problem}", "a text with `: ` in it needs quotes"
    if match := re.match(r"expected ',' or '(.)', but got", problem):
        advice = "`${env:NAME}` needs quotes between braces or brackets" if "${env:" in line else ""
        return f"this is not YAML: `,` or `{match.group(1)}` is missing before this", advice
    return f"this is not YAML: {problem}", ""


@dataclass
class _Reader:
    """Turns YAML nodes into plain data, noting places, and reporting what YAML allows and a pipeline file does not."""

    document: Document
    environ: Mapping[str, str]
    open: set[int] = field(default_factory=set)
    count: int = 0

    def read(self, node: yaml.Node, loc: Loc) -> Any:
        self.document.values[loc] = _place(node.start_mark)
        self.count += 1
        if self.count == _NODES_MAX:
            self.document.report(loc, "the file is too large, with all its aliases resolved")
        if id(node) in self.open or self.count >= _NODES_MAX:
            if id(node) in self.open:
                self.document.report(loc, "this alias contains itself")
            return None
        if node.tag.removeprefix(_TAGS) not in _KINDS:
            self.document.report(loc, f"the YAML tag {node.tag.replace(_TAGS, '!!')} is not allowed here")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, loc)
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*loc, number)) for number, item in enumerate(node.value)]
            return self._scalar(node, loc)
        finally:
            self.open.remove(id(node))

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or (key.style is None and not isinstance(_plain(name), str)):
                self.document.values[(*loc, "?")] = _place(key.start_mark)
                self.document.report((*loc, "?"), "the name of a field must be text", "put it in quotes")
                continue
            at = (*loc, name)
            if name in data:
                first = self.document.keys[at].line
                twice = f"this field is given twice, first in line {first}"
                self.document.problems.append(Problem(_place(key.start_mark), at, twice))
                continue
            self.document.keys[at] = _place(key.start_mark)
            data[name] = self.read(value, at)
        return data

    def _scalar(self, node: yaml.Node, loc: Loc) -> Any:
        text: str = node.value
        if isinstance(node, yaml.ScalarNode) and node.style is None:
            value = _plain(text)
            if not isinstance(value, str):
                return value
        if "${env:" in REFERENCE.sub("", text):
            self.document.report(loc, "a reference to the environment is written `${env:NAME}`")
            return text
        try:
            return resolve(text, self.environ)
        except KeyError as error:
            name = error.args[0]
            self.document.report(loc, f"the environment variable {name} is not set", f"export {name}=... first")
            return text


def _plain(text: str) -> Any:
    """An unquoted scalar by YAML 1.2's core rules, without the forms that are more often text: `007`, `0x1f`, `.inf`."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) and not re.match(r"[-+]?0[0-9]", text) else text


def _place(mark: yaml.Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _near_files(path: Path) -> str:
    try:
        there = sorted(p.name for p in path.parent.iterdir() if p.suffix in {".yaml", ".yml"})
    except OSError:
        return f"there is no directory {path.parent} either"
    near = difflib.get_close_matches(path.name, there, n=1, cutoff=0.6) or there[:1]
    if not near:
        return "`pakka init` writes an example"
    return f"did you mean `{path.parent / near[0]}`?"
