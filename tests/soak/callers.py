"""Callers of every dialect, on bare sockets, who look closely at what they get."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.bodies_validator import BODIES, ERRORS
from tests.emitted import STREAMS
from tests.soak.provider import NONCE, answer_to

PATIENCE = 120.0
"""Seconds after which a caller has been left hanging."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request. Whoever `leaves` hangs up once the first bytes of the reply have come."""

    nonce: str
    dialect: str
    model: str
    stream: bool
    leaves: bool = False

    @property
    def path(self) -> str:
        if self.dialect == "gemini":
            method = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
            return f"/v1beta/models/{self.model}:{method}"
        named = {"chat": "chat/completions", "messages": "messages", "responses": "responses"}
        return f"/v1/{named[self.dialect]}"

    @property
    def body(self) -> dict[str, Any]:
        said = f"Repeat {self.nonce}."
        if self.dialect == "gemini":
            return {"contents": [{"role": "user", "parts": [{"text": said}]}]}
        asked: dict[str, Any] = {"model": self.model, "stream": self.stream}
        if self.dialect == "responses":
            return {**asked, "input": said}
        return {**asked, "max_tokens": 99, "messages": [{"role": "user", "content": said}]}

    @property
    def raw(self) -> bytes:
        body = json.dumps(self.body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@dataclass(slots=True)
class Heard:
    """What came back, `whole` as HTTP has it."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False


def questions(
    dice: random.Random, count: int, models: Sequence[str], **given: Any
) -> list[Question]:
    """Of every dialect, streamed and not, unless `given` says otherwise."""
    made = []
    for _ in range(count):
        fields = {
            "nonce": f"nonce-{dice.getrandbits(64):016x}",
            "dialect": dice.choice(list(STREAMS)),
            "model": dice.choice(models),
            "stream": dice.random() < 0.6,
            "leaves": dice.random() < 0.05,
        }
        made.append(Question(**{**fields, **given}))
    return made


async def ask(url: str, question: Question, begun: Callable[[], object] = bool) -> Heard:
    """`begun` is called as soon as the reply has. Raises TimeoutError for a caller left hanging."""
    place = urlsplit(url)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            writer.write(question.raw)
            raw = await reader.read(1 << 16)
            begun()
            if question.leaves:
                return Heard()
            while piece := await reader.read(1 << 16):
                raw += piece
        finally:
            writer.transport.abort()
    return read(raw)


def read(raw: bytes) -> Heard:
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    heard = Heard(int(first.split()[1]), headers)
    if headers.get("transfer-encoding") != "chunked":
        heard.body, heard.whole = rest, len(rest) == int(headers["content-length"])
        return heard
    parts = []
    while rest and not heard.whole:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        parts.append(rest[:length])
        heard.whole = length == 0 and rest == b"\r\n"
        rest = rest[length + 2 :]
    heard.body = b"".join(parts)
    return heard


def judged(question: Question, heard: Heard, met: Iterable[str]) -> str:
    """Which of the two each caller is owed it got: a whole answer, or one clear error. Raises
    AssertionError for all else."""
    if question.leaves:
        return "left"
    assert heard.whole, "the connection was cut"
    nonces = set(NONCE.findall(heard.body))
    assert nonces <= {question.nonce.encode()}, "another caller's answer"
    ways = list(met)
    odd = any(way.startswith(("empty", "no=")) for way in ways)
    hollow = any("empty" in way for way in ways)
    if heard.status >= 400:
        assert "Traceback" not in heard.body.decode()
        ERRORS[question.dialect](json.loads(heard.body))
        return "error"
    try:
        told = stream if question.stream else body
        return told(question, heard.body, hollow)
    except (AssertionError, LookupError, TypeError, ValueError):
        if not odd:  # what a provider leaves out krouter does not invent
            raise
    assert hollow or is_answer(question, heard.body), "half an answer"
    return "answered"


def is_answer(question: Question, raw: bytes) -> bool:
    """Whether all of the text is there, in however many pieces."""
    return b"".join(NONCE.findall(raw)) != b"" or question.nonce[-4:].encode() in raw


def stream(question: Question, raw: bytes, hollow: bool) -> str:
    told = STREAMS[question.dialect](raw)
    assert told.ending != "open", "a stream without an end"
    if told.ending == "error":
        return "error"
    assert told.text == answer_to(question.nonce) or (hollow and not told.text), "half an answer"
    return "answered"


def body(question: Question, raw: bytes, hollow: bool) -> str:
    BODIES[question.dialect](json.loads(raw))
    assert hollow or answer_to(question.nonce).encode() in raw, "half an answer"
    return "answered"


@dataclass
class Outcome:
    """What became of all. `wrong` is empty unless somebody did not get what it is owed."""

    counts: Counter[str] = field(default_factory=Counter)
    routes: set[str] = field(default_factory=set)
    """Of whom got their reply whole."""
    wrong: list[str] = field(default_factory=list)


async def ask_all(
    url: str,
    asked: Sequence[Question],
    met: Callable[[str], Iterable[str]],
    *,
    at_once: int,
    begun: Callable[[], object] = bool,
) -> Outcome:
    """All questions, so many at a time."""
    outcome, left = Outcome(), iter(asked)

    async def one(question: Question) -> None:
        heard = Heard()
        try:
            heard = await ask(url, question, begun)
            outcome.counts[judged(question, heard, met(question.nonce))] += 1
            if route := heard.headers.get("x-krouter-route"):
                outcome.routes.add(route)
        except Exception as error:
            told = f"{error!r}: {question} after {list(met(question.nonce))} got {heard}"
            outcome.wrong.append(told[:3000])

    async def worker() -> None:
        for question in left:
            await one(question)

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return outcome
