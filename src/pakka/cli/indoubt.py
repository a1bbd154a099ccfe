"""`pakka indoubt`: one desk for everything that is prepared and not settled, in every sink of a pipeline."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pakka.cli.alive import is_alive
from pakka.cli.option import find, load, tells
from pakka.cli.render import Screen, duration, some
from pakka.contract.doubt import Doubt
from pakka.contract.pipeline import Pipeline
from pakka.contract.state import Owner
from pakka.coordinator.doubt import Case, Desk, Survey
from pakka.coordinator.recovery import Look
from pakka.coordinator.resolve import Deed, Do, Resolution, Resolve
from pakka.errors import ConfigError, PakkaError, RefusedError, UnavailableError, UsageError
from pakka.state import open_store

_SUFFIXES = (".yaml", ".yml")
_PIPELINE_FILE = re.compile(r"^pipeline\s*:", re.MULTILINE)


@click.group("indoubt", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List what is in doubt in the sinks of a pipeline, or settle it from the decision.

    In doubt is what is prepared and not known here to be committed or aborted. It is settled by the decision in the state
    store, never by guess: what a decision names is committed, what none names is aborted. Every run of a pipeline begins with
    that; `resolve` does it without a run. Both have --json.
    """
    if context.invoked_subcommand is None:
        context.obj.say(context.get_help())


@command.command("list", short_help="List what is in doubt in every sink, and what becomes of it.")
@click.argument("pipeline", required=False)
@tells
@click.pass_obj
def list_(screen: Screen, pipeline: str | None) -> None:
    """List what is in doubt in every sink of PIPELINE, a pipeline file or the name of one in the current directory.

    Without PIPELINE every pipeline file in the current directory is taken. Each record has what the sink calls it, since
    when it is there, its rows, what it locks, and what becomes of it: `commit` if a decision names it, `abort` if none does,
    `in flight` if its driver may still decide. What others have prepared on the same server is shown and never touched.

    Nothing is changed. A sink that cannot be asked is named, and the exit code is that of its error.
    """
    surveys: list[Survey] = []
    errors: list[PakkaError] = []
    for described in _described(screen, pipeline):
        survey, store_error = _survey(described)
        surveys.append(survey)
        errors += [*([store_error] if store_error else []), *survey.troubles]
    if screen.is_json:
        told = [_told(survey) for survey in surveys]
        screen.say_json(told[0] if pipeline else told)
    else:
        _show(screen, surveys)
    for error in errors[1:]:
        screen.talk(f"note: {error.message}")
    if errors:
        raise errors[0]


@command.command("resolve", short_help="Settle it from the decision, and say what was done.")
@click.argument("pipeline")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Take over from a driver that runs, or may run; it stops with exit code 4.")
@tells
@click.pass_obj
def resolve(screen: Screen, pipeline: str, dry_run: bool, yes: bool) -> None:
    """Settle what is in doubt in PIPELINE, a pipeline file or the name of one in the current directory.

    What is decided is committed, what is not is aborted, as every run does when it begins: the fence is taken first, and where
    checkpoint, state store and sinks contradict each other nothing is changed. Spark is not started. If nothing is in doubt,
    nothing is done, and the fence is not taken.

    It may be cut off and done again.
    """
    (described,) = _described(screen, pipeline)
    with (
        closing(open_store(described.state, must_exist=True)) as store,
        ThreadPoolExecutor(max_workers=8) as pool,
    ):
        owner = Owner(socket.gethostname(), os.getpid(), time.time())
        desk = Resolve(_desk(described), store, owner, time.sleep, pool)
        look = _look(described)
        done = desk.plan(look) if dry_run else desk.resolve(look, take_over=yes)
    if screen.is_json:
        screen.say_json(_told_of(done))
    else:
        _show_deeds(screen, done, dry_run)
    _check_lost(done)


def _described(screen: Screen, named: str | None) -> list[Pipeline]:
    """The pipelines that are meant. What any of them takes from the environment stays hidden."""
    found = []
    for file in [_file(named)] if named else _files_here():
        before = screen.hide
        found.append(load(file, screen))
        screen.hide = _both(before, screen.hide)
    return found


def _both(first: Callable[[str], str], second: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: second(first(text))


def _file(named: str) -> str:
    if Path(named).suffix in _SUFFIXES or Path(named).is_file():
        return named
    return find(named, hint="name the file itself: `pakka indoubt list FILE`")


def _files_here() -> list[str]:
    names = sorted(p.name for p in Path().iterdir() if p.suffix in _SUFFIXES and p.is_file())
    found = [name for name in names if _PIPELINE_FILE.search(Path(name).read_text(encoding="utf-8", errors="replace"))]
    if not found:
        raise UsageError(
            "there is no pipeline file in the current directory", hint="name one: `pakka indoubt list refunds.yaml`"
        )
    return found


def _desk(pipeline: Pipeline) -> Desk:
    sinks = {name: output.sink for name, output in pipeline.outputs.items()}
    return Desk(pipeline.name, sinks, pipeline.slots, pipeline.spool_path, time.time, is_alive)


def _survey(pipeline: Pipeline) -> tuple[Survey, PakkaError | None]:
    """What is in doubt, and why the state store could not be asked. Without it the sinks still have much to tell."""
    desk = _desk(pipeline)
    try:
        with closing(open_store(pipeline.state, must_exist=True)) as store:
            survey = desk.survey(store)
    except ConfigError:
        raise
    except (UsageError, UnavailableError) as error:
        return desk.survey(None), error
    return survey, None


def _look(pipeline: Pipeline) -> Look:
    from pakka.spark import checkpoint

    return lambda: checkpoint.read(pipeline.checkpoint_path)


def _show(screen: Screen, surveys: Sequence[Survey]) -> None:
    rows = [_row(survey, case) for survey in surveys for case in survey.cases]
    if rows:
        columns = ["pipeline", "sink", "epoch", "fence", "slot", "attempt", "rows", "age", "locks", "fate"]
        screen.table([*columns, "id", "because"], rows)
    for survey in surveys:
        _talk(screen, survey)


def _talk(screen: Screen, survey: Survey) -> None:
    where = f"pipeline `{survey.pipeline}`"
    oldest = f", the oldest for {duration(survey.oldest_s)}" if survey.oldest_s is not None else ""
    count = len(survey.cases)
    nothing = "nothing is in doubt" if survey.state else "its sinks have nothing prepared"
    screen.talk(f"{where}: {some(count, 'record')} in doubt{oldest}" if count else f"{where}: {nothing}")
    for epoch in survey.unentered:
        screen.talk(f"{where}: epoch {epoch} is in every sink; the state store learns of it with the next epoch")
    for sink, doubt in survey.foreign:
        age = f", for {duration(doubt.age_s)}" if doubt.age_s is not None else ""
        screen.talk(f"{where}: sink `{sink}`: `{_plain(doubt.id)}` is {_whose(doubt)}, and never touched{age}")


def _row(survey: Survey, case: Case) -> list[str]:
    slot, doubt = case.slot, case.doubt
    return [
        survey.pipeline,
        case.sink,
        *(str(number) for number in (slot.epoch, slot.fence, slot.number, slot.attempt)),
        "-" if doubt.rows is None else f"{doubt.rows:,}",
        duration(doubt.age_s),
        ", ".join(doubt.locks) or "-",
        str(case.fate),
        doubt.id,
        case.because,
    ]


def _plain(ident: str) -> str:
    """Others may call their transactions whatever they like, also what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in ident)


def _whose(doubt: Doubt) -> str:
    return "of another pipeline" if doubt.id.startswith("pakka.") else "not pakka's"


def _told(survey: Survey) -> dict[str, Any]:
    state = survey.state
    owner = {**asdict(state.owner), "is_alive": survey.is_alive} if state and state.owner else None
    sinks = sorted({case.sink for case in survey.cases} | set(survey.ledgers))
    return {
        "pipeline": survey.pipeline,
        "fence": state.fence if state else None,
        "owner": owner,
        "count": len(survey.cases),
        "oldest_s": _rounded(survey.oldest_s),
        "sinks": {
            name: {"count": len(part.cases), "oldest_s": _rounded(part.oldest_s)}
            for name in sinks
            for part in (survey.of_sink(name),)
        },
        "unentered": list(survey.unentered),
        "in_doubt": [_told_case(case) for case in survey.cases],
        "foreign": [{"sink": sink, **_told_doubt(doubt), "whose": _whose(doubt)} for sink, doubt in survey.foreign],
        "troubles": [error.message for error in survey.troubles],
    }


def _told_case(case: Case) -> dict[str, Any]:
    slot = case.slot
    numbers = {"epoch": slot.epoch, "fence": slot.fence, "slot": slot.number, "attempt": slot.attempt}
    fate = {"fate": str(case.fate), "because": case.because}
    return {"sink": case.sink, "pipeline": slot.pipeline, **numbers, **_told_doubt(case.doubt), **fate}


def _told_doubt(doubt: Doubt) -> dict[str, Any]:
    return {"id": doubt.id, "age_s": _rounded(doubt.age_s), "rows": doubt.rows, "locks": list(doubt.locks)}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _told_of(done: Resolution) -> dict[str, Any]:
    return {
        "pipeline": done.found.pipeline,
        "fence": done.fence,
        "is_done": done.fence is not None,
        "committed": done.count(Do.COMMIT),
        "aborted": done.count(Do.ABORT),
        "lost": done.count(Do.LOST),
        "deeds": [{**asdict(deed), "do": str(deed.do), "sink": deed.sink or None} for deed in done.deeds],
    }


_WORDS = {Do.COMMIT: ("commit", "committed"), Do.ABORT: ("abort", "aborted"), Do.ENTER: ("enter", "entered")}


def _show_deeds(screen: Screen, done: Resolution, is_dry: bool) -> None:
    if not done.deeds:
        screen.talk(f"pipeline `{done.found.pipeline}`: nothing is in doubt; nothing was changed")
        return
    for deed in done.deeds:
        screen.say(_line(deed, is_dry))
    if is_dry:
        screen.talk("nothing was changed; this is what `pakka indoubt resolve` does without --dry-run")
    else:
        counts = f"committed {done.count(Do.COMMIT)}, aborted {done.count(Do.ABORT)}"
        screen.talk(f"pipeline `{done.found.pipeline}`: {counts}, under fence {done.fence}")


def _line(deed: Deed, is_dry: bool) -> str:
    rows = "" if deed.rows is None else f", {some(deed.rows, 'row')}"
    what = f"{some(deed.records, 'record')}{rows} of epoch {deed.epoch}"
    if deed.do is Do.LOST:
        return f"lost {what} in sink `{deed.sink}`: decided, and no longer to be committed"
    word = _WORDS[deed.do][0 if is_dry else 1]
    if deed.do is Do.ENTER:
        return f"{word} epoch {deed.epoch} in the state store as committed"
    where = "to" if deed.do is Do.COMMIT else "in"
    why = (
        "decided" if deed.do is Do.COMMIT else "no decision names them" if deed.records > 1 else "no decision names it"
    )
    return f"{word} {what} {where} sink `{deed.sink}`: {why}"


def _check_lost(done: Resolution) -> None:
    if done.lost:
        first = done.lost[0]
        raise RefusedError(
            f"pipeline `{done.found.pipeline}`: epoch {first.epoch} is decided, and sink `{first.sink}` has lost "
            f"{some(first.records, 'record')} of it; all else is settled",
            hint="run the pipeline: Spark has not acknowledged the epoch, so what is missing is made again",
        )
