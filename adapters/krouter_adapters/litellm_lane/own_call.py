"""LiteLLM's own call, for a provider that wants several requests for one answer.

LiteLLM runs it on an event loop of its own, where it may block, and reaches the provider only over
krouter's wire. Left alone it sends to the provider's usual address whatever it is told, sends the
key to any address that a reply names, asks again for ever where a provider refuses, and takes a
prediction that was canceled for a finished one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from krouter.body import dump
from krouter.dialects.chat import DONE
from krouter.errors import Fault
from krouter.sse import encode
from krouter.wire import Headers, Incoming, ReplyBody, Wire, WireError
from krouter_adapters.litellm_lane.replicate import MODEL, Prediction, Refused
from krouter_adapters.litellm_lane.reply import MOST_REPLY, SSE

MOST_MISSED = 3
"""So many times in a row may the provider fail to say how a running prediction does."""

# What keeps LiteLLM from doing more than to ask once.
_GUARDS: Mapping[str, Any] = {
    "stream": True,  # else it gives up on a prediction after half a minute
    "num_retries": 0,
    "max_retries": 0,
    "caching": False,
    "drop_params": True,
    "no-log": True,
}

_LINE: ContextVar[Line] = ContextVar("line")
_parting: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Ask:
    """What LiteLLM is asked. `key` must not be empty: one of the environment would be taken."""

    name: str
    base: str
    key: str
    prompt: str
    params: Mapping[str, Any]

    def fields(self) -> dict[str, Any]:
        return {
            **self.params,
            **_GUARDS,
            "model": f"{self.name}/{MODEL}",
            "messages": [{"role": "user", "content": self.prompt}],
            "api_key": self.key,
            "api_base": self.base,
        }


class Calls:
    """LiteLLM's calls, on a loop of their own.

    `handler` gives the HTTP handler that LiteLLM keeps for the running loop, `client` makes an HTTP
    client of a transport, `response` what a transport answers with.
    """

    def __init__(
        self,
        acompletion: Callable[..., Awaitable[Any]],
        handler: Callable[[], Any],
        client: Callable[[Any], Any],
        response: Callable[..., Any],
    ) -> None:
        self._acompletion = acompletion
        self._handler = handler
        self._client = client(_Through(response))
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, ask: Ask, line: Line) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self._run(ask, line), self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="litellm-calls", daemon=True).start()
            return self._loop

    async def _run(self, ask: Ask, line: Line) -> None:
        _LINE.set(line)
        try:
            self._handler().client = self._client
            async for chunk in await self._acompletion(**ask.fields()):
                if text := chunk.choices[0].delta.content:
                    line.hear(text)
        except Exception as error:
            line.hear(error)
        else:
            line.hear(None)


class _Through:
    """LiteLLM's transport: every request goes over the line of the call that it belongs to."""

    def __init__(self, response: Callable[..., Any]) -> None:
        self._response = response

    async def handle_async_request(self, request: Any) -> Any:
        line = _LINE.get()
        body = await request.aread()
        asked = asyncio.run_coroutine_threadsafe(line.fetch(request.method, body), line.loop)
        status, raw = await asyncio.wrap_future(asked)
        return self._response(status, content=raw, request=request)

    async def aclose(self) -> None: ...


class Line:
    """One call, on krouter's loop: its requests go out here, and what LiteLLM reads of the replies
    comes back."""

    def __init__(self, calls: Calls, prediction: Prediction, wire: Wire, connect: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.prediction = prediction
        self._calls = calls
        self._wire = wire
        self._connect = connect
        self._heard: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        self._trouble: Exception | None = None
        self._missed = 0
        self._fetching: asyncio.Task[Any] | None = None
        self._asked: Future[None] | None = None
        self._closed = False

    async def texts(self, ask: Ask) -> AsyncIterator[str]:
        """What the provider says, piece by piece. Raises Refused and WireError."""
        self._asked = self._calls.start(ask, self)
        while isinstance(heard := await self._heard.get(), str):
            yield heard
        if self._trouble is not None:
            raise self._trouble
        if heard is not None:
            raise WireError(Fault.GARBAGE, f"LiteLLM failed with {type(heard).__name__}")
        if not self.prediction.succeeded:
            raise WireError(Fault.CUT, "LiteLLM stopped before the provider was done")

    def hear(self, what: str | Exception | None) -> None:
        """From LiteLLM's loop: a piece of text, or how the call ended."""
        with contextlib.suppress(RuntimeError):  # krouter's loop has ended
            self.loop.call_soon_threadsafe(self._heard.put_nowait, what)

    async def fetch(self, method: str, body: bytes) -> tuple[int, bytes]:
        """One of LiteLLM's requests. What goes wrong is kept, whatever LiteLLM makes of it."""
        if self._closed:
            raise asyncio.CancelledError
        self._fetching = asyncio.current_task()
        try:
            reply = await self._wire.send(self.prediction.request(method, body), self._connect)
            try:
                raw = await reply.read(MOST_REPLY)
            finally:
                reply.close()
            self._judge(method, reply, raw)
        except Exception as error:
            self._trouble = error
            raise
        finally:
            self._fetching = None
        return reply.status, raw

    def _judge(self, method: str, reply: Incoming, raw: bytes) -> None:
        if 200 <= reply.status < 300:
            self._missed = 0
            self.prediction.read(raw)
            return
        self._missed += 1
        passing = reply.status == 429 or reply.status >= 500
        if method == "POST" or not passing or self._missed > MOST_MISSED:
            raise Refused(reply.status, reply.headers, raw)

    def close(self) -> None:
        """Hangs up, stops asking, and tells the provider so."""
        if self._closed:
            return
        self._closed = True
        if self._asked is not None:
            self._asked.cancel()
        if self.loop.is_closed():
            return
        if self._fetching is not None:
            self._fetching.cancel()
        if self.prediction.running:
            task = self.loop.create_task(self._cancel())
            _parting.add(task)
            task.add_done_callback(_parting.discard)

    async def _cancel(self) -> None:
        with contextlib.suppress(Exception):
            request = self.prediction.cancellation()
            (await self._wire.send(request, self._connect)).close()


async def called(line: Line, ask: Ask, model: str, *, stream: bool) -> Incoming:
    """The reply, in chat form. A refusal before the first text is a reply as it came."""
    texts = line.texts(ask)
    try:
        if not stream:
            text = "".join([piece async for piece in texts])
            return _Ready(200, _JSON, dump(_whole(line.prediction, model, text)))
        first = await anext(texts, None)
        return _Told(line, texts, first, model)
    except Refused as refused:
        line.close()
        return _Ready(refused.status, refused.headers, refused.raw)
    except BaseException:
        line.close()
        raise


_JSON: Headers = [("content-type", "application/json")]
_SSE: Headers = [("content-type", SSE)]


class _Ready:
    """A reply that is there already."""

    def __init__(self, status: int, headers: Headers, raw: bytes) -> None:
        self.status = status
        self.headers = headers
        self.dropped: tuple[str, ...] = ()
        self._raw = raw

    async def chunk(self) -> bytes:
        raw, self._raw = self._raw, b""
        return raw

    async def read(self, limit: int) -> bytes:
        return await self.chunk()

    def ending(self) -> bytes:
        return b""

    def close(self) -> None: ...


class _Told(ReplyBody):
    """A stream of chat chunks, made of the pieces of text. It ends properly only where the provider
    said that it was done, and had said something."""

    def __init__(
        self, line: Line, texts: AsyncIterator[str], first: str | None, model: str
    ) -> None:
        self.status = 200
        self.headers = _SSE
        self.dropped: tuple[str, ...] = ()
        self._line = line
        self._pieces = self._said(texts, first, model)

    async def _said(
        self, texts: AsyncIterator[str], first: str | None, model: str
    ) -> AsyncIterator[bytes]:
        if first is None:
            return
        outer = _outer(self._line.prediction, model, "chat.completion.chunk")
        yield _chunk(outer, {"role": "assistant", "content": first})
        try:
            async for text in texts:
                yield _chunk(outer, {"content": text})
        except Refused as refused:
            yield encode(dump({"error": refused.error()}))
            return
        usage = self._line.prediction.usage()
        told = encode(dump({**outer, "choices": [], "usage": usage})) if usage else b""
        yield _chunk(outer, {}, "stop") + told + DONE

    async def chunk(self) -> bytes:
        return await anext(self._pieces, b"")

    def close(self) -> None:
        self._line.close()


def _outer(prediction: Prediction, model: str, kind: str) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{prediction.id}", "object": kind, "created": int(time.time())}
    return {**head, "model": model}


def _chunk(outer: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return encode(dump({**outer, "choices": [choice]}))


def _whole(prediction: Prediction, model: str, text: str) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": None,
        "finish_reason": "stop" if text else None,
    }
    usage = prediction.usage()
    reply = {**_outer(prediction, model, "chat.completion"), "choices": [choice]}
    return {**reply, "usage": usage} if usage else reply
