"""The guarantee of a pipeline, computed from its parts before anything is started.

Exactly-once needs all of: a source that can be read again, sinks that keep the contract, state and spool that are as
durable as the deployment asks for, and commits that an older driver cannot make. One that is missing is named, with
what would mend it.
"""

from __future__ import annotations

from pakka.contract.pipeline import Pipeline
from pakka.contract.sink import uses_spool
from pakka.errors import RefusedError
from pakka.model.guarantee import Guarantee, Level, Part


def assess(pipeline: Pipeline, store_is_shared: bool, master: str, spool_is_shared: bool = False) -> Guarantee:
    """What a reader of this pipeline's sinks may rely on, and why.

    `master` is Spark's; `store_is_shared` and `spool_is_shared` say whether every machine sees the same state store and
    the same spool directory.
    """
    sinks = tuple(_sink(name, pipeline) for name in pipeline.outputs)
    durability = _durability(pipeline, store_is_shared, master, spool_is_shared)
    return Guarantee((pipeline.source.replayable(), *sinks, durability, _fencing(pipeline)))


def require(pipeline: str, guarantee: Guarantee, level: Level) -> None:
    """Refuse a pipeline whose guarantee is less than `level`, naming what is missing."""
    if level is Level.AT_LEAST_ONCE or guarantee.level is level:
        return
    missing = "; ".join(f"{part.name}: {part.because}" for part in guarantee.missing)
    mends = "; ".join(part.mend for part in guarantee.missing if part.mend)
    raise RefusedError(
        f"pipeline `{pipeline}` is {guarantee.level}, and {level} is required: {missing}; nothing was started",
        hint=mends,
    )


def _sink(name: str, pipeline: Pipeline) -> Part:
    promise = pipeline.outputs[name].sink.guarantee()
    holds = promise.level is Level.EXACTLY_ONCE
    return Part(f"sink `{name}`", holds, f"{promise.way.value}: {promise.because}", promise.mend)


def _durability(pipeline: Pipeline, store_is_shared: bool, master: str, spool_is_shared: bool) -> Part:
    """On one machine its own disk is enough. On a cluster the next driver may start on another machine."""
    if master.startswith("local"):
        because = "single-node: state, spool and writers are on this machine, and outlive any of its processes"
        return Part("durability", True, because)
    if not store_is_shared:
        return Part(
            "durability",
            False,
            f"Spark runs on {master}, and the state store is a file of the driver's machine, which another driver cannot see",
            "use a state store that every machine reaches, `state: postgresql://...`",
        )
    spooled = [name for name, out in pipeline.outputs.items() if uses_spool(out.sink)]
    if spooled and not spool_is_shared:
        return Part(
            "durability",
            False,
            f"Spark runs on {master}, and sink `{spooled[0]}` keeps prepared rows in {pipeline.spool}, which is not known to be "
            "the same directory on every machine",
            "put `spool` on a network file system that every machine mounts at the same path",
        )
    return Part("durability", True, "distributed-durable: every machine reaches the state store and all prepared rows")


def _fencing(pipeline: Pipeline) -> Part:
    """A sink that cannot remember epochs cannot refuse an older driver either."""
    open_to_all = [n for n, out in pipeline.outputs.items() if out.sink.guarantee().level is not Level.EXACTLY_ONCE]
    if open_to_all:
        listed = ", ".join(f"`{n}`" for n in open_to_all)
        return Part("fencing", False, f"an older driver is refused by the state store, but not by sink {listed}")
    return Part("fencing", True, "state store and sinks each refuse a driver whose fence is older")
