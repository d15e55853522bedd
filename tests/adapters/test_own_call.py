"""LiteLLM's own call, on real sockets: Replicate's predictions, created and then asked after."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY
from krouter_adapters.litellm_lane.own_call import Ask, Calls, Line, called
from krouter_adapters.litellm_lane.replicate import Prediction, prompt_of

from krouter.adapter import Target, Unsendable
from krouter.dialects.base import Kind, Usage
from krouter.errors import Fault
from krouter.providers import Provider
from krouter.wire import HttpWire, Incoming, WireError
from tests.adapters.lanes import LANE, SECRET, TOOLS, Got, ask, call, hurry, provider
from tests.adapters.test_litellm_lane import image
from tests.harness import Krouter
from tests.upstream import Upstream
from tests.upstream.book import Request

MODEL = "meta/llama"
dialects = pytest.mark.parametrize("dialect", ["chat", "messages"])
streams = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(autouse=True, scope="module")
def _hurried() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch.setattr)
        yield


@pytest.fixture(autouse=True)
def _clean(up: Upstream) -> None:
    up.clear()


def replicate(up: Upstream) -> Provider:
    return provider("replicate", f"{up.url}/v1")


def told(up: Upstream, dialect: str, stream: bool, *steps: str, **fields: Any) -> Got:
    up.script("*", steps)
    return ask(call(dialect, stream, **fields), replicate(up), MODEL)


def lines(up: Upstream) -> list[str]:
    return [f"{request.method} {request.path}" for request in up.requests]


def polls(up: Upstream, secret: str = SECRET) -> int:
    mine = [r for r in up.requests if r.header.get("authorization") == f"Token {secret}"]
    return sum(request.method == "GET" for request in mine)


@streams
@dialects
def test_a_prediction_is_an_answer(up: Upstream, dialect: str, stream: bool) -> None:
    steps = ("status=201", "finish=processing;text=All is", "text=All is well;usage=3,2")
    got = told(up, dialect, stream, *steps, tools=TOOLS[dialect], temperature=0.5)
    assert (got.status, got.dropped) == (200, ("tools",))
    if stream:
        assert got.tracker.complete
        assert (got.tracker.malformed, got.tracker.usage) == (0, Usage(3, 2))
        assert b"All is well" not in got.raw
        assert got.raw.index(b"All is") < got.raw.index(b" well")
    else:
        assert (got.reading.kind, got.reading.usage) == (Kind.ANSWER, Usage(3, 2))
        assert b"All is well" in got.raw
    poll = "GET /v1/predictions/p1"
    assert lines(up) == ["POST /v1/models/meta/llama/predictions", poll, poll]
    limit = {"max_new_tokens": 64} if dialect == "messages" else {}
    assert up.requests[0].json == {"input": {"prompt": "hello", "temperature": 0.5, **limit}}
    assert polls(up) == 2


@pytest.mark.parametrize(
    ("model", "path", "version"),
    [
        ("meta/llama", "/v1/models/meta/llama/predictions", None),
        ("deployments/me/mine", "/v1/deployments/me/mine/predictions", None),
        ("meta/llama:5c7d", "/v1/predictions", "5c7d"),
        ("ab" * 32, "/v1/predictions", "ab" * 32),
    ],
)
def test_where_a_model_is(up: Upstream, model: str, path: str, version: str | None) -> None:
    up.script("*", ["ok"])
    assert ask(call("chat"), replicate(up), model).status == 200
    assert up.requests[0].path == path
    assert up.requests[0].json.get("version") == version


@pytest.mark.parametrize("model", ["m", "a/../b", "../account/x", "a/b/c", "a/b?c", "a/b:c/d"])
def test_a_name_that_is_no_model_is_not_sent(up: Upstream, model: str) -> None:
    with pytest.raises(Unsendable, match="OWNER/NAME"):
        ask(call("chat"), replicate(up), model)
    assert up.requests == []


def test_what_is_put_in_and_what_is_named_as_lost(up: Upstream) -> None:
    up.script("*", ["ok"])
    fields = {"stop": ["x", "y"], "seed": 7, "top_p": 0.5, "max_completion_tokens": 9}
    asked = call(
        "chat",
        messages=image("data:image/png;base64,AAAA"),
        response_format={"type": "json_object"},
        num_retries=3,
        mock_response="LiteLLM's own option",
        **fields,
    )
    target = Target(replicate(up), MODEL, SECRET, params={"verbosity": "low"})
    got = asyncio.run(replied(asked, target))
    put = up.requests[0].json["input"]
    put.pop("prompt")
    sent = {"stop_sequences": "x,y", "seed": 7, "top_p": 0.5, "max_new_tokens": 9}
    assert put == {**sent, "verbosity": "low"}
    assert {"image", "response_format"} <= set(got.dropped)


async def replied(asked: Any, target: Target) -> Incoming:
    wire = HttpWire()
    try:
        reply = await LANE.send(asked, target, wire)
        await reply.read(1 << 20)
        return reply
    finally:
        await wire.close()


def test_a_conversation_is_one_prompt() -> None:
    function = {"name": "weather", "arguments": '{"city": "Bonn"}'}
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": function}]},
        {"role": "tool", "content": "rain"},
    ]
    assert prompt_of(said[:2]) == "Be brief.\n\nweather?"
    assert prompt_of(said) == (
        "Be brief.\n\nUser: weather?\n\n"
        'Assistant: [called weather with {"city": "Bonn"}]\n\nTool result: rain\n\nAssistant:'
    )


@streams
@pytest.mark.parametrize("status", [400, 401, 402, 422, 429, 500, 503])
def test_an_error_comes_back_as_it_was_and_nothing_is_tried_again(
    up: Upstream, status: int, stream: bool
) -> None:
    got = told(up, "chat", stream, f"status={status};retry-after=7;message=slow down")
    assert (got.status, got.headers["retry-after"]) == (status, "7")
    assert got.json["detail"] == "slow down"
    assert len(up.requests) == 1


@streams
@dialects
def test_a_poll_that_is_refused_ends_the_call(up: Upstream, dialect: str, stream: bool) -> None:
    got = told(up, dialect, stream, "ok", "status=401;message=no longer", "ok")
    assert got.status == 401
    assert polls(up) == 1


def test_a_poll_that_fails_in_passing_is_made_again_a_few_times(up: Upstream) -> None:
    got = told(up, "chat", False, "ok", "status=502", "status=429", "ok")
    assert (got.status, polls(up)) == (200, 3)
    up.clear()
    got = told(up, "chat", False, "ok", "status=429;retry-after=7")
    assert (got.status, got.headers["retry-after"]) == (429, "7")
    assert polls(up) == 4


@streams
@dialects
@pytest.mark.parametrize("end", ["failed", "canceled", "aborted"])
@pytest.mark.parametrize("first", ["ok", "finish=processing"])
def test_a_prediction_that_fails_is_an_error(
    up: Upstream, first: str, end: str, dialect: str, stream: bool
) -> None:
    """LiteLLM ends a canceled one with "stop", and asks after an aborted one for ever."""
    said = f"finish={end};message=out of memory"
    steps = ("ok", said) if first == "ok" else ("ok", f"{first};text=All", said)
    got = told(up, dialect, stream, *steps)
    assert got.status == 200
    assert b"out of memory" in got.raw
    assert not got.tracker.complete
    if not stream:
        assert got.reading.kind is Kind.ERROR
    elif first != "ok":
        assert b"out of memory" in got.tracker.error
    assert len(up.requests) == len(steps)


@streams
@pytest.mark.parametrize("place", ["created", "polled"])
@pytest.mark.parametrize("fault", ["html", "json", "none", "cut", "text"])
def test_garbage_is_no_answer(up: Upstream, fault: str, place: str, stream: bool) -> None:
    steps = (["ok"] if place == "polled" else []) + [f"garbage={fault}"]
    with pytest.raises(WireError) as raised:
        told(up, "chat", stream, *steps)
    assert raised.value.fault is Fault.GARBAGE


@dialects
def test_success_with_nothing_said_is_empty(up: Upstream, dialect: str) -> None:
    got = told(up, dialect, False, "ok", "empty=text")
    assert got.reading.kind is Kind.EMPTY
    up.clear()
    got = told(up, dialect, True, "ok", "empty=text")
    assert not got.tracker.complete
    assert not got.tracker.has_content


@streams
def test_a_connection_that_breaks(up: Upstream, stream: bool) -> None:
    """LiteLLM would connect anew behind our back."""
    with pytest.raises(WireError) as raised:
        told(up, "chat", stream, "reset")
    assert raised.value.fault is Fault.RESET
    assert len(up.requests) == 1
    with pytest.raises(WireError) as raised:
        told(up, "chat", stream, "ok", "reset")
    assert raised.value.fault is Fault.RESET
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = provider("replicate", f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    with pytest.raises(WireError) as raised:
        ask(call("chat", stream), nobody, MODEL)
    assert raised.value.fault is Fault.REFUSED


def test_a_stream_that_breaks_has_no_end(up: Upstream) -> None:
    up.script("*", ["ok", "finish=processing;text=All", "reset"])

    async def run() -> tuple[bytes, Fault]:
        wire = HttpWire()
        reply = await LANE.send(call("chat", True), Target(replicate(up), MODEL, SECRET), wire)
        said = await reply.chunk()
        with pytest.raises(WireError) as raised:
            await reply.chunk()
        reply.close()
        await wire.close()
        return said, raised.value.fault

    said, fault = asyncio.run(run())
    assert b"All" in said
    assert fault is Fault.RESET


def test_the_key_does_not_follow_the_address_in_a_reply(up: Upstream) -> None:
    with Upstream() as other:
        place = (
            f'{{"id":"p1","status":"starting","urls":{{"get":"{other.url}/v1/predictions/p1"}}}}'
        )
        up.script("*", [f"body={place.replace(';', '%3B')}", "ok"])
        assert ask(call("chat"), replicate(up), MODEL).status == 200
        assert other.requests == []
    assert polls(up) == 1


ALONE = """
import os, sys
seen = []
def watch(event, args):
    if event == "socket.getaddrinfo":
        seen.append(args[0])
    elif event == "socket.connect" and isinstance(args[1], tuple):
        seen.append(args[1][0])
sys.addaudithook(watch)
for name in ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN", "LITELLM_API_KEY", "OPENAI_API_KEY"):
    os.environ[name] = "canary"
os.environ["REPLICATE_API_BASE"] = "http://canary.invalid"
os.environ["HTTPS_PROXY"] = os.environ["HTTP_PROXY"] = "http://canary.invalid"
from tests.adapters.lanes import ask, call, hurry, provider
from tests.upstream import Upstream
hurry()
with Upstream() as up:
    to = provider("replicate", f"{up.url}/v1")
    for model in ("meta/meta-llama-3-8b-instruct", "mistralai/mixtral", "o/llama-2-chat"):
        for secret in ("own", None):
            up.clear()
            up.script("*", ["ok"])
            assert ask(call("chat"), to, model, secret).status == 200
            assert len(up.requests) == 2
            for request in up.requests:
                assert request.header.get("authorization") == (secret and "Token own")
                assert "canary" not in repr(request)
assert set(seen) <= {"127.0.0.1"}, seen
"""


def test_nothing_of_the_environment_is_used_and_nothing_is_looked_up() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_callbacks_of_the_process_are_not_told(up: Upstream) -> None:
    logged: list[str] = []
    litellm = LIBRARY.get().litellm
    kind: Any = litellm.integrations.custom_logger.CustomLogger

    class Logger(kind):  # type: ignore[misc]
        async def async_log_success_event(self, *args: Any) -> None:
            logged.append("success")

        async def async_log_failure_event(self, *args: Any) -> None:
            logged.append("failure")

        def log_success_event(self, *args: Any) -> None:
            logged.append("success")

        def log_failure_event(self, *args: Any) -> None:
            logged.append("failure")

    mine = Logger()
    litellm.callbacks.append(mine)
    try:
        told(up, "chat", True, "ok")
        told(up, "chat", False, "status=500")
        told(up, "chat", True, "ok")
    finally:
        litellm.logging_callback_manager.remove_callback_from_list_by_object(
            litellm.callbacks, mine
        )
    assert logged == []


FOR_EVER = ("ok", "finish=processing;text=All")


def begun(up: Upstream, hang_up: Any) -> None:
    """A stream whose prediction goes on for ever, left after its first text."""

    async def run() -> None:
        wire = HttpWire()
        target = Target(replicate(up), MODEL, SECRET)
        reply = await LANE.send(call("chat", True), target, wire)
        assert b"All" in await reply.chunk()
        waiting = asyncio.ensure_future(reply.chunk())
        await hang_up(reply, waiting)
        while "POST /v1/predictions/p1/cancel" not in lines(up):
            await asyncio.sleep(0)
        await wire.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_hanging_up_stops_the_polling_and_cancels_the_prediction(up: Upstream) -> None:
    up.script("*", FOR_EVER)

    async def hang_up(reply: Incoming, waiting: asyncio.Future[bytes]) -> None:
        waiting.cancel()
        reply.close()
        reply.close()

    begun(up, hang_up)
    before = polls(up)
    up.script("*", ["ok", "finish=processing", "finish=processing", "ok"])
    assert ask(call("chat"), replicate(up), MODEL, "sk-of-another").status == 200
    assert (polls(up), polls(up, "sk-of-another")) == (before, 3)


def test_a_call_that_is_cancelled_hangs_up(up: Upstream) -> None:
    """While it waits for the first word, in the middle of a poll."""
    up.script("*", ["ok", "gate=held", "ok"])

    async def run() -> None:
        wire = HttpWire()
        target = Target(replicate(up), MODEL, SECRET)
        sending = asyncio.create_task(LANE.send(call("chat"), target, wire))
        await asyncio.to_thread(up.wait, 2)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.to_thread(up.requests[1].closed.wait, 30)
        await asyncio.to_thread(up.wait, 3)
        await wire.close()

    asyncio.run(run())
    assert up.requests[1].closed.is_set()
    assert lines(up)[2:] == ["POST /v1/predictions/p1/cancel"]


def test_a_call_that_is_cancelled_before_there_is_a_prediction(up: Upstream) -> None:
    up.script("*", ["gate=held"])

    async def run() -> None:
        wire = HttpWire()
        target = Target(replicate(up), MODEL, SECRET)
        sending = asyncio.create_task(LANE.send(call("chat", True), target, wire))
        await asyncio.to_thread(up.wait, 1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await asyncio.to_thread(up.requests[0].closed.wait, 30)
        await wire.close()

    asyncio.run(run())
    assert up.requests[0].closed.is_set()
    assert len(up.requests) == 1


def test_calls_at_once_keep_apart(up: Upstream) -> None:
    up.script("*", ["ok"])

    async def one(wire: HttpWire, number: int) -> bytes:
        asked = call("chat", messages=[{"role": "user", "content": f"number {number}"}])
        target = Target(replicate(up), f"o/m{number}", f"sk-{number}")
        return await (await LANE.send(asked, target, wire)).read(1 << 20)

    async def run() -> None:
        wire = HttpWire()
        replies = await asyncio.gather(*(one(wire, number) for number in range(5)))
        assert all(b"All is well" in raw for raw in replies)
        await wire.close()

    asyncio.run(run())
    for number in range(5):
        mine = [r for r in up.requests if r.header["authorization"] == f"Token sk-{number}"]
        assert [r.method for r in mine] == ["POST", "GET"]
        assert mine[0].path == f"/v1/models/o/m{number}/predictions"
        assert mine[0].json["input"]["prompt"] == f"number {number}"


def test_litellm_may_block() -> None:
    """It waits, without giving way, for what only krouter's own loop can do."""
    turns = threading.Event()

    async def acompletion(**fields: Any) -> AsyncIterator[Any]:
        assert turns.wait(20), "krouter's loop stands still"
        return pieces()

    async def pieces() -> AsyncIterator[Any]:
        line.prediction.read(b'{"id":"p1","status":"succeeded"}')
        delta = SimpleNamespace(content="still here")
        yield SimpleNamespace(choices=[SimpleNamespace(delta=delta)])

    async def run() -> bytes:
        nonlocal line
        calls = Calls(acompletion, SimpleNamespace, lambda transport: transport, httpx.Response)
        wire = HttpWire()
        line = Line(calls, Prediction("http://127.0.0.1:9", MODEL, [], {}), wire, 1.0)
        asked = Ask("replicate", "http://127.0.0.1:9", "k", "hi", {})
        answering = asyncio.create_task(called(line, asked, MODEL, stream=False))
        for _ in range(100):
            await asyncio.sleep(0)
        turns.set()
        reply = await answering
        await wire.close()
        return await reply.read(1 << 20)

    line: Line
    assert b"still here" in asyncio.run(run())


def test_litellm_may_stop_for_no_reason(up: Upstream) -> None:
    """A call that ends before the prediction has is no answer, whatever was said."""

    async def acompletion(**fields: Any) -> AsyncIterator[Any]:
        return pieces()

    async def pieces() -> AsyncIterator[Any]:
        yield SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content="half"))])

    async def run() -> None:
        calls = Calls(acompletion, SimpleNamespace, lambda transport: transport, httpx.Response)
        wire = HttpWire()
        line = Line(calls, Prediction(up.url, MODEL, [], {}), wire, 1.0)
        await called(line, Ask("replicate", up.url, "k", "hi", {}), MODEL, stream=False)

    with pytest.raises(WireError) as raised:
        asyncio.run(run())
    assert raised.value.fault is Fault.CUT


SETTINGS = """
[provider.replicate]
base_url = "{url}/v1"
key = "env:KEY"

[provider.c]
base_urls = {{ chat = "{url}/v1" }}
key = "env:KEY"
"""


@streams
@pytest.mark.parametrize("fault", ["status=429;retry-after=7", "status=500", "garbage=html"])
def test_the_walk_goes_on_to_the_next_entry(
    up: Upstream, tmp_path: Path, fault: str, stream: bool
) -> None:
    combo = {"models": [f"replicate/{MODEL}", "c/good"]}
    with Krouter(
        tmp_path, combos={"both": combo}, settings=SETTINGS.format(url=up.url), env={"KEY": "k"}
    ) as served:
        up.script("*", [fault])
        up.script("good", ["ok"])
        reply = served.chat("both", stream=stream)
    assert reply.status_code == 200
    assert "All" in reply.text
    assert [request.path for request in up.requests] == [
        f"/v1/models/{MODEL}/predictions",
        "/v1/chat/completions",
    ]


@streams
def test_the_walk_gives_up_on_a_prediction_that_never_ends(tmp_path: Path, stream: bool) -> None:
    def asked(request: Request) -> None:
        if request.method == "GET" and polls(up, "k") == 3:
            served.leap(1)

    slow = {"model": f"replicate/{MODEL}", "timeouts": {"attempt": 1, "firstByte": 1}}
    combo = {"models": [slow, "c/good"]}
    with (
        Upstream(on_request=asked) as up,
        Krouter(
            tmp_path,
            combos={"both": combo},
            settings=SETTINGS.format(url=up.url),
            env={"KEY": "k"},
            leaps=up,
        ) as served,
    ):
        up.script("*", ["ok", "finish=starting;empty=text"])
        up.script("good", ["ok"])
        reply = served.chat("both", stream=stream)
        assert reply.headers["x-krouter-model"] == "c/good"
        assert "timed out" in reply.headers["x-krouter-tried"]
        while "POST /v1/predictions/p1/cancel" not in lines(up):
            up.wait(len(up.requests) + 1)
        assert "POST /v1/chat/completions" in lines(up)
