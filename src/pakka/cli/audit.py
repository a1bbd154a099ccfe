"""`pakka audit`: does a live sink keep the four guarantees, and do its settings let it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pakka.cli.option import load, tells
from pakka.cli.render import Screen
from pakka.errors import RefusedError, UsageError
from pakka.model.guarantee import Level

if TYPE_CHECKING:
    from pakka.audit.report import Lint, Report


@click.command("audit")
@click.argument("targets", nargs=-1, metavar="TARGET")
@click.option(
    "--consumers", is_flag=True, help="TARGET is no sink, but consumer groups and settings files of Kafka clients."
)
@click.option("--servers", metavar="HOST:PORT", help="With `--consumers`: the cluster of the groups.")
@click.option("--command-config", metavar="FILE", help="With `--servers`: librdkafka's settings, to get in.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "junit", "markdown"]),
    default="table",
    help="How to print it; `table` if not given.",
)
@click.option(
    "--require", type=click.Choice(["exactly-once"]), help="Refuse a sink that was not seen to keep all of it."
)
@tells
@click.pass_obj
def command(
    screen: Screen,
    targets: tuple[str, ...],
    consumers: bool,
    servers: str | None,
    command_config: str | None,
    form: str,
    require: str | None,
) -> int:
    """Test the live sink TARGET for the four guarantees, and read its settings.

    TARGET is a sink of a pipeline file (`refunds.yaml#refunds`), a URL (`sqlite:///x.db`, `parquet:out/refunds`), or a directory.

    The sink is tested by doing: rows are written, prepared, committed and aborted, twice each, processes are killed, and an older driver
    wakes up. All of it happens in a scratch area of its own beside the rows, which is removed in the end. A reader of its own
    looks at what is visible.

    With `--consumers` the other side is looked at, and nothing is done to it: `pakka audit --consumers consumer.properties`, or
    `pakka audit --consumers GROUP... --servers HOST:PORT`.

    The exit code is 1 if a guarantee or a setting failed.
    """
    screen.is_json = screen.is_json or form == "json"
    if consumers:
        return _lint(screen, targets, servers, command_config, form, require)
    if servers or command_config:
        raise UsageError(
            "`--servers` and `--command-config` are for `--consumers`", hint="a cluster is `kafka://HOST:PORT`"
        )
    if len(targets) != 1:
        raise UsageError(
            f"one TARGET is needed, and {len(targets)} were given",
            hint="a sink of a pipeline file, such as `refunds.yaml#refunds`, or a URL, such as `sqlite:///x.db`",
        )
    (target,) = targets
    report = _audit(screen, target)
    _tell(screen, report, form)
    if require is not None and not report.is_exactly_once:
        _refuse(report)
    return 1 if report.failed else 0


def _audit(screen: Screen, target: str) -> Report:
    from pakka.audit.host import fork
    from pakka.audit.run import audit
    from pakka.audit.target import find

    found = find(target, lambda path: load(path, screen))
    # A pipeline is read and its sinks are made without opening anything, so this process can be forked.
    return audit(found.sink, found.kind, found.spool, found.slots, fork)


def _lint(
    screen: Screen,
    subjects: tuple[str, ...],
    servers: str | None,
    way_in: str | None,
    form: str,
    require: str | None,
) -> int:
    from pakka.audit.consumers import lint

    if require is not None:
        raise UsageError(
            "`--require` is for sinks: of consumers only what is against exactly-once can be seen",
            hint="leave it out; the exit code is 1 if something is",
        )
    if way_in is not None and servers is None:
        raise UsageError("`--command-config` says how to get into a cluster, and there is none", hint="add `--servers`")
    report = lint(subjects, servers, way_in)
    _tell(screen, report, form)
    return 1 if report.failed else 0


def _tell(screen: Screen, report: Report | Lint, form: str) -> None:
    if screen.is_json:
        screen.say_json(report.to_json())
    elif form == "table":
        _show(screen, report)
    else:
        from pakka.audit import render

        screen.say(render.junit(report) if form == "junit" else render.markdown(report))


def _show(screen: Screen, report: Report | Lint) -> None:
    screen.say(f"{report.target} {report.verdict}, in {report.took_s:.2f} s\n")
    rows = [
        [str(a.guarantee) if n == 0 else "", str(a.verdict) if n == 0 else "", e.done, e.seen]
        for a in report.answers
        for n, e in enumerate(a.evidence)
    ]
    if rows:
        screen.table(["guarantee", "verdict", "what was done", "what was seen"], rows)
    for answer in report.answers:
        if answer.failure:
            screen.say(f"\nwithout {answer.guarantee}: {answer.failure}\n  to mend it: {answer.mend}")
    if report.findings:
        if rows:
            screen.say("")
        settings = [[f.name, f.value, str(f.severity), f.why, f.fix] for f in report.findings]
        screen.table(["setting", "found", "severity", "why it matters", "what mends it"], settings)


def _refuse(report: Report) -> None:
    missing = list(report.failed) or [f"{guarantee} was not seen" for guarantee in report.unseen]
    if report.promise.level is not Level.EXACTLY_ONCE:
        missing.append(f"it promises no more than {report.promise.level}: {report.promise.because}")
    mends = [a.mend for a in report.answers if a.mend] + [f.fix for f in report.findings if f.fix]
    raise RefusedError(
        f"{report.target} {report.verdict}, which is required: {'; '.join(missing)}; nothing was left behind",
        hint="; ".join(mends) or report.promise.mend,
    )
