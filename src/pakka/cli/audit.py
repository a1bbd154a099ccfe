"""`pakka audit`: does a live sink keep the four guarantees, and do its settings let it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pakka.audit.cast import Cast
from pakka.cli.option import load, tells
from pakka.cli.render import Screen
from pakka.errors import RefusedError
from pakka.model.guarantee import Level

if TYPE_CHECKING:
    from pakka.audit.report import Report


@click.command("audit")
@click.argument("target")
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
def command(screen: Screen, target: str, form: str, require: str | None) -> int:
    """Test the live sink TARGET for the four guarantees, and read its settings.

    TARGET is a sink of a pipeline file (`refunds.yaml#refunds`), a URL (`sqlite:///x.db`, `parquet:out/refunds`), or a directory.

    The sink is tested by doing: rows are written, prepared, committed and aborted, twice each, processes are killed, and an older driver
    wakes up. All of it happens in a scratch area of its own beside the rows, which is removed in the end. A reader of its own
    looks at what is visible.

    The exit code is 1 if a guarantee or a setting failed.
    """
    screen.is_json = screen.is_json or form == "json"
    # The processes of the audit import Arrow while this one does.
    with Cast() as cast:
        from pakka.audit.run import audit
        from pakka.audit.target import find

        found = find(target, lambda path: load(path, screen))
        report = audit(found.sink, found.kind, cast, found.spool)
    _tell(screen, report, form)
    if require is not None and not report.is_exactly_once:
        _refuse(report)
    return 1 if report.failed else 0


def _tell(screen: Screen, report: Report, form: str) -> None:
    if screen.is_json:
        screen.say_json(report.to_json())
    elif form == "table":
        _show(screen, report)
    else:
        from pakka.audit import render

        screen.say(render.junit(report) if form == "junit" else render.markdown(report))


def _show(screen: Screen, report: Report) -> None:
    screen.say(f"{report.target} {report.verdict}, in {report.took_s:.2f} s\n")
    rows = [
        [str(a.guarantee) if n == 0 else "", str(a.verdict) if n == 0 else "", e.done, e.seen]
        for a in report.answers
        for n, e in enumerate(a.evidence)
    ]
    screen.table(["guarantee", "verdict", "what was done", "what was seen"], rows)
    for answer in report.answers:
        if answer.failure:
            screen.say(f"\nwithout {answer.guarantee}: {answer.failure}\n  to mend it: {answer.mend}")
    if report.findings:
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
