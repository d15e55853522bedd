"""Callers of every dialect, on bare sockets, who look closely at what they get."""

from __future__ import annotations

import asyncio
import json
import random
import re
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
    """One request. Whoever `leaves` hangs up once the first bytes of the reply have come; whoever
    `stays` asks the next over the same connection."""

    nonce: str
    dialect: str
    model: str
    stream: bool
    leaves: bool = False
    stays: bool = False

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
        then = "keep-alive" if self.stays else "close"
        head = f"POST {self.path} HTTP/1.1\r\nhost: localhost\r\nconnection: {then}\r\n"
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
            "stays": dice.random() < 0.5,
        }
        made.append(Question(**{**fields, **given}))
    return made


class Line:
    """A caller's connection, for as long as it stays."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._place = (place.hostname, place.port)
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: Question, begun: Callable[[], object] = bool) -> Heard:
        """`begun` is called as soon as the reply has. Raises TimeoutError for a caller left
        hanging."""
        stays = False
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = self._open or await asyncio.open_connection(*self._place)
                self._open = reader, writer
                writer.write(question.raw)
                raw = await reader.read(1 << 16)
                begun()
                if question.leaves:
                    return Heard()
                while not (question.stays and is_whole(raw)) and (
                    piece := await reader.read(1 << 16)
                ):
                    raw += piece
            heard = read(raw)
            stays = question.stays and heard.headers.get("connection") != "close"
            return heard
        finally:
            if not stays:
                self.end()

    def end(self) -> None:
        if self._open is not None:
            self._open[1].transport.abort()
            self._open = None


def is_whole(raw: bytes) -> bool:
    """Whether this is a reply to its end, and may be something behind it."""
    head, blank, rest = raw.partition(b"\r\n\r\n")
    if length := _LENGTH.search(head):
        return bool(blank) and len(rest) >= int(length[1])
    return rest.endswith(b"0\r\n\r\n")


_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


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
    """Which of the two each caller is owed it got: a whole answer, or one clear error; `unlucky` is
    who got one although its provider was sound, and not locked for what befell others. Raises
    AssertionError for all else."""
    if question.leaves:
        return "left"
    assert heard.whole, "the connection was cut"
    nonces = set(NONCE.findall(heard.body))
    assert nonces <= {question.nonce.encode()}, "another caller's answer"
    ways = list(met)
    odd = any(way.startswith(("empty", "no=")) for way in ways)
    hollow = any("empty" in way for way in ways)
    assert b"krouter failed with" not in heard.body, "a fault of krouter's own"
    if heard.status >= 400:
        ERRORS[question.dialect](json.loads(heard.body))
        return "error" if any(ways) or b"locked" in heard.body else "unlucky"
    try:
        told = stream if question.stream else body
        return told(question, heard.body, hollow, any(ways))
    except (AssertionError, LookupError, TypeError, ValueError):
        if not odd:  # what a provider leaves out krouter does not invent
            raise
    assert hollow or is_answer(question, heard.body), "half an answer"
    return "answered"


def is_answer(question: Question, raw: bytes) -> bool:
    """Whether all of the text is there, in however many pieces."""
    return b"".join(NONCE.findall(raw)) != b"" or question.nonce[-4:].encode() in raw


def stream(question: Question, raw: bytes, hollow: bool, befell: bool) -> str:
    told = STREAMS[question.dialect](raw)
    assert told.ending != "open", "a stream without an end"
    if told.ending == "error":
        return "error" if befell or b"locked" in raw else "unlucky"
    assert told.text == answer_to(question.nonce) or (hollow and not told.text), "half an answer"
    return "answered"


def body(question: Question, raw: bytes, hollow: bool, befell: bool) -> str:
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

    async def one(line: Line, question: Question) -> None:
        heard = Heard()
        try:
            heard = await line.ask(question, begun)
            outcome.counts[judged(question, heard, met(question.nonce))] += 1
            if route := heard.headers.get("x-krouter-route"):
                outcome.routes.add(route)
        except Exception as error:
            told = f"{error!r}: {question} after {list(met(question.nonce))} got {heard}"
            outcome.wrong.append(told[:3000])

    async def worker() -> None:
        line = Line(url)
        for question in left:
            await one(line, question)
        line.end()

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return outcome
