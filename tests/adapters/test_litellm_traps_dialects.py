"""What LiteLLM is known to do wrong between dialects, and that it happens here for no caller of
any dialect at a provider of any other."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from krouter.adapter import Call, Unsendable
from krouter.body import Body
from krouter.dialects import get
from krouter.providers import Provider
from tests.adapters.lanes import FakeWire, Got, ask, own, provider
from tests.adapters.test_lane_replies import STREAM, chunk, parts_of_gemini, sse
from tests.adapters.test_litellm_traps import Downloads
from tests.emitted import STREAMS
from tests.upstream import Upstream

DIALECTS = ("chat", "messages", "responses", "gemini")
PAIRS = [(caller, to) for caller, to in product(DIALECTS, DIALECTS) if caller != to]
pairs = pytest.mark.parametrize(("caller", "to"), PAIRS, ids="-to-".join)
callers = pytest.mark.parametrize("caller", DIALECTS)
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
LONG = "a_tool_whose_name_is_longer_than_sixty_four_characters_as_those_of_mcp_servers_are"
PNG = base64.b64encode(b"\x89PNG picture").decode()
TEXT = base64.b64encode(b"the vault code").decode()


def host(to: str, url: str = "http://up.test") -> Provider:
    """One of the user's own, that speaks this dialect alone."""
    return own(**{to: url + ("/v1" if to == "chat" else "")})


def asked(caller: str, turns: Any, stream: bool = False, **fields: Any) -> Call:
    place = {"responses": "input", "gemini": "contents"}.get(caller, "messages")
    body = {"model": "asked", place: turns, **fields}
    if caller == "gemini":
        del body["model"]
    else:
        body["stream"] = stream
    if caller == "messages":
        body = {"max_tokens": 4096} | body
    return Call(get(caller), Body.parse(json.dumps(body).encode()), [], "asked", stream)


def sent(call: Call, to: str, model: str = "m") -> tuple[Any, Got]:
    """What the provider is given; its answer is of no matter."""
    wire = FakeWire(b"{}", status=500)
    got = ask(call, host(to), model, wire=wire)
    (request,) = wire.sent
    return json.loads(request.body), got


def words(caller: str, text: str = "hello") -> Any:
    if caller == "gemini":
        return [{"role": "user", "parts": [{"text": text}]}]
    return [{"role": "user", "content": text}]


def tool(caller: str, name: str) -> dict[str, Any]:
    described = {"name": name, "description": "Looks.", "parameters": PARAMETERS}
    match caller:
        case "chat":
            return {"tools": [{"type": "function", "function": described}]}
        case "messages":
            return {"tools": [{"name": name, "input_schema": PARAMETERS}]}
        case "responses":
            return {"tools": [{"type": "function", **described}]}
        case _:
            return {"tools": [{"functionDeclarations": [described]}]}


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def _clean(up: Upstream) -> None:
    up.clear()


def document(caller: str) -> Any:
    """A turn with a text file and a question."""
    match caller:
        case "chat":
            file = {"filename": "a.txt", "file_data": f"data:text/plain;base64,{TEXT}"}
            parts = [{"type": "file", "file": file}, {"type": "text", "text": "?"}]
            return [{"role": "user", "content": parts}]
        case "messages":
            source = {"type": "text", "media_type": "text/plain", "data": "the vault code"}
            parts = [{"type": "document", "source": source}, {"type": "text", "text": "?"}]
            return [{"role": "user", "content": parts}]
        case "responses":
            file = {"filename": "a.txt", "file_data": f"data:text/plain;base64,{TEXT}"}
            parts = [{"type": "input_file", **file}, {"type": "input_text", "text": "?"}]
            return [{"role": "user", "content": parts}]
        case _:
            data = {"mimeType": "text/plain", "data": TEXT}
            return [{"role": "user", "parts": [{"inlineData": data}, {"text": "?"}]}]


@pairs
def test_a_text_file_does_not_vanish(caller: str, to: str) -> None:
    body, got = sent(asked(caller, document(caller)), to)
    told = json.dumps(body)
    assert "the vault code" in told or TEXT in told, got.dropped


def failed_call(content: Any) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
    return [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**result, "is_error": True}]},
    ]


@pytest.mark.parametrize("to", ["chat", "responses", "gemini"])
def test_that_a_tool_failed_is_told(to: str) -> None:
    turns = failed_call("no such town")
    body, _ = sent(asked("messages", turns, **tool("messages", "look")), to)
    told = json.dumps(body)
    assert "no such town" in told
    assert "error" in told.lower()


@pytest.mark.parametrize("to", ["chat", "responses"])
def test_one_call_at_a_time_is_asked_for(to: str) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    call = asked("messages", words("messages"), tool_choice=choice, **tool("messages", "look"))
    assert sent(call, to)[0]["parallel_tool_calls"] is False


LIMITS: dict[str, tuple[dict[str, Any], dict[str, tuple[str, ...]]]] = {
    "chat": ({"stop": ["END"], "top_k": 7}, {}),
    "messages": ({"stop_sequences": ["END"], "top_k": 7}, {}),
    "gemini": ({"generationConfig": {"stopSequences": ["END"], "topK": 7}}, {}),
}


@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("caller", LIMITS)
def test_where_to_stop_is_carried_or_named(caller: str, to: str) -> None:
    if caller == to:
        pytest.skip("native")
    body, got = sent(asked(caller, words(caller), **LIMITS[caller][0]), to)
    told, dropped = json.dumps(body), " ".join(got.dropped).lower()
    assert '"END"' in told or "stop" in dropped
    assert ": 7" in told or "top_k" in dropped or "topk" in dropped


@pytest.mark.parametrize("to", ["chat", "responses", "gemini"])
def test_a_picture_in_a_result_comes_with_the_name_of_its_tool_at_most(to: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    content = [{"type": "text", "text": "seen"}, {"type": "image", "source": source}]
    turns = failed_call(content)
    del turns[2]["content"][0]["is_error"]
    body, got = sent(asked("messages", turns, **tool("messages", "look")), to)
    assert PNG in json.dumps(body), got.dropped
    texts = [text for text in strings(body) if " " in text]
    assert texts in ([], ["(From the result of look:)"]), "nobody but the caller speaks"


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


THINKING: dict[str, dict[str, Any]] = {
    "chat": {"reasoning_effort": "high"},
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 2048}},
    "responses": {"reasoning": {"effort": "high"}},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 2048}}},
}


@pairs
def test_thinking_of_a_model_that_nobody_knows_is_no_error(
    up: Upstream, caller: str, to: str
) -> None:
    call = asked(caller, words(caller), **THINKING[caller])
    assert ask(call, host(to, up.url), "a-model-nobody-knows").status == 200


@callers
def test_no_host_of_chat_is_given_blocks_of_thinking(caller: str) -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    turns: dict[str, Any] = {
        "chat": [{"role": "assistant", "content": "yes", "thinking_blocks": [signed]}],
        "messages": [{"role": "assistant", "content": [signed, {"type": "text", "text": "yes"}]}],
        "responses": [
            {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2ln",
             "summary": [{"type": "summary_text", "text": "hm"}]},
            {"role": "assistant", "content": "yes"},
        ],
        "gemini": [{"role": "model", "parts": [
            {"text": "hm", "thought": True}, {"text": "yes", "thoughtSignature": "c2ln"}]}],
    }  # fmt: skip
    said = [*words(caller), *turns[caller], *words(caller, "and?")]
    body, _ = sent(asked(caller, said), "chat" if caller != "chat" else "messages")
    assert "thinking_blocks" not in json.dumps(body)


@pairs
def test_a_stream_is_one_and_asked_for_once(up: Upstream, caller: str, to: str) -> None:
    got = ask(asked(caller, words(caller), True), host(to, up.url), "text=hello;chunks=5")
    (request,) = up.requests
    assert request.path.count("streamGenerateContent") == 1 or request.json["stream"] is True
    heard = STREAMS[caller](got.raw)
    assert (heard.ending, heard.text) == ("complete", "hello")
    assert heard.usage, "with the tokens of the prompt"


def called_twice() -> dict[str, Any]:
    calls = [{"functionCall": {"name": "look", "args": {"n": n}}} for n in (1, 2)]
    return parts_of_gemini(*calls)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("caller", ["chat", "messages", "responses"])
def test_two_calls_of_one_function_are_two(caller: str, stream: bool) -> None:
    reply = called_twice()
    raw = sse(reply, done=False) if stream else json.dumps(reply).encode()
    wire = FakeWire(raw, kind=STREAM if stream else "application/json")
    got = ask(asked(caller, words(caller), stream, **tool(caller, "look")), host("gemini"),
              wire=wire)  # fmt: skip
    told = got.events if stream else [got.json]
    names = ("call_id",) if caller == "responses" else ("id",)
    ids = {each[n] for each in dicts(told) for n in names if is_call(each) and each.get(n)}
    assert len(ids) == 2


def is_call(value: dict[str, Any]) -> bool:
    return value.get("type") in ("function", "function_call", "tool_use")


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from dicts(each)


@pytest.mark.parametrize("to", ["chat", "messages", "responses"])
def test_two_calls_of_one_function_without_ids_keep_their_results(to: str) -> None:
    calls = [{"functionCall": {"name": "look", "args": {"n": n}}} for n in (1, 2)]
    results = [{"functionResponse": {"name": "look", "response": {"output": f"r{n}"}}}
               for n in (1, 2)]  # fmt: skip
    turns = [
        *words("gemini"),
        {"role": "model", "parts": calls},
        {"role": "user", "parts": results},
    ]
    body, _ = sent(asked("gemini", turns, **tool("gemini", "look")), to)
    where = {"chat": ("id", "tool_call_id"), "messages": ("id", "tool_use_id"),
             "responses": ("call_id", "call_id")}[to]  # fmt: skip
    made = [each[where[0]] for each in dicts(body) if is_call(each) and where[0] in each]
    told = [
        (each[where[1]], json.dumps(each))
        for each in dicts(body)
        if where[1] in each and not is_call(each)
    ]
    assert len(set(made)) == 2
    assert [call_id for call_id, _ in told] == made
    assert ["r1" in told[0][1], "r2" in told[1][1]] == [True, True]


@pytest.mark.parametrize("to", ["chat", "responses"])
def test_the_form_and_thinking_that_gemini_asks_for_are_kept_or_named(to: str) -> None:
    config = {"responseMimeType": "application/json", "responseSchema": PARAMETERS}
    config |= THINKING["gemini"]["generationConfig"]
    body, got = sent(asked("gemini", words("gemini"), generationConfig=config), to, "gpt-5")
    told = json.dumps(body)
    assert "json_schema" in told
    assert "city" in told
    assert "effort" in told or "thinkingConfig" in got.dropped


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("caller", ["chat", "messages", "responses"])
def test_cached_tokens_of_gemini_are_told(caller: str, stream: bool) -> None:
    usage = {"promptTokenCount": 90, "cachedContentTokenCount": 70, "candidatesTokenCount": 4,
             "totalTokenCount": 94}  # fmt: skip
    reply = {**parts_of_gemini({"text": "hi"}), "usageMetadata": usage}
    raw = sse(reply, done=False) if stream else json.dumps(reply).encode()
    wire = FakeWire(raw, kind=STREAM if stream else "application/json")
    fields = {"stream_options": {"include_usage": True}} if caller == "chat" and stream else {}
    got = ask(asked(caller, words(caller), stream, **fields), host("gemini"), wire=wire)
    read = got.tracker.usage if stream else got.reading.usage
    assert read is not None
    assert (read.input, read.cached) == (90, 70)


def linked(caller: str, url: str) -> Any:
    match caller:
        case "responses":
            parts = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "?"}]
            return [{"role": "user", "content": parts}]
        case _:
            data = {"mimeType": "image/png", "fileUri": url}
            return [{"role": "user", "parts": [{"fileData": data}, {"text": "?"}]}]


@pytest.mark.parametrize(
    ("caller", "to"), [p for p in PAIRS if p[0] in ("responses", "gemini")], ids="-to-".join
)
def test_a_link_is_fetched_by_nobody(caller: str, to: str) -> None:
    with Downloads() as server:
        wire = FakeWire(b"{}", status=500)
        dropped, refusal = "", ""
        try:
            dropped = " ".join(ask(asked(caller, linked(caller, server.url)), host(to),
                                   wire=wire).dropped)  # fmt: skip
        except Unsendable as refused:
            refusal = str(refused)
        passed_on = bool(wire.sent) and server.url in json.dumps(wire.body)
        assert ["URLs must be" in refusal, bool(dropped), passed_on].count(True) == 1
        assert not server.came()


@pytest.mark.parametrize("caller", ["messages", "responses", "gemini"])
def test_every_piece_of_a_refusal_survives(caller: str) -> None:
    pieces = [chunk({"refusal": text}) for text in ("I ", "will ", "not.")]
    wire = FakeWire(sse(*pieces, chunk({}, "stop")), kind=STREAM)
    got = ask(asked(caller, words(caller), True), host("chat"), wire=wire)
    assert STREAMS[caller](got.raw).text == "I will not."


@pytest.mark.parametrize("caller", ["messages", "responses", "gemini"])
def test_a_reply_without_a_service_tier_is_one(caller: str) -> None:
    said = {"role": "assistant", "content": "hi"}
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
             "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}  # fmt: skip
    wire = FakeWire(json.dumps(reply).encode())
    got = ask(asked(caller, words(caller)), provider("groq", "http://up.test/v1"), wire=wire)
    assert got.status == 200
    assert b"hi" in got.raw


@pairs
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_headers_of_the_provider_are_kept(
    up: Upstream, caller: str, to: str, stream: bool
) -> None:
    got = ask(asked(caller, words(caller), stream), host(to, up.url), "header-x-own=1")
    assert got.headers["x-own"] == "1"


@callers
def test_litellm_does_not_name_itself_to_openrouter(caller: str) -> None:
    wire = FakeWire(b"{}", status=500)
    ask(asked(caller, words(caller)), provider("openrouter", "http://up.test/v1"), wire=wire)
    (request,) = wire.sent
    assert "litellm" not in repr(request).lower()
    assert {name.lower() for name, _ in request.headers}.isdisjoint({"http-referer", "x-title"})
    assert "usage" not in wire.body


@callers
@pytest.mark.parametrize("secret", [None, ""], ids=["none", "empty"])
@pytest.mark.parametrize("name", ["openai", "custom_openai", "zai", "hosted_vllm"])
def test_no_key_of_the_environment_goes_anywhere(
    monkeypatch: pytest.MonkeyPatch, caller: str, name: str, secret: str | None
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID", "ZAI_API_KEY",
                     "HOSTED_VLLM_API_KEY", "LITELLM_API_KEY"):  # fmt: skip
        monkeypatch.setenv(variable, "canary")
    wire = FakeWire(b"{}", status=500)
    to = provider(name, "http://up.test/v1")
    ask(asked(caller, words(caller)), to, secret=secret, wire=wire)
    (request,) = wire.sent
    assert "canary" not in repr(request)


@pairs
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_long_name_of_a_tool_comes_back_whole(
    up: Upstream, caller: str, to: str, stream: bool
) -> None:
    call = asked(caller, words(caller), stream, **tool(caller, LONG))
    got = ask(call, host(to, up.url), "tool")
    assert got.status == 200
    assert LONG in {each["name"] for each in dicts(got.events if stream else [got.json])
                    if "name" in each}  # fmt: skip


@pytest.mark.parametrize("to", ["messages", "chat"])
def test_items_of_responses_end_before_others_begin_and_keep_their_seal(
    up: Upstream, to: str
) -> None:
    call = asked("responses", words("responses"), True, **tool("responses", "look"),
                 include=["reasoning.encrypted_content"], store=False)  # fmt: skip
    got = ask(call, host(to, up.url), "thinking;text=hi;tool")
    heard = STREAMS["responses"](got.raw)
    assert (heard.ending, heard.text, len(heard.calls)) == ("complete", "hi", 1)
    assert heard.thinking
    assert len(heard.signatures) == 1
    kinds = [each["item"]["type"] for each in got.events
             if each["type"] == "response.output_item.done"]  # fmt: skip
    assert kinds == ["reasoning", "message", "function_call"]


COUNTED: dict[str, dict[str, Any]] = {
    "chat": {"stream_options": {"include_usage": True}},
    "messages": {},
    "responses": {},
    "gemini": {},
}


@pairs
def test_the_first_event_tells_no_more_than_the_provider_has(
    up: Upstream, caller: str, to: str
) -> None:
    """LiteLLM begins a reply before its provider has answered, with no tokens in the prompt."""
    got = ask(asked(caller, words(caller), True), host(to, up.url), "status=529;retry-after=7")
    assert (got.status, got.headers["retry-after"]) == (529, "7")
    up.clear()
    got = ask(asked(caller, words(caller), True, **COUNTED[caller]), host(to, up.url), "usage=30,4")
    told = got.tracker.usage
    assert told is not None
    assert (told.input, told.output) == (30, 4)
