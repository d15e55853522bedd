"""Everything that a krouter sends in a test, judged by what the strictest clients need.

A recorder stands between krouter and its server, so that it does not matter who the caller is: a
client library, a bare socket, one that hangs up. Each test's replies are judged at its end, and
again what came later when its krouter stops. A test that lets a provider's malformed bytes pass
says so with the marker `native_garbage` and why; what krouter itself has written is judged all the
same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from krouter.route import Attempt
from krouter.router import Router
from krouter.serve.whole import WHOLE
from tests.bodies_validator import BODIES, ERRORS
from tests.responses_validator import check_responses_stream
from tests.validators import Heard, check_chat_stream, check_gemini_stream, check_messages_stream

STREAMS: Mapping[str, Callable[[bytes], Heard]] = {
    "chat": check_chat_stream,
    "messages": check_messages_stream,
    "responses": check_responses_stream,
    "gemini": check_gemini_stream,
}
PATHS = {
    "/v1/chat/completions": "chat",
    "/chat/completions": "chat",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "count",
    "/v1/responses": "responses",
    "/responses": "responses",
    "/v1/embeddings": "embeddings",
}
GEMINI = re.compile(r"/v1(beta)?/models/.+:\w+")
WRITERS = ("litellm", "demo")
"""The lanes that write replies themselves; every other passes on what a provider sent."""
EVENT_END = re.compile(rb".*(?:\r\n|\n|\r)(?:\r\n|\n|\r)", re.DOTALL)


def dialect_of(path: str) -> str | None:
    """What is spoken at a path; None where no call is answered."""
    path = path.replace("/v1/v1", "/v1", 1)
    return "gemini" if GEMINI.fullmatch(path) else PATHS.get(path)


@dataclass
class Emitted:
    """One reply; `finished` if krouter came to its end, `lanes` are those whose bytes are in it."""

    path: str
    excuse: str | None = None
    status: int = 0
    kind: str = ""
    body: bytes = b""
    finished: bool = False
    lanes: frozenset[str] = frozenset()

    def check(self) -> None:
        """Raises AssertionError for what a strict client would stumble over."""
        dialect = dialect_of(self.path)
        if dialect is None or not self.status or (self.excuse and self._is_passed_on()):
            return
        try:
            self._check(dialect)
        except Exception as error:
            told = self.body.decode("utf-8", "backslashreplace")
            lanes = ", ".join(self.lanes) or "no lane"
            raise AssertionError(
                f"krouter sent from {self.path} with status {self.status} through {lanes} "
                f"what a strict client cannot read: {error!r}\n{told[-6000:]}"
            ) from error

    def _is_passed_on(self) -> bool:
        """Whether it is a provider's own bytes."""
        return bool(self.lanes) and self.lanes.isdisjoint(WRITERS)

    def _check(self, dialect: str) -> None:
        if self.kind.startswith("text/event-stream"):
            whole = self.body if self.finished else whole_events(self.body)
            heard = STREAMS[dialect](whole)
            assert heard.ending != "open" or not self.finished, "a stream has an end"
        elif self.finished:
            assert self.kind.startswith("application/json")
            checks = BODIES if 200 <= self.status < 300 else ERRORS
            checks[dialect](json.loads(self.body))


def judge(reply: httpx.Response) -> httpx.Response:
    """The same reply, of a krouter in another process. Raises AssertionError."""
    kind = reply.headers["content-type"].lower()
    path, status = reply.request.url.path, reply.status_code
    Emitted(path, None, status, kind, reply.content, finished=True).check()
    return reply


def check_chunks(chunks: Iterable[Any]) -> Heard:
    """What a client hears in the chunks that `krouter.completion` gives, which are LiteLLM's.
    Raises AssertionError for what a strict client of chat would stumble over."""
    events = [b"data: %s\n\n" % json.dumps(_as_chat(chunk)).encode() for chunk in chunks]
    heard = check_chat_stream(b"".join(events) + b"data: [DONE]\n\n")
    assert heard.ending == "complete"
    return heard


def _as_chat(chunk: Any) -> Any:
    """Without what LiteLLM's classes add to every piece of a call."""
    data = chunk.model_dump()
    for choice in data["choices"]:
        for call in choice["delta"].get("tool_calls") or ():
            function = call["function"]
            if call.get("id") is None and function.get("name") is None:
                index = call["index"]
                call.clear()
                call |= {"index": index, "function": {"arguments": function["arguments"]}}
    return data


def whole_events(raw: bytes) -> bytes:
    """Without the event that the end of the connection has cut."""
    found = EVENT_END.match(raw)
    return found[0] if found else b""


class Journal:
    """What was sent and not yet judged. `excuse` is why the running test lets malformed bytes of a
    provider's pass; None where it does not."""

    def __init__(self) -> None:
        self.excuse: str | None = None
        self._over: list[Emitted] = []

    def add(self, reply: Emitted) -> None:
        self._over.append(reply)

    def clear(self) -> None:
        self._over = []

    def check(self) -> None:
        """Judges each reply once. Raises AssertionError."""
        over, self._over = self._over, []
        for reply in over:
            reply.check()


JOURNAL = Journal()
"""Of this process."""


class Recorder:
    """An ASGI app that keeps what another sends."""

    def __init__(self, app: Any, router: Callable[[], Router]) -> None:
        self._app = app
        self._router = router
        self.under_way = 0
        """Replies that are not in the journal yet."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        reply = Emitted(scope["path"], JOURNAL.excuse)
        pieces: list[bytes] = []
        route = ""

        def note(message: Any) -> None:
            nonlocal route
            if message["type"] == "http.response.start":
                headers = {name.lower(): value.decode() for name, value in message["headers"]}
                reply.status = message["status"]
                reply.kind = headers.get(b"content-type", "").lower()
                route = headers.get(b"x-krouter-route", "")
            else:
                pieces.append(message.get("body", b""))
                reply.finished = not message.get("more_body", False)

        async def noting(message: Any) -> None:
            note(message)
            await send(message)

        def noting_whole(status: int, headers: Any, body: bytes) -> bool:
            if not whole(status, headers, body):
                return False
            note({"type": "http.response.start", "status": status, "headers": headers})
            note({"type": "http.response.body", "body": body})
            return True

        if whole := scope.pop(WHOLE, None):
            scope[WHOLE] = noting_whole
        self.under_way += 1
        try:
            await self._app(scope, receive, noting)
        finally:
            reply.body = b"".join(pieces)
            reply.lanes = self._lanes(route)
            JOURNAL.add(reply)
            self.under_way -= 1

    def _lanes(self, route: str) -> frozenset[str]:
        """Whose bytes went to the caller."""
        attempts: list[Attempt] = next(
            (each.attempts for each in reversed(self._router().routes) if each.id == route), []
        )
        told = [each for each in attempts if each.seen] or attempts[-1:]
        return frozenset(each.lane for each in told)
