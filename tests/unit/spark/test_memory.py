"""A task keeps the memory of one batch for the next."""

import platform
import subprocess
import sys

import pytest

_CODE = """
import resource, sys
import numpy as np
from pakka.spark import task
if sys.argv[1] == "kept":
    task._keep_memory()
def work():
    held = [np.ones(100_000) for _ in range(10)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other habits")
def test_pages_that_were_freed_are_not_asked_for_again():
    found = {}
    for how in ("kept", "given back"):
        code = [sys.executable, "-c", _CODE, how]
        found[how] = int(subprocess.run(code, capture_output=True, text=True, timeout=60, check=True).stdout)
    # Ten blocks of 200 pages, twenty times.
    assert found["kept"] < 4000 < found["given back"]
