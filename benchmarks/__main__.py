"""krouter beside a bare forwarder and LiteLLM's proxy: `make bench`, `make bench-check`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report, sdk
from benchmarks.cells import GROUPS, NATIVE
from benchmarks.rounds import LAUNCH, Bench, Samples, available, compare, memories, say, starts
from benchmarks.servers import PROXY

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[1] / "docs/performance.md"
KINDS = (*dict.fromkeys(group.name for group in GROUPS), "start", "sdk", "memory")
CHECKED = ("cpu", "chunks", "start", "sdk")


class Mode(NamedTuple):
    """How many rounds, and the seconds of one visit."""

    rounds: int
    seconds: float


FULL, QUICK = Mode(7, 0.4), Mode(3, 0.3)


def measure(bench: Bench, mode: Mode, kinds: Sequence[str], names: set[str]) -> Samples:
    groups = [group for group in GROUPS if group.name in kinds]
    samples: Samples = compare(bench, groups, mode.rounds, names) if groups else {}
    if "start" in kinds:
        samples |= starts(bench, NATIVE, mode.rounds, names)
    if "sdk" in kinds:
        samples |= calls(bench, mode.rounds)
    if "memory" in kinds:
        samples |= memories(bench, NATIVE, names)
    return samples


def calls(bench: Bench, rounds: int) -> Samples:
    """From Python, each in a fresh process."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    figures = {"json": "1 kB", "stream": f"stream of {sdk.CHUNKS} chunks"}
    bench.set(sdk.CHUNKS, sdk.PACE)
    for number in range(rounds):
        for kind, told in figures.items():
            for who in sorted(("krouter", "litellm"), reverse=bool(number % 2)):
                cost = sdk.measured(who, kind, bench.direct.port)
                samples[f"SDK, {told}: CPU ms a call"][who].append(cost)
    say(f"{rounds} rounds of calls from Python")
    return samples


def described(mode: Mode, bench: Bench) -> dict[str, Any]:
    """The machine and the run."""
    return {
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("aiohttp", "litellm", "uvicorn", "uvloop")},
        "proxy": PROXY,
        "rounds": mode.rounds,
        "seconds": mode.seconds,
        "busiest": {name: round(share, 2) for name, share in bench.busiest.items()},
    }


def told(method: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in method["packages"].items())
    return (
        f"{method['when']} UTC; {method['machine']}; Python {method['python']}; {packages};"
        f" {method['proxy']}; {method['rounds']} rounds;"
        f" callers at most {method['busiest']['load']} of a core, provider"
        f" {method['busiest']['provider']}"
    )


def run(mode: Mode, kinds: Sequence[str], names: set[str]) -> dict[str, Any]:
    before = os.getloadavg()[0]
    with closing(Bench(mode.seconds)) as bench:
        figures = report.summed_up(measure(bench, mode, kinds, names))
        for figure in figures.values():
            figure["load"] = [round(each, 1) for each in (before, os.getloadavg()[0])]
        return {"method": described(mode, bench), "figures": figures}


def write(results: dict[str, Any]) -> None:
    """Figures that were not measured this time stay."""
    if RESULTS.exists():
        kept = json.loads(RESULTS.read_text())
        results["figures"] = kept["figures"] | results["figures"]
        busiest, before = results["method"]["busiest"], kept["method"]["busiest"]
        results["method"]["busiest"] = {name: max(busiest[name], before[name]) for name in busiest}
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    inner = f"{told(results['method'])}.\n\n{report.table(results['figures'])}"
    PAGE.write_text(report.put_between(PAGE.read_text(), inner))


def check(kinds: Sequence[str], names: set[str]) -> int:
    """A quick run against the committed ratios; what looks lost is measured again, in full."""
    committed = json.loads(RESULTS.read_text())["figures"]
    lost = list(report.losses(committed, run(QUICK, kinds, names)["figures"]))
    if lost:
        say("again, in full: " + "; ".join(map(str, lost)))
        again = sorted({report.kind_of(loss.figure) for loss in lost})
        lost = list(report.losses(committed, run(FULL, again, names)["figures"]))
    for loss in lost:
        print(f"LOST {loss}")
    if not lost:
        print(f"no ratio is more than {report.LOSS:g} times what is committed")
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, written nowhere")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is lost")
    parser.add_argument("--only", metavar="KIND,…", help=", ".join(KINDS))
    parser.add_argument("--servers", metavar="NAME,…", help=", ".join(LAUNCH))
    asked = parser.parse_args()
    names = available(asked.servers.split(",") if asked.servers else LAUNCH)
    if asked.check:
        return check(asked.only.split(",") if asked.only else CHECKED, names)
    most = KINDS[:-1] if asked.quick else KINDS
    for part in parts(asked.only.split(",") if asked.only else most):
        results = run(QUICK if asked.quick else FULL, part, names)
        print(told(results["method"]), report.table(results["figures"]), sep="\n\n", flush=True)
        if not (asked.quick or asked.servers):
            write(results)
    return 0


def parts(kinds: Sequence[str]) -> list[list[str]]:
    """What is measured and written together, so that a run that is cut short is not lost."""
    alone = [kind for kind in kinds if kind in ("start", "sdk", "memory")]
    together = [kind for kind in kinds if kind not in alone]
    return [part for part in (together, *([kind] for kind in alone)) if part]


if __name__ == "__main__":
    sys.exit(main())
