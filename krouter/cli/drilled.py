"""A drill as people read it: the faults that look the same to a caller, together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from krouter.cli.figures import count
from krouter.cli.output import aligned, say, say_line, shortened

WIDTH = 79
_SHOWN = 20
"""Failures that are told one by one."""
Case = dict[str, Any]


class Cell(NamedTuple):
    """What came of one fault at one place, whole or streamed, as far as faults can be told apart
    by it."""

    at: int | None
    stream: bool
    sees: str
    rule: str


def show(found: dict[str, Any]) -> None:
    """The entries, the groups of faults, and what is wrong."""
    say_line(_headline(found))
    say()
    for entry in found["entries"]:
        say_line(_entry(entry, found["combo"]))
    for faults, cases in _groups(found["cases"]):
        say()
        for line in wrap(", ".join(faults), WIDTH, break_on_hyphens=False):
            say_line(line)
        _show_group(cases)
    say()
    _show_end(found)


def _headline(found: dict[str, Any]) -> str:
    what = f"the combo {found['combo']} ({found['strategy']})" if found["combo"] else "one model"
    return f"{found['asked']}: {what}; {found['dialect']}, scripted providers, virtual time"


def _entry(entry: dict[str, Any], asked: str | None) -> str:
    inner = asked is not None and entry["combo"] != asked
    told = [
        shortened(entry["entry"]),
        "the judge" if entry["role"] == "judge" else "",
        f"of {entry['combo']}" if inner else "",
        f"listed {entry['times']} times, drilled as one" if entry["times"] > 1 else "",
        "" if entry["usable"] else "which nothing can be sent to",
    ]
    return f"  {entry['at']}  {', '.join(filter(None, told))}"


def _groups(cases: Iterable[Case]) -> Iterator[tuple[list[str], list[Case]]]:
    """Faults that look the same to a caller wherever they happen, and their cases."""
    by_fault: dict[str, list[Case]] = {}
    for case in cases:
        by_fault.setdefault(case["fault"], []).append(case)
    groups: dict[tuple[Cell, ...], list[str]] = {}
    for name, own in by_fault.items():
        groups.setdefault(tuple(map(_cell, own)), []).append(name)
    for names in groups.values():
        yield names, [case for name in names for case in by_fault[name]]


def _cell(case: Case) -> Cell:
    return Cell(case["at"], case["stream"], _sees(case), case["rule"] or "")


def _sees(case: Case) -> str:
    if case["wrong"]:
        return f"FAILS: {_WRONG[case['wrong']]}"
    if not case["reached"]:
        return "its turn does not come"
    match case["came"]:
        case "whole answer" if case["role"] or case["served"] == "":
            return "a whole answer"
        case "whole answer" if case["entry"] in (None, case["served"]):
            return "its own whole answer"
        case "whole answer":
            return "another's whole answer"
        case "error":
            return "an error"
        case "caller gone":
            return "nothing: it has left"
    return str(f"an {case['came']}")


_WRONG = {
    "cut": "a cut answer as if whole",
    "hang": "it waits without end",
    "lost": "lost for no reason",
}
_COLUMNS = ("at", "request", "the caller sees", "waits", "cost")


def _show_group(cases: Sequence[Case]) -> None:
    rows: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        rows.setdefault((_sees(case), case["rule"] or ""), []).append(case)
    lines: list[tuple[str, ...]] = []
    rules: list[str] = []
    for (sees, rule), own in rows.items():
        for where, how, part in _placed(own):
            mark = f" [{rules.index(rule) + 1}]" if rule in rules else ""
            if rule and not mark:
                rules.append(rule)
                mark = f" [{len(rules)}]"
            lines.append((where, how, f"{sees}{_statuses(part)}{mark}", _waits(part), _cost(part)))
    for line in aligned(_COLUMNS, lines).splitlines():
        say_line(f"  {line}")
    for number, rule in enumerate(rules, 1):
        say_line(f"  [{number}] by rule: {rule}")


def _placed(cases: Sequence[Case]) -> Iterator[tuple[str, str, list[Case]]]:
    """Cases of one row by where they happen; whole and streamed together where they agree."""
    places: dict[bool, list[int | None]] = {False: [], True: []}
    for case in cases:
        if case["at"] not in places[case["stream"]]:
            places[case["stream"]].append(case["at"])
    if places[False] == places[True]:
        yield _listed(places[False]), "both", list(cases)
        return
    for stream, how in ((False, "whole"), (True, "streamed")):
        if places[stream]:
            own = [case for case in cases if case["stream"] is stream]
            yield _listed(places[stream]), how, own


def _listed(places: Sequence[int | None]) -> str:
    """`1-3, 5, all`."""
    runs: list[list[int]] = []
    for place in (each for each in places if each is not None):
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join([*told, *(["all"] if None in places else [])])


def _statuses(cases: Sequence[Case]) -> str:
    found = sorted({case["status"] for case in cases if case["came"] == "error"})
    if not found:
        return ""
    return f": {', '.join(map(str, found))}" if len(found) <= 3 else f": {found[0]}-{found[-1]}"


def _waits(cases: Sequence[Case]) -> str:
    waits = [_wait(case) for case in cases]
    low, high = f"{min(waits):.3g}", f"{max(waits):.3g}"
    return f"{high} s" if low == high else f"{low}-{high} s"


def _wait(case: Case) -> float:
    """Seconds to the first byte of an answer, or to an error."""
    answered = case["came"] in ("whole answer", "empty answer")
    return float(case["first_byte"] if answered else case["seconds"])


def _cost(cases: Sequence[Case]) -> str:
    known = [case["cost"] for case in cases if case["cost"] is not None]
    if not known:
        return "-"
    return f"${max(known):.6f}" if max(known) else "$0"


def _show_end(found: dict[str, Any]) -> None:
    cases = found["cases"]
    faults = len({case["fault"] for case in cases})
    told = f"{count(len(cases), 'case')}: {count(faults, 'fault')} at each entry and at all"
    if found["passed"]:
        say_line(f"{told}, whole and streamed.")
        say_line("No cut answer passes for whole, nobody waits for ever, all losses are by rule.")
        return
    say_line(f"{told}; {found['failed']} FAILED:")
    for case in [case for case in cases if case["wrong"]][:_SHOWN]:
        where = f"{case['at']} ({case['entry']})" if case["entry"] else "all"
        how = "streamed" if case["stream"] else "whole"
        told = f"{case['fault']} at {where}, {how}: {case['told']}"
        for line in wrap(told, WIDTH, initial_indent="  ", subsequent_indent="    "):
            say_line(line)
        say_line(f"    {case['step']}")
    if found["failed"] > _SHOWN:
        say_line(f"  and {found['failed'] - _SHOWN} more; --json has them all")
