"""`krouter test`: the cases that combo files expect, offline and in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from krouter.cases import Fault, Given, Reply
from krouter.cli.common import Command, find_paths, json_option, place_options
from krouter.cli.figures import count
from krouter.cli.output import print_json, say, say_line
from krouter.cli.view import View, open_view
from krouter.combos import Combo
from krouter.problems import ConfigError, Problem
from krouter.rehearsal import Stage
from krouter.route import Attempt, Route, Skipped
from krouter.trial import Trial, misnamed, reply_in_words, try_combo

WIDTH = 79


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path())
@place_options
@json_option
def test(
    folder: str | None, home: str | None, config: str | None, combos: str | None, as_json: bool
) -> None:
    """Run the tests that combo files bring with them.

    DIR is a folder of combo files; those that ship stand behind it, and are not run. Without DIR
    the combos of the home are run, and those that ship.

    Each case of `expect` is one request to a krouter in which nothing has happened but what is
    given. The providers are scripted and time is virtual: nothing is sent, and no credential is
    looked at. A provider without an account is given one. Settings count: the same case may hold in
    one home and not in another. docs/combos.md tells what a case may say.

    The exit code is 1 where a case does not hold, and where a file is wrong, whose cases are not
    run then; 3 where nothing can be run. A combo without cases is told, and no failure.

    JSON: passed, failed (how many cases), problems (as of krouter check), combos. A combo is combo,
    file, cases; a case is path, given, told (given, in words), holds, misses (each with what:
    order, attempts or reply; expected and came), order (each with entry, reason), steps (each with
    entry, role: panel, judge, again or null; what: asked or skipped; detail), reply (from, status,
    came, message).
    """
    if folder is not None and combos is not None:
        raise click.UsageError("DIR and --combos exclude each other.")
    paths = find_paths(home, config, folder or combos)
    view = open_view(paths, required=config is not None)
    chosen = list(_chosen(view, None if folder is None else paths.combos))
    stage = Stage.of(view.world)
    faulty = _faulty(view, chosen, stage)
    problems = [*_unread(view), *(problem for each in faulty.values() for problem in each)]
    if problems and len(faulty) == len(chosen):
        raise ConfigError(problems)
    found = [_tried(view, combo, stage) for combo in chosen if combo.name not in faulty]
    failed = sum(not case["holds"] for each in found for case in each["cases"])
    if as_json:
        told = [asdict(problem) for problem in problems]
        passed = not (failed or problems)
        print_json({"passed": passed, "failed": failed, "combos": found, "problems": told})
    else:
        _show(found, problems)
    if failed or problems:
        raise click.exceptions.Exit(1)


def _chosen(view: View, folder: Path | None) -> Iterator[Combo]:
    """The combos to run: those of the files in `folder`, or all."""
    for name, combo in sorted(view.store.combos.items()):
        if folder is None or view.store.source(name).parent == folder:
            yield combo


def _unread(view: View) -> list[Problem]:
    """What is wrong with files, whose combos are not among those that are run."""
    return [problem for problem in view.store.problems if problem.level == "error"]


def _faulty(view: View, combos: list[Combo], stage: Stage) -> dict[str, list[Problem]]:
    """The combos in whose cases a name means nobody: none of their cases is run."""
    found = {
        combo.name: list(misnamed(combo, stage.world, str(view.store.source(combo.name))))
        for combo in combos
    }
    return {name: problems for name, problems in found.items() if problems}


def _tried(view: View, combo: Combo, stage: Stage) -> dict[str, Any]:
    return {
        "combo": combo.name,
        "file": str(view.store.source(combo.name)),
        "cases": [_case(at, trial) for at, trial in enumerate(try_combo(stage, combo))],
    }


def _case(at: int, trial: Trial) -> dict[str, Any]:
    route, reply = trial.seen.route, trial.reply
    return {
        "path": f"$.expect[{at}]",
        "given": trial.case.given.model_dump(by_alias=True, mode="json", exclude_defaults=True),
        "told": _in_words(trial.case.given),
        "holds": trial.holds,
        "misses": [
            {"what": miss.what, "expected": miss.expected, "came": miss.came}
            for miss in trial.misses
        ],
        "order": [
            {"entry": placed.entry, "reason": placed.reason}
            for placed in (route.plan if route else ())
        ],
        "steps": [_step(step, route) for step in route.steps] if route else [],
        "reply": {
            "from": reply.from_,
            "status": reply.status,
            "came": reply.came,
            "message": trial.seen.message or None,
        },
    }


def _step(step: Attempt | Skipped, route: Route) -> dict[str, Any]:
    around = route.around(step.voice)
    role = around[-1].role if around else None
    if isinstance(step, Skipped):
        what, detail = "skipped", _joined(step.reason, step.detail)
    else:
        status = "" if step.status is None else str(step.status)
        what, detail = "asked", _joined(status, step.outcome)
    return {"entry": step.entry, "role": role, "what": what, "detail": detail}


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))


def _in_words(given: Given) -> str:
    """`image, streamed; cc: 529`."""
    asked = [*given.needs, *(["streamed"] if given.stream else [])]
    asked += [given.dialect] if given.dialect != "chat" else []
    told = [", ".join(asked)] if asked else []
    told += [f"turn {given.turn}"] if given.turn > 1 else []
    told += [f"{who}: {_faults(faults)}" for who, faults in given.fail.items()]
    told += [f"{who}: locked" for who in given.locked]
    told += [f"{who}: {left:.0%} of its quota left" for who, left in given.quota.items()]
    return "; ".join(told) or "a plain request"


def _faults(faults: Fault | tuple[Fault | None, ...]) -> str:
    if not isinstance(faults, tuple):
        return str(faults)
    return ", then ".join("an answer" if each is None else str(each) for each in faults)


def _show(found: Sequence[dict[str, Any]], problems: Sequence[Problem]) -> None:
    """A line for each combo, and below it what does not hold in it; then what was not run."""
    width = max((len(each["combo"]) for each in found), default=0)
    for each in found:
        failed = [case for case in each["cases"] if not case["holds"]]
        say_line(f"{each['combo'].ljust(width)}  {_sum(len(each['cases']), len(failed))}")
        for case in failed:
            _show_failure(case)
    cases = [case for each in found for case in each["cases"]]
    if problems:
        say()
        say_line("Not run, since something is wrong with the file:")
        for problem in problems:
            say_line(f"{problem}")
    say()
    say_line(_end(len(cases), sum(not case["holds"] for case in cases), not problems))


def _sum(cases: int, failed: int) -> str:
    if not cases:
        return "has no cases"
    if failed:
        return f"{failed} of {count(cases, 'case')} FAILED"
    return f"{count(cases, 'case')} {'holds' if cases == 1 else 'hold'}"


def _end(cases: int, failed: int, is_all: bool) -> str:
    if not cases:
        return "There are no cases."
    return (
        f"{count(cases, 'case')}, {failed} FAILED."
        if failed
        else f"Every case {'holds' if is_all else 'that was run holds'}."
    )


def _show_failure(case: dict[str, Any]) -> None:
    _say(f"  {case['path']}  ", case["told"])
    for miss in case["misses"]:
        what = f"    {miss['what']} expected  "
        _say(what, miss["expected"])
        _say("came  ".rjust(len(what)), miss["came"])
    if case["order"]:
        say_line("    the order")
    for place, placed in enumerate(case["order"], 1):
        _say(f"      {place}. ", f"{placed['entry']}: {placed['reason']}")
    say_line("    the request")
    for step in case["steps"]:
        _say("      ", f"{step['entry']}{_ROLES[step['role']]}: {_happened(step)}")
    reply = case["reply"]
    told = reply_in_words(Reply.model_construct(**{**reply, "from_": reply["from"]}))
    _say("      the caller: ", f"{told}: {reply['message']}" if reply["message"] else told)


_ROLES = {None: "", "panel": "", "judge": ", the judge", "again": ", asked again"}


def _happened(step: dict[str, Any]) -> str:
    skipped = step["what"] == "skipped"
    return f"skipped: {step['detail']}" if skipped else str(step["detail"])


def _say(label: str, text: str) -> None:
    """Lines that fit a terminal, the text below itself."""
    indent = " " * min(len(label), 12)
    for line in wrap(label + text, WIDTH, subsequent_indent=indent, break_on_hyphens=False):
        say_line(line)
