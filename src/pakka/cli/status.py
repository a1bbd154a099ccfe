"""`pakka status`: what the state store knows of pipelines. It only reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import click

from pakka.cli.option import STATE, load, tells
from pakka.cli.render import Screen, duration, per_minute, some
from pakka.contract.state import EpochRow, PipelineState, StateStore
from pakka.errors import UsageError
from pakka.model.id import nearest
from pakka.state import open_store

_EPOCHS_SHOWN = 10


@click.command("status")
@click.argument("pipeline", required=False)
@click.option("--state", metavar="URL", help=f"The state store.  [default: {STATE}]")
@click.option("--file", metavar="FILE", help="A pipeline file, whose state store is used.")
@tells
@click.pass_obj
def command(screen: Screen, pipeline: str | None, state: str | None, file: str | None) -> None:
    """Show all pipelines of a state store, or PIPELINE with its newest epochs.

    An epoch is decided once its decision is in the state store, and committed once every sink has it; the state store
    learns of the latter with the next epoch. Lag is the time since the newest decision. The sinks are not asked; `pakka indoubt
    list` does that.

    A driver that serves metrics (`pakka run --metrics-port`) is asked for PIPELINE's figures of this moment, if it can be reached from
    here: commit time, record to commit, commits and aborts, retries, what is in doubt by sink, how far behind the source is.
    """
    if state is not None and file is not None:
        raise UsageError("--state and --file both name a state store", hint="use one of them")
    url = load(file, screen).state if file is not None else state or STATE
    with closing(open_store(url, must_exist=True)) as store:
        names = store.pipelines()
        if pipeline is not None and pipeline not in names:
            raise UsageError(
                f"state store {store.describe()} knows no pipeline `{pipeline}`", hint=nearest(pipeline, names)
            )
        told = [_told(store, name, is_alone=pipeline is not None) for name in ([pipeline] if pipeline else names)]
    if screen.is_json:
        screen.say_json(told[0] if pipeline else told)
    elif pipeline:
        _show_one(screen, told[0])
    elif told:
        _show_all(screen, told)
    else:
        screen.talk("the state store knows no pipeline yet")


def _told(store: StateStore, name: str, is_alone: bool) -> dict[str, Any]:
    state = store.read(name) or PipelineState(name, 0, None)
    rows = store.window(name, _EPOCHS_SHOWN)
    decided_at = next((row.at for row in rows if row.at > 0), None)
    return {
        "pipeline": name,
        "committed": state.committed,
        "phase": rows[0].phase.value if rows else None,
        "in_doubt": [decision.epoch.number for decision in state.open],
        "in_doubt_records": sum(len(decision.prepared) for decision in state.open),
        "in_doubt_s": _since(min((decision.at for decision in state.open), default=None)),
        "fence": state.fence,
        "owner": asdict(state.owner) if state.owner else None,
        "rows_in": state.totals.rows_in,
        "good": state.totals.good,
        "dead": state.totals.dead,
        "dropped": state.totals.dropped,
        "broken": dict(state.totals.broken),
        "lag_s": _since(decided_at),
        "rows_per_s": _rows_per_s(rows),
        **({"live": _live(state)} if is_alone else {}),
        "is_reset": state.is_reset,
        "epochs": [_epoch(row) for row in rows],
    }


def _live(state: PipelineState) -> dict[str, Any] | None:
    if state.owner is None or not state.owner.metrics:
        return None
    try:
        from pakka.observe.live import live
    except ModuleNotFoundError:
        return None  # who looks on need not have the library that the driver has
    return live(state)


def _rows_per_s(rows: Sequence[EpochRow]) -> float | None:
    """Over the newest epochs, by the times of their decisions."""
    timed = [row for row in rows if row.at > 0]
    span_s = timed[0].at - timed[-1].at if timed else 0.0
    return round(sum(row.count.rows_in for row in timed[:-1]) / span_s, 1) if span_s > 0 else None


def _since(at: float | None) -> float | None:
    return None if at is None else round(max(0.0, time.time() - at), 3)


def _epoch(row: EpochRow) -> dict[str, Any]:
    return {
        "epoch": row.epoch.number,
        "phase": row.phase.value,
        "fence": row.fence,
        "rows_in": row.count.rows_in,
        "dead": row.count.dead,
        "dropped": row.count.dropped,
        "sinks": {sink: rows for sink, (rows, _) in row.sinks.items()},
        "at": row.at,
    }


def _show_all(screen: Screen, told: list[dict[str, Any]]) -> None:
    columns = ["pipeline", "committed", "newest", "rows in", "dead", "dropped", "in doubt", "fence", "owner", "lag"]
    rows = [
        [
            one["pipeline"],
            _number(one["committed"]),
            one["phase"] or "-",
            f"{one['rows_in']:,}",
            f"{one['dead']:,}",
            f"{one['dropped']:,}",
            ", ".join(str(n) for n in one["in_doubt"]) or "-",
            str(one["fence"]),
            _owner(one["owner"]),
            duration(one["lag_s"]),
        ]
        for one in told
    ]
    screen.table(columns, rows)


def _show_one(screen: Screen, one: dict[str, Any]) -> None:
    doubt = ", ".join(f"epoch {n}" for n in one["in_doubt"])
    extent = f"decided {duration(one['in_doubt_s'])} ago, {some(one['in_doubt_records'], 'record')}"
    facts = {
        "pipeline": one["pipeline"],
        "committed": f"up to epoch {one['committed']}" if one["committed"] >= 0 else "nothing yet",
        "in doubt": f"{doubt}: {extent}, not yet known here to be in every sink" if doubt else "nothing",
        "rows in": f"{one['rows_in']:,}: {one['good']:,} good, {one['dead']:,} dead, {one['dropped']:,} dropped",
        **{f"broke {rule}": f"{count:,}" for rule, count in sorted(one["broken"].items())},
        "fence": str(one["fence"]),
        "owner": f"{_owner(one['owner'])}, since {_moment(one['owner']['since'])}" if one["owner"] else "nobody yet",
        "lag": duration(one["lag_s"]),
        **(_live_facts(one["live"], one["rows_per_s"]) if one["live"] else {}),
    }
    if one["is_reset"]:
        facts["reset"] = "the next checkpoint is accepted, whatever it is"
    width = max(map(len, facts))
    for name, fact in facts.items():
        screen.say(f"{name:<{width}}  {fact}")
    if not one["epochs"]:
        return
    sinks = sorted({sink for epoch in one["epochs"] for sink in epoch["sinks"]})
    rows = [
        [
            str(epoch["epoch"]),
            epoch["phase"],
            f"{epoch['rows_in']:,}",
            *(_number(epoch["sinks"].get(sink, -1)) for sink in sinks),
            f"{epoch['dropped']:,}",
            _moment(epoch["at"]),
        ]
        for epoch in one["epochs"]
    ]
    screen.say("")
    screen.table(["epoch", "phase", "rows in", *sinks, "dropped", "decided"], rows)


def _live_facts(live: dict[str, Any], rows_per_s: float | None) -> dict[str, str]:
    """What the driver itself tells now, as far as there is anything to tell."""
    facts = {"driver": live["state"] or "-"}
    if rows_per_s is not None:
        facts["speed"] = f"{rows_per_s:,.0f} rows/s over the epochs below"
    if live["commit_s"]:
        facts["commit"] = ", ".join(f"p{float(q) * 100:.0f} {s * 1000:,.0f} ms" for q, s in live["commit_s"].items())
    if live["latency_s"]:
        took = ", ".join(f"p{float(q) * 100:.0f} {s:,.1f} s" for q, s in live["latency_s"].items())
        facts["record to commit"] = took
    for fact in ("commits", "aborts"):
        counted = {sink: each for sink, each in live[fact].items() if each["count"]}
        if counted:
            facts[fact] = "; ".join(
                f"{sink} {each['count']:,}, {per_minute(each['per_s'] * 60)} a minute" for sink, each in counted.items()
            )
    expired = {sink: n for sink, n in live["expired"].items() if n}
    if expired:
        facts["expired"] = ", ".join(f"{sink} {some(n, 'slot')}" for sink, n in expired.items()) + ", sent again"
    asked = {sink: n for sink, n in live["retries"].items() if n}
    if asked:
        told = ((sink, n, live["unknown_outcomes"].get(sink, 0)) for sink, n in asked.items())
        facts["asked again"] = ", ".join(f"{sink} {n:,}, {lost:,} without an answer" for sink, n, lost in told)
    doubts = {sink: doubt for sink, doubt in live["in_doubt"].items() if doubt["count"]}
    for sink, doubt in doubts.items():
        facts[f"prepared in {sink}"] = f"{some(doubt['count'], 'record')}, the oldest for {duration(doubt['oldest_s'])}"
    if live["lag_records"] is not None:
        facts["behind"] = some(live["lag_records"], "record")
    if live["lso_lag_records"]:
        places = ", ".join(map(_place, filter(itemgetter("records"), live["lso_lag"])))
        facts["held back"] = f"{some(live['lso_lag_records'], 'record')} by open transactions: {places}"
    return facts


def _place(lag: dict[str, Any]) -> str:
    where = f"partition {lag['partition']} of {lag['topic']}"
    return f"{lag['records']:,} in {where} for {duration(lag['open_s'])}"


def _number(value: int) -> str:
    return "-" if value < 0 else f"{value:,}"


def _owner(owner: dict[str, Any] | None) -> str:
    return f"{owner['host']}, pid {owner['pid']}" if owner else "-"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at > 0 else "-"
