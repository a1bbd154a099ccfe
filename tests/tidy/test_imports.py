"""What an import drags in. The layers themselves are import-linter's, in pyproject.toml."""

import subprocess
import sys

import grimp
import pytest

from tests.tidy.source import PACKAGE

# A user who types `pakka --help`, and a test of the protocol, do not wait for Spark.
WITHOUT_SPARK = [
    "pakka",
    "pakka.errors",
    "pakka.model",
    "pakka.contract",
    "pakka.config",
    "pakka.coordinator",
    "pakka.cli",
]


@pytest.mark.parametrize("module", WITHOUT_SPARK)
def test_import_does_not_load_spark(module):
    path = PACKAGE.parent.joinpath(*module.split("."))
    if not (path / "__init__.py").exists() and not path.with_suffix(".py").exists():
        pytest.skip(f"{module} is not written yet")
    heavy = "{'pyspark', 'pandas', 'psycopg'}"
    code = f"import sys, {module}; sys.exit(' '.join(sorted({heavy} & set(sys.modules))))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr.strip() == ""


def test_executor_code_never_sees_the_coordinator_or_the_state():
    if not (PACKAGE / "spark" / "task.py").exists():
        pytest.skip("pakka.spark.task is not written yet")
    graph = grimp.build_graph("pakka", exclude_type_checking_imports=True)
    seen = sorted(
        module
        for module in graph.find_upstream_modules("pakka.spark.task")
        if module.startswith(("pakka.coordinator", "pakka.state"))
    )
    assert seen == []
