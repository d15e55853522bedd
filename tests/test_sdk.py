"""krouter as a library: replies, streams, the agent loop, threads, event loops, closing."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from krouter_adapters import sdk as shapes
from krouter_adapters.litellm_lane.load import load_litellm

import krouter
from krouter.asking import Asked, ask
from krouter.engine import Closed
from krouter.problems import ConfigError
from krouter.sdk import Stream
from tests.emitted import check_chunks
from tests.upstream import Upstream

litellm = load_litellm()

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TOOL_CALL = "tool;args=%7B%22city%22:%22Oslo%22%7D"
COMBOS: dict[str, Any] = {
    "daily": {"models": ["local/a:status=529", "local/b:text=whole%20answer"]},
    "agent": {"models": ["local/c:status=500", f"local/d:{TOOL_CALL}"]},
    "translated": {"models": ["anthropic-like/c:status=500", f"anthropic-like/d:{TOOL_CALL}"]},
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def settings(upstream: Upstream) -> dict[str, Any]:
    upstream.clear()
    native = {"base_url": f"{upstream.url}/v1"}
    return {
        "provider": {
            "local": native,
            "anthropic-like": {"base_url": upstream.url, "speaks": ["messages"]},
        }
    }


@pytest.fixture
def router(settings: dict[str, Any]) -> Iterator[krouter.Router]:
    with krouter.Router(combos=COMBOS, settings=settings, env={}) as router:
        yield router


def texts(chunks: Any) -> str:
    return check_chunks(chunks).text


async def gathered(stream: Any) -> str:
    return texts([chunk async for chunk in stream])


def test_a_reply_is_litellms_and_has_its_route(router: krouter.Router) -> None:
    reply = router.completion("daily", HELLO)
    assert isinstance(reply, litellm.ModelResponse)
    assert reply.choices[0].message.content == "whole answer"
    assert reply.usage.completion_tokens > 0
    assert reply.route.served == "local/b:text=whole%20answer"
    assert [attempt.outcome for attempt in reply.route.attempts] == ["overloaded", "answered"]
    assert json.loads(reply.model_dump_json())["object"] == "chat.completion"
    assert "route" not in reply.model_dump()
    assert reply._hidden_params["additional_headers"]["x-krouter-attempts"] == "2"


def test_a_stream_is_of_litellms_chunks(router: krouter.Router) -> None:
    stream = router.completion("daily", HELLO, stream=True)
    chunks = list(stream)
    assert all(isinstance(chunk, litellm.ModelResponseStream) for chunk in chunks)
    assert texts(chunks) == "whole answer"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[0].route is stream.route
    assert stream.route.outcome == "answered"
    built = litellm.stream_chunk_builder(chunks)
    assert built.choices[0].message.content == "whole answer"


def test_reasoning_stands_where_litellm_puts_it(router: krouter.Router) -> None:
    reply = router.completion("local/x:thinking", HELLO)
    assert reply.choices[0].message.reasoning_content
    chunks = router.completion("local/x:thinking", HELLO, stream=True)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert "".join(thoughts) == reply.choices[0].message.reasoning_content


def test_usage_comes_with_a_stream_that_asks_for_it(router: krouter.Router) -> None:
    options = {"include_usage": True}
    chunks = list(router.completion("daily", HELLO, stream=True, stream_options=options))
    assert chunks[-1].usage.completion_tokens > 0
    assert not any(
        hasattr(chunk, "usage") for chunk in router.completion("daily", HELLO, stream=True)
    )


def test_acompletion_whole_and_streamed_in_loops_that_come_and_go(router: krouter.Router) -> None:
    async def both() -> tuple[str, str]:
        reply = await router.acompletion("daily", HELLO)
        stream = await router.acompletion("daily", HELLO, stream=True)
        return reply.choices[0].message.content, await gathered(stream)

    for _ in range(2):
        assert asyncio.run(both()) == ("whole answer", "whole answer")


def test_a_plain_call_inside_a_running_event_loop(router: krouter.Router) -> None:
    async def inside() -> tuple[str, str]:
        reply = router.completion("daily", HELLO)
        return reply.choices[0].message.content, texts(
            router.completion("daily", HELLO, stream=True)
        )

    assert asyncio.run(inside()) == ("whole answer", "whole answer")


def test_many_threads_at_once(router: krouter.Router, upstream: Upstream) -> None:
    def one(number: int) -> str:
        return texts(router.completion(f"local/t:text={number};gate=all", HELLO, stream=True))

    with ThreadPoolExecutor(10) as pool:
        running = pool.map(one, range(10))
        upstream.wait(10)
        upstream.gate("all").open()
        assert list(running) == [str(number) for number in range(10)]


def agent(completion: Callable[..., Any], model: str, stream: bool) -> str:
    """The usual loop: call, run the tools, call again, until there is an answer."""
    messages: list[Any] = [{"role": "user", "content": "How is the weather in Oslo?"}]
    for _ in range(5):
        reply = completion(model=model, messages=messages, tools=[TOOL], stream=stream)
        if stream:
            reply = list(reply)
            check_chunks(reply)
            reply = litellm.stream_chunk_builder(list(reply), messages=messages)
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            assert json.loads(call.function.arguments) == {"city": "Oslo"}
            result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
            messages.append(result)
    raise AssertionError("the agent never came to an end")


@pytest.mark.parametrize("model", ["agent", "translated"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_loop_with_tools(
    router: krouter.Router, upstream: Upstream, model: str, stream: bool
) -> None:
    assert agent(router.completion, model, stream)
    sent = upstream.requests[-1].json["messages"]
    if model == "translated":
        assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]
        assert [block["type"] for block in sent[2]["content"]] == ["tool_result"]
        return
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    call = sent[1]["tool_calls"][0]
    assert call["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}
    assert sent[2]["tool_call_id"] == call["id"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_loop_on_demo(router: krouter.Router, stream: bool) -> None:
    assert "weather in Oslo" in agent(router.completion, "demo", stream)


def test_routers_of_one_process_share_nothing(settings: dict[str, Any]) -> None:
    one: dict[str, Any] = {"mine": {"models": ["local/one:text=one"]}}
    two: dict[str, Any] = {"mine": {"models": ["local/two:text=two"]}}
    with (
        krouter.Router(combos=one, settings=settings, env={}) as first,
        krouter.Router(combos=two, settings=settings, env={}) as second,
    ):
        with pytest.raises(litellm.RateLimitError):
            first.completion("local/x:status=429;retry-after=60", HELLO)
        assert first.completion("mine", HELLO).choices[0].message.content == "one"
        assert second.completion("mine", HELLO).choices[0].message.content == "two"
        assert len(first.routes) == 2
        assert len(second.routes) == 1


def test_combos_of_folders_and_settings_of_a_file(tmp_path: Path, upstream: Upstream) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        combo = {"models": [f"local/x:text={folder.name}"]}
        (folder / f"{folder.name}.json").write_text(json.dumps(combo))
        (folder / "both.json").write_text(json.dumps(combo))
    file = tmp_path / "settings.toml"
    file.write_text(f'[provider.local]\nbase_url = "{upstream.url}/v1"\n')
    with krouter.Router(combos=folders, settings=file, env={}) as router:
        said = [router.completion(name, HELLO) for name in ("first", "second", "both", "demo")]
    assert [reply.choices[0].message.content for reply in said[:3]] == ["first", "second", "first"]
    with krouter.Router(combos=folders[1], settings=file, env={}) as router:
        assert router.completion("both", HELLO).choices[0].message.content == "second"


def test_the_home_is_that_of_the_command_line(tmp_path: Path, upstream: Upstream) -> None:
    (tmp_path / "combos").mkdir()
    (tmp_path / "combos" / "mine.json").write_text('{"models": ["local/x:text=home"]}')
    (tmp_path / "krouter.toml").write_text(f'[provider.local]\nbase_url = "{upstream.url}/v1"\n')
    for router in (
        krouter.Router(home=tmp_path, env={}),
        krouter.Router(env={"KROUTER_HOME": str(tmp_path)}),
    ):
        with router:
            assert router.completion("mine", HELLO).choices[0].message.content == "home"


def test_an_edited_combo_takes_effect(tmp_path: Path, settings: dict[str, Any]) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"models": ["local/x:text=before"]}')
    with krouter.Router(combos=tmp_path, settings=settings, env={}) as router:
        assert router.completion("mine", HELLO).choices[0].message.content == "before"
        file.write_text('{"models": ["local/x:text=afterwards"]}')
        for _ in range(10_000):
            if router.completion("mine", HELLO).choices[0].message.content == "afterwards":
                return
    raise AssertionError("the edit was never seen")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"combos": {"x": {"models": []}}}, r"combos\['x'\]"),
        ({"combos": {"x": {"models": ["nowhere"]}}}, "nowhere"),
        ({"combos": {"x": {"modles": ["a/b"]}}}, "models"),
        ({"combos": {"x": {"models": {1}}}}, "not JSON"),
        ({"combos": {}, "settings": {"timeouts": {"totl": 3}}}, "total"),
        ({"combos": {}, "settings": "/nowhere/krouter.toml"}, "krouter.toml"),
    ],
)
def test_what_is_wrong_is_told_when_the_router_is_made(
    arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        krouter.Router(env={}, **arguments)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        krouter.Router(combos=tmp_path / "nowhere", env={})


def test_settings_that_are_none() -> None:
    given: Any = 5
    with pytest.raises(ConfigError, match="settings: should be a path or a mapping, not int"):
        krouter.Router(combos={}, settings=given, env={})


def test_a_key_that_is_set_after_the_first_call(upstream: Upstream) -> None:
    env: dict[str, str] = {}
    moved = {"provider": {"openai": {"base_url": f"{upstream.url}/v1"}}}
    with krouter.Router(combos={}, settings=moved, env=env) as router:
        with pytest.raises(litellm.AuthenticationError, match="set OPENAI_API_KEY"):
            router.completion("openai/x", HELLO)
        env["OPENAI_API_KEY"] = "late"
        router.completion("openai/x", HELLO)
    assert upstream.requests[-1].credential == "late"


def is_left_alone(upstream: Upstream) -> bool:
    """Whether no connection is open, once the provider has seen to those that were closed."""
    ends = time.monotonic() + 30
    while upstream.open_connections and time.monotonic() < ends:
        time.sleep(0.002)
    return not upstream.open_connections


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("way", ["close", "with", "aclose", "async with", "dropped"])
def test_closing_leaves_nothing(settings: dict[str, Any], upstream: Upstream, way: str) -> None:
    def make() -> krouter.Router:
        return krouter.Router(combos=COMBOS, settings=settings, env={})

    async def asynchronously() -> None:
        if way == "async with":
            async with make() as router:
                await router.acompletion("daily", HELLO)
            return
        router = make()
        await gathered(await router.acompletion("daily", HELLO, stream=True))
        await router.aclose()

    before = threads()
    if way in ("aclose", "async with"):
        asyncio.run(asynchronously())
    elif way == "with":
        with make() as router:
            router.completion("daily", HELLO)
    else:
        router = make()
        router.completion("daily", HELLO)
        if way == "close":
            router.close()
            router.close()
        else:
            del router
    gc.collect()
    assert threads() <= before
    assert is_left_alone(upstream)


def test_a_closed_router_says_so(settings: dict[str, Any]) -> None:
    router = krouter.Router(combos=COMBOS, settings=settings, env={})
    stream = router.completion("local/x:stall=2", HELLO, stream=True)
    router.close()
    with pytest.raises(RuntimeError, match="closed"):
        router.completion("daily", HELLO)
    with pytest.raises(RuntimeError, match="closed"):
        list(stream)
    stream.close()
    krouter.Router(combos=COMBOS, settings=settings, env={}).close()


def test_closing_ends_calls_that_are_under_way(
    settings: dict[str, Any], upstream: Upstream
) -> None:
    router = krouter.Router(combos=COMBOS, settings=settings, env={})

    async def inside() -> None:
        call = asyncio.create_task(router.acompletion("local/x:stall", HELLO))
        await asyncio.to_thread(upstream.wait, 2)
        await router.aclose()
        with pytest.raises(Closed):
            await call

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(router.completion, "local/x:stall", HELLO)
        upstream.wait(1)
        asyncio.run(inside())
        with pytest.raises(Closed):
            call.result(30)
    assert all(request.closed.wait(30) for request in upstream.requests)


@pytest.mark.parametrize(
    ("script", "stream"),
    [("stall", False), ("stall", True), ("stall=1", False), ("stall=2", True)],
)
def test_cancelling_closes_the_call_to_the_provider(
    router: krouter.Router, upstream: Upstream, script: str, stream: bool
) -> None:
    async def read() -> None:
        reply = await router.acompletion(f"local/x:{script}", HELLO, stream=stream)
        await gathered(reply)

    async def cancelled() -> None:
        reading = asyncio.create_task(read())
        await asyncio.to_thread(upstream.wait, 1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await asyncio.to_thread(upstream.requests[0].closed.wait, 30)

    asyncio.run(cancelled())


def test_a_stream_whose_reader_was_cancelled_has_no_end(router: krouter.Router) -> None:
    async def read() -> None:
        stream = await router.acompletion("local/x:stall=2", HELLO, stream=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await gathered(stream)
        with pytest.raises(RuntimeError, match="interrupted"):
            await gathered(stream)

    asyncio.run(read())


def test_a_stream_has_one_reader_at_a_time(router: krouter.Router, upstream: Upstream) -> None:
    stream = router.completion("local/x:gate=go,2", HELLO, stream=True)
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(list, stream) for _ in range(2)]
        first, other = wait(readers, 5, FIRST_COMPLETED)
        with pytest.raises(RuntimeError, match="being read"):
            first.pop().result()
        with pytest.raises(RuntimeError, match="being read"):
            asyncio.run(gathered(stream))
        upstream.gate("go").open()
        assert texts(other.pop().result(30))
    assert router.routes[0].outcome == "answered"


@pytest.mark.parametrize("way", ["close", "with", "dropped", "aclose", "async with"])
def test_leaving_a_stream_closes_the_call_to_the_provider(
    router: krouter.Router, upstream: Upstream, way: str
) -> None:
    async def asynchronously() -> None:
        stream = await router.acompletion("local/x:stall=2", HELLO, stream=True)
        if way == "aclose":
            await anext(stream)
            await stream.aclose()
            return
        async with stream:
            await anext(stream)

    if way in ("aclose", "async with"):
        asyncio.run(asynchronously())
    else:
        stream: Stream = router.completion("local/x:stall=2", HELLO, stream=True)
        next(stream)
        if way == "close":
            stream.close()
            assert list(stream) == []
        elif way == "with":
            with stream:
                pass
        del stream
    assert upstream.requests[0].closed.wait(30)
    assert router.routes[0].outcome == "caller gone"


def test_an_answer_that_nobody_waits_for_is_closed(
    router: krouter.Router, upstream: Upstream
) -> None:
    async def given_up() -> None:
        call = asyncio.create_task(
            router.acompletion("local/x:gate=go;stall=1", HELLO, stream=True)
        )
        await asyncio.to_thread(upstream.gate("go").reached.wait, 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(given_up())
    assert upstream.requests[0].closed.wait(30)


@pytest.mark.parametrize("way", ["cancelled", "interrupted"])
def test_a_stream_that_comes_as_its_caller_leaves_is_closed(
    router: krouter.Router, upstream: Upstream, way: str
) -> None:
    """The call has been answered, and whoever waits for it has not been told yet."""
    engine = router._engine
    router.completion("daily", HELLO)
    upstream.clear()
    answered, go = threading.Event(), threading.Event()

    async def hold() -> Any:
        line = await engine.answer(asked("local/x:stall=2"))
        asyncio.get_running_loop().call_soon(answered.set)
        asyncio.get_running_loop().call_soon(go.wait, 5)
        return line

    async def leave() -> None:
        call = asyncio.create_task(engine.awaited(hold()))
        await asyncio.to_thread(answered.wait, 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.set()

    def interrupt() -> None:
        answered.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    kept: Any = None
    if way == "cancelled":
        asyncio.run(leave())
    else:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt) as kept:
            engine.wait(hold())
        go.set()
    assert upstream.requests[0].closed.wait(30)
    assert kept is None or kept.tb


def asked(model: str) -> Asked:
    return ask({"model": model, "messages": HELLO, "stream": True}, shapes)


def test_closing_again_after_a_cancelled_close(router: krouter.Router, upstream: Upstream) -> None:
    async def read() -> None:
        stream = await router.acompletion("local/x:stall=2", HELLO, stream=True)
        closing = asyncio.create_task(stream.aclose())
        await asyncio.sleep(0)
        closing.cancel()

    asyncio.run(read())
    assert upstream.requests[0].closed.wait(30)


def test_a_call_from_the_routers_own_thread_does_not_wait_for_ever(
    router: krouter.Router, upstream: Upstream
) -> None:
    met: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread().name == "krouter":
                with pytest.raises(RuntimeError) as caught:
                    router.completion("daily", HELLO)
                met.append(str(caught.value))

    handler, logger = Handler(), logging.getLogger("krouter")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        router.completion("daily", HELLO)
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
    assert met
    assert all("own thread" in message for message in met)


def test_what_litellm_notes_beside_a_reply(upstream: Upstream) -> None:
    base = f"{upstream.url}/v1"
    with krouter.Router(combos={}, settings={}, env={}) as router:
        to = {"api_base": base, "api_key": "k"}
        reply = router.completion("openai/gpt-4o", HELLO, **to)
        stream = router.completion("openai/gpt-4o", HELLO, stream=True, **to)
        chunk = next(stream)
        stream.close()
    hidden = reply._hidden_params
    assert hidden["response_cost"] == litellm.completion_cost(reply) > 0
    assert hidden["api_base"] == base
    assert hidden["model_id"] == "openai/gpt-4o"
    assert hidden["custom_llm_provider"] == "openai"
    assert hidden["_response_ms"] > 0
    ours = [name for name in hidden["additional_headers"] if "x-krouter-route" in name]
    assert ours == ["x-krouter-route"]
    assert "llm_provider-content-type" in hidden["additional_headers"]
    assert reply._response_headers["x-krouter-model"] == "openai/gpt-4o"
    assert stream._hidden_params["api_base"] == base
    assert stream._response_headers["x-krouter-model"] == "openai/gpt-4o"
    assert chunk._hidden_params["model_id"] == "openai/gpt-4o"


def test_a_model_without_a_known_price(router: krouter.Router) -> None:
    reply = router.completion("daily", HELLO)
    assert reply._hidden_params["response_cost"] is None
