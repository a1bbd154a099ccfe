"""`python: module:function`, checked without importing it and imported when the pipeline runs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from pakka.errors import ConfigError
from pakka.model.id import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function from DataFrame to DataFrame, by name."""

    module: str
    function: str

    @classmethod
    def parse(cls, target: str) -> PythonFunction:
        module, _, function = target.partition(":")
        return cls(module, function)

    def __call__(self, frame: DataFrame) -> DataFrame:
        function = getattr(importlib.import_module(self.module), self.function)
        result: DataFrame = function(frame)
        return result

    def check(self) -> None:
        """Make sure that module and function are there. The module's code, which may start anything, is not run."""
        spec = _find(self.module)
        if spec is None:
            raise ConfigError(
                f"there is no Python module `{self.module}`",
                hint="it is looked for in the current directory and among the installed packages",
            )
        bound = _bound_names(spec)
        if bound is not None and self.function not in bound:
            raise ConfigError(
                f"module `{self.module}` has no function `{self.function}`", hint=nearest(self.function, bound)
            )


def _find(module: str) -> ModuleSpec | None:
    """As importlib's own `find_spec`, which would import the parent packages on its way."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        # A module that is loaded and has no spec, such as `__main__`: only running it can tell.
        return ModuleSpec(top, None)
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        loaded = sys.modules.get(name)
        spec = loaded.__spec__ if loaded else PathFinder.find_spec(name, spec.submodule_search_locations)
    return spec


def _bound_names(spec: ModuleSpec) -> set[str] | None:
    """The names that a module binds at its top level; None if only running it can tell."""
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_bytes(), filename=spec.origin)
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"module `{spec.name}` cannot be read: {error}") from error
    names: set[str] = set()
    _collect(tree, names)
    return None if names & {"*", "__getattr__"} else names


def _collect(node: ast.AST, names: set[str]) -> None:
    """Names bound in a block, also under `if`, `try` and the like, and not in the functions and classes within it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(child.name)
        elif isinstance(child, ast.alias):
            names.add((child.asname or child.name).partition(".")[0])
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        else:
            _collect(child, names)
