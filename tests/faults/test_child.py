"""The processes of the fault tests begin at once."""

import json
import sys

import pytest

from tests.faults.child import Child
from tests.fixtures.forked import MODULES

pytestmark = [pytest.mark.faults, pytest.mark.every_case]


def tell_missing(names: list[str]) -> int:
    print(json.dumps({"missing": [name for name in names if name not in sys.modules]}))
    return 0


def test_a_forked_process_has_imported_what_it_needs(tmp_path):
    """A list that the server was told too late, or a name in it that is wrong, is passed over without a word; and each process takes a second."""
    child = Child(tell_missing, (MODULES,), tmp_path / "words", None)
    assert (child.wait(), child.events) == (0, [{"missing": []}])
