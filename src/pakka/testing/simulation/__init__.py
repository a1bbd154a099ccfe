"""The real coordinator in a simulated world, driven by a seed.

::

    make simulate SEEDS=10000          # or: python -m pakka.testing.simulation --seeds 10000
    make simulate SEED=4711            # one seed again, with its history

The coordinator, its recovery and its guard are the code that runs in production. All they touch is simulated: state store,
sinks, Spark with its checkpoint and tasks, the clock, the network, and crashes. One seed is one course of events, the
same on every machine. Read `run` first: it puts a world together and lets it go.
"""

from pakka.testing.simulation.run import Result, simulate

__all__ = ["Result", "simulate"]
