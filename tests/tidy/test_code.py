"""House rules about the code in src that no linter keeps the way we mean them."""

import ast
import re

from tests.tidy.source import PACKAGE, modules, relative, text, tree

MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
BROAD = {"Exception", "BaseException"}


def is_broad(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in BROAD for kind in types)


def is_silent(handler: ast.ExceptHandler) -> bool:
    """Nothing happens in it: pass, ..., continue, or a comment dressed as a string."""
    return all(
        isinstance(step, ast.Pass | ast.Continue)
        or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
        for step in handler.body
    )


def swallowed(module: ast.Module) -> list[int]:
    handlers = [node for node in ast.walk(module) if isinstance(node, ast.ExceptHandler)]
    return [node.lineno for node in handlers if node.type is None or (is_broad(node) and is_silent(node))]


def test_no_error_is_swallowed():
    assert [f"{relative(path)}:{line}" for path in modules() for line in swallowed(tree(path))] == []


def test_swallowed_errors_are_found():
    source = "try: f()\nexcept: g()\ntry: f()\nexcept Exception: pass\ntry: f()\nexcept OSError: pass\n"
    assert swallowed(ast.parse(source)) == [2, 4]
    assert swallowed(ast.parse("try: f()\nexcept (OSError, Exception): ...\n")) == [2]
    assert swallowed(ast.parse("try: f()\nexcept BaseException:\n  undo()\n  raise\n")) == []


def test_no_unfinished_marks():
    found = [
        f"{relative(path)}:{number}"
        for path in modules()
        for number, line in enumerate(text(path).splitlines(), start=1)
        if MARKS.search(line)
    ]
    assert found == []


def test_every_module_says_what_it_is_for():
    assert [relative(path) for path in modules() if text(path).strip() and not ast.get_docstring(tree(path))] == []


def test_every_public_class_has_a_docstring():
    found = [
        f"{relative(path)}::{node.name}"
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert found == []


# The simulation owns time and chance, so the coordinator is handed both.
CLOCK_MODULES = {"time", "random", "secrets", "uuid"}
CLOCK_CALLS = {"now", "utcnow", "today", "sleep", "monotonic", "perf_counter", "urandom", "uuid1", "uuid4"}
CLOCK_OWNERS = CLOCK_MODULES | {"datetime", "date", "os", "asyncio"}


def reaches_for_the_clock(module: ast.Module) -> list[int]:
    lines = []
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            bad = any(alias.name.split(".")[0] in CLOCK_MODULES for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            bad = (node.module or "").split(".")[0] in CLOCK_MODULES
        elif isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            bad = owner in CLOCK_OWNERS and node.attr in CLOCK_CALLS
        else:
            bad = False
        if bad:
            lines.append(node.lineno)
    return lines


def test_the_coordinator_owns_no_clock_and_no_chance():
    found = [
        f"{relative(path)}:{line}"
        for path in modules(PACKAGE / "coordinator")
        for line in reaches_for_the_clock(tree(path))
    ]
    assert found == []


def test_clocks_are_found():
    source = "import time\nfrom uuid import uuid4\ndatetime.now()\ndatetime.datetime.utcnow()\nos.urandom(8)\n"
    assert sorted(reaches_for_the_clock(ast.parse(source))) == [1, 2, 3, 4, 5]
    assert reaches_for_the_clock(ast.parse("self.clock.now()\nclock.sleep(1)\nfrom datetime import timedelta\n")) == []
