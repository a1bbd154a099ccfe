"""A function that needs scrolling wants a name for its parts; a module that does wants to be two."""

from tests.tidy.source import functions, modules, relative, text

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 450

# What is longer, how long it may be, and why. A number here may only go down; an entry that is no longer
# needed, or is larger than the code, fails.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_MODULES: dict[str, int] = {}


def judge(sizes: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    wrong = []
    for name, lines in sorted(sizes.items()):
        allowed = exceptions.get(name, limit)
        if lines > allowed:
            wrong.append(f"{name}: {lines} lines, {allowed} allowed")
    for name, allowed in exceptions.items():
        lines = sizes.get(name, 0)
        if lines < allowed:
            needed = "remove the entry" if lines <= limit else f"lower it to {lines}"
            wrong.append(f"{name}: the ratchet says {allowed}, it has {lines} lines; {needed}")
    return wrong


def test_functions_fit_on_a_screen():
    sizes = {f"{relative(path)}::{name}": lines for path in modules() for name, lines in functions(path)}
    assert judge(sizes, FUNCTION_LINES_MAX, LONG_FUNCTIONS) == []


def test_modules_are_short():
    sizes = {relative(path): len(text(path).splitlines()) for path in modules()}
    assert judge(sizes, MODULE_LINES_MAX, LONG_MODULES) == []


def test_a_ratchet_only_goes_down():
    assert judge({"f": 70}, 60, {}) == ["f: 70 lines, 60 allowed"]
    assert judge({"f": 70}, 60, {"f": 70}) == []
    assert judge({"f": 65}, 60, {"f": 70}) == ["f: the ratchet says 70, it has 65 lines; lower it to 65"]
    assert judge({"f": 20}, 60, {"f": 70}) == ["f: the ratchet says 70, it has 20 lines; remove the entry"]
    assert judge({}, 60, {"gone": 70}) == ["gone: the ratchet says 70, it has 0 lines; remove the entry"]
