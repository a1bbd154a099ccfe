"""Cheating twins: sinks that break one promise each, to prove that the contract suite finds out.

A suite that every sink passes shows nothing. So for every case there is a twin that fails it, and every twin fails a case.
"""

from pakka.testing.twins.harness import TwinHarness
from pakka.testing.twins.table import HONEST, HONEST_BY_SLOT, TWINS, Twin

__all__ = ["HONEST", "HONEST_BY_SLOT", "TWINS", "Twin", "TwinHarness"]
