"""What a call from Python costs, beside LiteLLM's own: `make bench`.

Both talk to the same fast provider on loopback. A figure is the CPU time of the whole process, all
threads, divided by the calls: the least of several rounds, in milliseconds. Exit status 1 when
krouter needs more than half of what LiteLLM needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

LIMIT = 0.5
ROUNDS = 5
MESSAGES = [{"role": "user", "content": "Say hello."}]
CHUNKS = 100
CALLS = {"json": 200, "stream": 20}
AT_ONCE = 4

HEAD = {"id": "chatcmpl-1", "created": 1, "model": "fast"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 100, "total_tokens": 109}


def whole() -> bytes:
    message = {"role": "assistant", "content": "Hello, and welcome.", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    told = {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    return json.dumps(told).encode()


def events() -> list[bytes]:
    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        told = {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}
        return b"data: " + json.dumps(told).encode() + b"\n\n"

    words = [event({"content": f"word{number} "}) for number in range(CHUNKS)]
    return [event({"role": "assistant", "content": ""}), *words, event({}, "stop")]


class Provider(asyncio.Protocol):
    """Answers every request on its connection: at once, or with one event a turn of the loop."""

    def __init__(self, body: bytes, pieces: list[bytes]) -> None:
        kind = b"HTTP/1.1 200 OK\r\ncontent-type: "
        length = str(len(body)).encode()
        self._whole = kind + b"application/json\r\ncontent-length: " + length + b"\r\n\r\n" + body
        self._head = kind + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._pieces = [b"%x\r\n%b\r\n" % (len(p), p) for p in (*pieces, b"data: [DONE]\n\n")]
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(rest) < int(fields[b"content-length"]):
            return
        self._buffer = b""
        if json.loads(rest).get("stream"):
            self._task = asyncio.ensure_future(self._stream())
        else:
            self._transport.write(self._whole)

    async def _stream(self) -> None:
        self._transport.write(self._head)
        for piece in self._pieces:
            await asyncio.sleep(0.0002)
            self._transport.write(piece)
        self._transport.write(b"0\r\n\r\n")


async def provide() -> None:
    """Listens until killed; prints its port."""
    body, pieces = whole(), events()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(body, pieces), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


Call = Callable[..., Awaitable[Any]]


def krouter_call(port: str) -> Call:
    from krouter import Router

    settings = {"provider": {"fast": {"base_url": f"http://127.0.0.1:{port}/v1"}}}
    router = Router(combos={"bench": {"models": ["fast/fast"]}}, settings=settings, env={})

    async def call(**arguments: Any) -> Any:
        return await router.acompletion("bench", MESSAGES, **arguments)

    return call


def litellm_call(port: str) -> Call:
    os.environ.update(LITELLM_OFFLINE_MODE="true", LITELLM_LOCAL_MODEL_COST_MAP="True")
    import litellm

    base = f"http://127.0.0.1:{port}/v1"

    async def call(**arguments: Any) -> Any:
        return await litellm.acompletion(
            "hosted_vllm/fast",
            MESSAGES,
            api_base=base,
            api_key="none",
            max_retries=0,
            **arguments,
        )

    return call


async def one_json(call: Call) -> None:
    reply = await call()
    assert reply.choices[0].message.content == "Hello, and welcome."


async def one_stream(call: Call) -> None:
    texts = [
        chunk.choices[0].delta.content async for chunk in await call(stream=True) if chunk.choices
    ]
    assert len([text for text in texts if text]) == CHUNKS


async def measure(call: Call, kind: str) -> float:
    """Milliseconds of CPU a call."""
    one = one_json if kind == "json" else one_stream
    count = CALLS[kind]

    async def some() -> None:
        for _ in range(count // AT_ONCE):
            await one(call)

    await some()
    costs = []
    for _ in range(ROUNDS):
        began = time.process_time()
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        costs.append((time.process_time() - began) / count * 1000)
    return min(costs)


def measured(who: str, kind: str, port: str) -> float:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.sdk", who, kind, port]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    provider = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sdk", "provide"], stdout=subprocess.PIPE, text=True
    )
    assert provider.stdout is not None
    missed = 0
    try:
        port = provider.stdout.readline().strip()
        print(f"CPU a call, least of {ROUNDS} rounds, {AT_ONCE} calls at once")
        for kind in CALLS:
            ours, theirs = (measured(who, kind, port) for who in ("krouter", "litellm"))
            ratio = ours / theirs
            verdict = "ok" if ratio <= LIMIT else "MISSED"
            missed += ratio > LIMIT
            name = "acompletion" if kind == "json" else f"acompletion, stream of {CHUNKS} chunks"
            print(
                f"{name:36} krouter {ours:6.2f} ms   litellm {theirs:6.2f} ms"
                f"   ratio {ratio:.2f}   limit {LIMIT}   {verdict}"
            )
    finally:
        provider.kill()
        provider.wait()
        provider.stdout.close()
    return 1 if missed else 0


def run(arguments: list[str]) -> int:
    match arguments:
        case []:
            return main()
        case ["provide"]:
            asyncio.run(provide())
        case [who, kind, port]:
            call = krouter_call(port) if who == "krouter" else litellm_call(port)
            print(asyncio.run(measure(call, kind)))
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
