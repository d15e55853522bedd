"""What the test and the server share: requests received, scripts, gates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event
from typing import Any

from tests.upstream.gemini import model_of
from tests.upstream.script import Behaviour, parse


@dataclass(eq=False, slots=True)
class Request:
    """One request as it came, and how it ended. Times are `time.monotonic()`."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    header: dict[str, str]
    body: bytes
    json: Any
    credential: str | None
    behaviour: Behaviour = field(default_factory=Behaviour)
    time: float = field(default_factory=time.monotonic)
    closed: Event = field(default_factory=Event)
    closed_at: float | None = None
    completed: Event = field(default_factory=Event)
    completed_at: float | None = None

    @property
    def model(self) -> str:
        named = model_of(self.path)
        return named or (str(self.json.get("model", "")) if isinstance(self.json, dict) else "")

    def close(self) -> None:
        """The peer went before the reply was complete."""
        self.closed_at = time.monotonic()
        self.closed.set()

    def complete(self) -> None:
        """The whole reply, with a proper HTTP end, is in the peer's hands or its kernel's."""
        self.completed_at = time.monotonic()
        self.completed.set()


Step = Behaviour | Callable[[Request], Behaviour]
"""What one request gets, or who decides that by what it holds."""


class Gate:
    """Holds replies until it is opened; `reached` is set once a reply waits or has passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reached = Event()
        self._loop = loop
        self._opened = asyncio.Event()

    def open(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._opened.set)

    async def passed(self) -> None:
        self.reached.set()
        await self._opened.wait()


class Book:
    """Requests, scripts and gates, safe to use from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = Condition()
        self._requests: list[Request] = []
        self._scripts: dict[tuple[str, str | None], list[Step]] = {}
        self._gates: dict[str, Gate] = {}
        self._serial = 0

    def requests(self) -> list[Request]:
        with self._changed:
            return list(self._requests)

    def add(self, request: Request) -> int:
        """Records a request; returns its serial number, from 1."""
        with self._changed:
            self._requests.append(request)
            self._serial += 1
            self._changed.notify_all()
            return self._serial

    def wait(self, count: int, timeout: float) -> list[Request]:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._requests) >= count, timeout):
                raise TimeoutError(f"{len(self._requests)} of {count} requests came")
            return list(self._requests)

    def script(self, model: str, behaviours: Sequence[str | Step], key: str | None = None) -> None:
        steps = [parse(step) if isinstance(step, str) else step for step in behaviours]
        if not steps:
            raise ValueError("a script needs at least one behaviour")
        with self._changed:
            self._scripts[model, key] = steps

    def next_step(self, model: str, key: str | None) -> Step | None:
        """The next behaviour of the closest script; its last one repeats."""
        with self._changed:
            for name in ((model, key), (model, None), ("*", key), ("*", None)):
                if steps := self._scripts.get(name):
                    return steps.pop(0) if len(steps) > 1 else steps[0]
        return None

    def gate(self, name: str) -> Gate:
        with self._changed:
            if name not in self._gates:
                self._gates[name] = Gate(self._loop)
            return self._gates[name]

    def clear(self) -> None:
        """Forgets requests and scripts, opens and forgets gates."""
        with self._changed:
            self._requests.clear()
            self._scripts.clear()
            for gate in self._gates.values():
                gate.open()
            self._gates.clear()
