"""One client against one krouter, case by case."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.clients.cases import CASES, HEALTHY, LANES, combo_name, write_home
from tests.clients.clients import Client, Place, Start
from tests.clients.door import Door, Visit
from tests.clients.install import ROOT
from tests.clients.processes import end, isolated
from tests.upstream import Behaviour, Request, Upstream, parse
from tests.upstream.book import Step

SECONDS = 180
"""How long one run may take."""
LEAST = 2
"""No client can ask for a tool and be told its result in fewer requests."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: `wrong` is empty where the answer held the proof."""

    wrong: str
    printed: str


def run_client(client: Client, keep: Path) -> Iterator[tuple[str, list[str]]]:
    """The cells of each lane. What clients and krouter print goes to files in `keep`."""
    keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="clients-") as folder, Upstream() as upstream:
        home = Path(folder) / "krouter"
        write_home(home, client.dialect, upstream.url)
        key = make_key(home)
        with serving(home, keep / "krouter.log") as served, Door(served.url) as door:
            for lane in LANES:
                cells = []
                for case in CASES:
                    name = combo_name(lane, case)
                    place = make_place(Path(folder), name, door.url, key)
                    door.clear()
                    outcome = run_case(client, lane, case, place, upstream)
                    served.check()
                    visits = list(door.visits)
                    told = "\n".join(map(str, visits))
                    (keep / f"{name}.log").write_text(f"{outcome.printed}\n--- requests\n{told}\n")
                    cells.append(cell(outcome, client.count(visits), client.requests))
                yield lane, cells


def cell(outcome: Outcome, visits: Sequence[Visit], needed: int) -> str:
    """What the table says of a run whose task needs that many requests."""
    if outcome.wrong:
        return outcome.wrong
    if failed := [str(visit) for visit in visits if visit.failed]:
        return failed[0]
    if len(visits) != needed or needed < LEAST:
        return f"{len(visits)} requests instead of {max(needed, LEAST)}"
    return f"ok ({len(visits)})"


def run_case(client: Client, lane: str, case: str, place: Place, upstream: Upstream) -> Outcome:
    name = combo_name(lane, case)
    proof = f"proof-{secrets.token_hex(8)}"
    place.proof.write_text(proof + "\n")
    model, fault = client.model(place), CASES[case].fault
    upstream.script(HEALTHY, [model])
    if fault:
        step = Turncoat(model, proof, parse(fault)) if CASES[case].changes else fault
        upstream.script(name, [step])
    start = client.start(place)
    code, printed, errors = run_command(start, place)
    told = f"exit code {code}\n--- stdout\n{printed}\n--- stderr\n{errors}"
    if code is None:
        return Outcome(f"not done after {SECONDS} s", told)
    if code:
        return Outcome(f"exit code {code}", told)
    if fault and not any(request.model == name for request in upstream.requests):
        return Outcome("the first entry was not asked", told)
    try:
        answer = start.answer(printed)
    except Exception as error:
        return Outcome(f"its answer cannot be read: {type(error).__name__}", told)
    if proof not in answer:
        return Outcome("answer without the proof", told)
    return Outcome("", told)


def make_place(folder: Path, name: str, url: str, key: str) -> Place:
    place = Place(url, key, name, folder / f"{name}-home", folder / f"{name}-work")
    place.home.mkdir()
    place.work.mkdir()
    return place


@dataclass(frozen=True, slots=True)
class Turncoat:
    """A step of a script: thinks aloud and answers well until it is told the proof."""

    model: Step
    proof: str
    fault: Behaviour

    def __call__(self, request: Request) -> Behaviour:
        if self.proof.encode() in request.body:
            return self.fault
        answer = self.model(request) if callable(self.model) else self.model
        return replace(answer, thinking="with")


def client_env(start: Start, place: Place) -> dict[str, str]:
    """Nothing of the machine's own keys and settings."""
    own = {"PATH": os.environ["PATH"], "HOME": str(place.home)}
    return {**own, "LANG": "C.UTF-8", "TERM": "dumb", **start.env}


def run_command(start: Start, place: Place) -> tuple[int | None, str, str]:
    """Exit code, or none for a client that was ended, and what it printed."""
    out, err = place.home.parent / "stdout", place.home.parent / "stderr"
    with out.open("w") as printed, err.open("w") as errors:
        process = subprocess.Popen(
            isolated(start.command),
            cwd=place.work,
            env=client_env(start, place),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, out.read_text(errors="replace"), err.read_text(errors="replace")


def krouter(*words: str) -> list[str]:
    return [sys.executable, "-m", "krouter", *words]


def krouter_env() -> dict[str, str]:
    path = f"{ROOT}:{ROOT / 'adapters'}"
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "FAKE_PROVIDER_KEY": "fake"}


def make_key(home: Path) -> str:
    """A key that krouter now demands of its callers."""
    command = krouter("keys", "add", "client", "--home", str(home))
    done = subprocess.run(command, env=krouter_env(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Served:
    """A krouter that serves at `url`."""

    url: str
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raises RuntimeError once it has ended: what a client then does tells nothing of it."""
        if (code := self.process.poll()) is not None:
            raise RuntimeError(f"krouter has ended under the client, with exit code {code}")


@contextmanager
def serving(home: Path, log: Path) -> Iterator[Served]:
    """`krouter serve` at a free port."""
    command = krouter("serve", "--log", "--port", "0", "--home", str(home))
    with (
        log.open("w") as written,
        subprocess.Popen(
            command, env=krouter_env(), stdout=written, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield Served(wait_for_url(process, log), process)
        finally:
            end(process)


def wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(SECONDS * 10):
        if found := re.search(r"serves (http://\S+)", log.read_text()):
            return found[1]
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            break
    raise RuntimeError(f"krouter did not start:\n{log.read_text()}")
