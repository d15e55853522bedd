"""The OpenAI and Anthropic SDKs get answers, streamed and not, when entries fail too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.harness import Krouter
from tests.upstream import Upstream

COMBOS = {
    "whole": {"models": ["local/a:ok;text=whole%20answer"]},
    "limited": {"models": ["local/b:status=429;retry-after=30", "local/ok:text=whole%20answer"]},
    "overloaded": {"models": ["local/c:status=529", "local/ok2:text=whole%20answer"]},
    "reset": {"models": ["local/d:reset", "local/ok3:text=whole%20answer"]},
    "error-first": {"models": ["local/e:error=0", "local/ok4:text=whole%20answer"]},
    "cut-first": {"models": ["local/f:end=0", "local/ok5:text=whole%20answer"]},
    "html": {"models": ["local/g:garbage=html", "local/ok6:text=whole%20answer"]},
    "tool": {"models": ["local/h:status=500", "local/i:tool;args=%7B%22city%22:%22Oslo%22%7D"]},
    "cut": {"models": ["local/j:reset=2"]},
}
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {}}}
RESPONSES_TOOL: Any = {"type": "function", "name": "weather", "parameters": {}, "strict": None}
MESSAGES_TOOL: Any = {"name": "weather", "input_schema": {"type": "object"}}
ANSWERING = sorted(COMBOS.keys() - {"tool", "cut"})


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    with Upstream() as upstream:
        settings = (
            f'[provider.local]\nbase_url = "{upstream.url}/v1"\n'
            'speaks = ["chat", "messages", "responses"]\n'
        )
        home = tmp_path_factory.mktemp("home")
        with Krouter(home, combos=COMBOS, settings=settings) as krouter:
            yield krouter


@pytest.fixture(scope="module")
def chat(krouter: Krouter) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{krouter.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def messages(krouter: Krouter) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=krouter.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("combo", ANSWERING)
def test_openai_json(chat: openai.OpenAI, combo: str) -> None:
    reply = chat.chat.completions.create(model=combo, messages=HELLO)
    assert reply.choices[0].message.content == "whole answer"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.completion_tokens > 0


@pytest.mark.parametrize("combo", ANSWERING)
def test_openai_stream(chat: openai.OpenAI, combo: str) -> None:
    with chat.chat.completions.stream(model=combo, messages=HELLO) as stream:
        reply = stream.get_final_completion()
    assert reply.choices[0].message.content == "whole answer"
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("combo", ANSWERING)
def test_responses_json(chat: openai.OpenAI, combo: str) -> None:
    reply = chat.responses.create(model=combo, input="hello")
    assert (reply.output_text, reply.status) == ("whole answer", "completed")
    assert reply.usage is not None
    assert reply.usage.output_tokens > 0


@pytest.mark.parametrize("combo", ANSWERING)
def test_responses_stream(chat: openai.OpenAI, combo: str) -> None:
    with chat.responses.stream(model=combo, input=HELLO) as stream:
        reply = stream.get_final_response()
    assert (reply.output_text, reply.status) == ("whole answer", "completed")
    told = list(chat.responses.create(model=combo, input="hello", stream=True))
    assert told[-1].type == "response.completed"
    assert "".join(e.delta for e in told if e.type == "response.output_text.delta") == (
        "whole answer"
    )


@pytest.mark.parametrize("combo", ANSWERING)
def test_anthropic_json(messages: anthropic.Anthropic, combo: str) -> None:
    reply = messages.messages.create(model=combo, max_tokens=64, messages=HELLO)
    assert reply.content[0].text == "whole answer"  # type: ignore[union-attr]
    assert reply.stop_reason == "end_turn"
    assert reply.model == combo


@pytest.mark.parametrize("combo", ANSWERING)
def test_anthropic_stream(messages: anthropic.Anthropic, combo: str) -> None:
    with messages.messages.stream(model=combo, max_tokens=64, messages=HELLO) as stream:
        reply = stream.get_final_message()
    assert reply.content[0].text == "whole answer"  # type: ignore[union-attr]
    assert reply.stop_reason == "end_turn"
    assert reply.usage.output_tokens > 0
    assert reply.model == combo


def test_openai_demo(chat: openai.OpenAI) -> None:
    reply = chat.chat.completions.create(model="demo", messages=HELLO)
    assert "hello" in (reply.choices[0].message.content or "")


def test_anthropic_demo(messages: anthropic.Anthropic) -> None:
    with messages.messages.stream(model="demo", max_tokens=64, messages=HELLO) as stream:
        assert "hello" in stream.get_final_text()


def test_openai_tools(chat: openai.OpenAI) -> None:
    with chat.chat.completions.stream(model="tool", messages=HELLO, tools=[CHAT_TOOL]) as stream:
        streamed = stream.get_final_completion()
    whole = chat.chat.completions.create(model="tool", messages=HELLO, tools=[CHAT_TOOL])
    for reply in (streamed, whole):
        (call,) = reply.choices[0].message.tool_calls or ()
        assert call.function.name == "weather"  # type: ignore[union-attr]
        assert call.function.arguments == '{"city":"Oslo"}'  # type: ignore[union-attr]
        assert reply.choices[0].finish_reason == "tool_calls"


def test_responses_tools(chat: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tool", "input": HELLO, "tools": [RESPONSES_TOOL]}
    with chat.responses.stream(**asked) as stream:
        streamed = stream.get_final_response()
    whole = chat.responses.create(**asked)
    for reply in (streamed, whole):
        call = reply.output[-1]
        assert call.type == "function_call"
        assert (call.name, call.arguments) == ("weather", '{"city":"Oslo"}')
        assert call.call_id
    answer: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    reply = chat.responses.create(model="whole", input=[*HELLO, call.to_dict(), answer])
    assert reply.output_text == "whole answer"


def test_anthropic_tools(messages: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"model": "tool", "max_tokens": 64, "messages": HELLO}
    with messages.messages.stream(**asked, tools=[MESSAGES_TOOL]) as stream:
        streamed = stream.get_final_message()
    whole = messages.messages.create(**asked, tools=[MESSAGES_TOOL])
    for reply in (streamed, whole):
        call = reply.content[-1]
        assert call.type == "tool_use"
        assert call.input == {"city": "Oslo"}
        assert reply.stop_reason == "tool_use"


def test_a_cut_stream_is_an_error_never_a_short_answer(
    chat: openai.OpenAI, messages: anthropic.Anthropic
) -> None:
    with pytest.raises(openai.APIError, match="cut short"):
        list(chat.chat.completions.create(model="cut", messages=HELLO, stream=True))
    with pytest.raises(openai.APIError, match="cut short"):
        list(chat.responses.create(model="cut", input=HELLO, stream=True))
    with (
        pytest.raises(openai.APIError, match="cut short"),
        chat.responses.stream(model="cut", input=HELLO) as told,
    ):
        told.get_final_response()
    with (
        pytest.raises(anthropic.APIError, match="cut short"),
        messages.messages.stream(model="cut", max_tokens=64, messages=HELLO) as stream,
    ):
        stream.get_final_message()


def test_the_sdks_read_krouters_own_errors(
    chat: openai.OpenAI, messages: anthropic.Anthropic
) -> None:
    with pytest.raises(openai.NotFoundError, match="Did you mean 'limited'"):
        chat.chat.completions.create(model="limitd", messages=HELLO)
    with pytest.raises(openai.NotFoundError, match="Did you mean 'limited'"):
        chat.responses.create(model="limitd", input="hello")
    with pytest.raises(openai.BadRequestError, match="not found") as caught:
        chat.responses.create(model="whole", input="hello", previous_response_id="resp_1")
    assert caught.value.code == "previous_response_not_found"
    with pytest.raises(anthropic.NotFoundError, match="Did you mean 'limited'"):
        messages.messages.create(model="limitd", max_tokens=64, messages=HELLO)


def test_the_sdks_list_models(chat: openai.OpenAI, messages: anthropic.Anthropic) -> None:
    named = [model.id for model in chat.models.list()]
    assert set(COMBOS) <= set(named)
    assert max(map(named.index, COMBOS)) < named.index("local/d:reset")
    assert "claude-whole" in [model.id for model in messages.models.list()]
