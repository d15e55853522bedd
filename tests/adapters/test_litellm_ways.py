"""Every provider that LiteLLM knows has a way, and those on the classes answer."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY
from krouter_adapters.litellm_lane.library import UNSTREAMED
from krouter_adapters.litellm_lane.ways import Way, load_ways
from krouter_adapters.rows import load_rows

from krouter.dialects.base import Kind, Usage
from krouter.providers import build_registry
from krouter.settings import Settings
from tests.adapters.lanes import SECRET, TOOLS, FakeWire, ask, call, provider
from tests.upstream import Upstream

WAYS = load_ways()
MODELS = {"ragflow": "chat/1/{}", "clarifai": "user.app.{}"} | dict.fromkeys(
    ("vertex_ai", "vertex_ai_beta"), "gemini-{}"
)
# The first sends its credential with a word of its own, the second none.
TOKEN_WORD = {"oobabooga"}
WITHOUT_KEY = {"ollama"}
# Reached by LiteLLM's own call: test_own_call.py. Signed, and their streams wrapped: test_aws.py.
CALLED = {"replicate"}
SIGNED = {"sagemaker_chat", "sagemaker_nova"}
OVER_HTTP = sorted(
    name
    for name, way in WAYS.items()
    if way.way == "classes" and way.body != "other" and name not in SIGNED
)


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def base(up: Upstream, name: str) -> str:
    """Where the provider's class puts its endpoint behind the address it is given."""
    match WAYS[name].body:
        case "gemini":
            return f"{up.url}/v1beta"
        case "messages":
            return up.url
    return up.url if name == "datarobot" else f"{up.url}/v1"


def model(name: str, behaviour: str) -> str:
    return MODELS.get(name, "{}").format(behaviour)


def test_every_name_of_this_version_has_a_way() -> None:
    """After an update of LiteLLM this lists the names that came and went."""
    library = LIBRARY.get()
    known = {str(getattr(name, "value", name)) for name in library.litellm.provider_list}
    known |= set(library.json_providers.list_providers())
    assert (sorted(known - set(WAYS)), sorted(set(WAYS) - known)) == ([], [])


@pytest.mark.parametrize("name", WAYS)
def test_a_way_is_whole(name: str) -> None:
    way: Way = WAYS[name]
    assert bool(way.reason) == (way.way == "unsupported")
    assert way.reason.endswith(".") or not way.reason
    if way.way != "unsupported":
        assert way.body in ("chat", "messages", "gemini", "other")
        assert not (way.base and way.base_like)
        assert way.base is None or way.base.startswith(
            ("https://", "http://localhost", "http://127.")
        )
        assert way.env or way.keyless or way.base is None


def test_every_way_is_tried_somewhere() -> None:
    ways = {
        way: {name for name in WAYS if WAYS[name].way == way}
        for way in ("classes", "call", "unsupported")
    }
    assert ways["classes"] == {*OVER_HTTP, *OTHERS, *SIGNED}
    assert ways["call"] == CALLED
    assert ways["unsupported"] == set(WAYS) - ways["classes"] - ways["call"]


def test_a_name_without_a_row_is_a_provider() -> None:
    registry = build_registry(load_rows(), Settings())
    for name in WAYS:
        assert registry.find(name) is not None
    cohere = registry.find("cohere_chat")
    assert cohere is not None
    assert cohere.env == ("COHERE_API_KEY", "CO_API_KEY")
    assert cohere.speaks == ()


def test_a_row_comes_before_a_name_of_litellms() -> None:
    registry = build_registry(load_rows(), Settings())
    names = {name: registry.find(name) for name in ("zai", "moonshot", "vllm", "dashscope")}
    assert {name: found.name for name, found in names.items() if found} == {
        "zai": "glm",
        "moonshot": "kimi",
        "vllm": "vllm",
        "dashscope": "qwen",
    }


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("name", OVER_HTTP)
def test_a_provider_on_the_classes_answers(
    up: Upstream, name: str, dialect: str, stream: bool
) -> None:
    up.clear()
    up.script("*", ["ok"])
    asked = call(dialect, stream, tools=TOOLS[dialect])
    got = ask(asked, provider(name, base(up, name)), model(name, "m"))
    assert got.status == 200
    if stream:
        assert got.tracker.complete
        assert got.tracker.has_content
        assert got.tracker.malformed == 0
    else:
        assert got.reading.kind is Kind.ANSWER
        assert b"All is well" in got.raw
    (request,) = up.requests
    if name not in TOKEN_WORD:
        assert request.credential == SECRET
    assert request.json["tools"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("name", OVER_HTTP)
def test_an_error_comes_back_as_it_was(up: Upstream, name: str, dialect: str, stream: bool) -> None:
    up.clear()
    to = provider(name, base(up, name))
    up.script("*", ["status=429;retry-after=7;message=slow down"])
    got = ask(call(dialect, stream), to, model(name, "m"))
    assert (got.status, got.headers["retry-after"]) == (429, "7")
    assert b"slow down" in got.raw
    assert len(up.requests) == 1


def whole(value: Any) -> bytes:
    return json.dumps(value).encode()


def sse(*events: Any) -> tuple[bytes, ...]:
    return tuple(b"data: " + whole(event) + b"\n\n" for event in events)


def aws(
    kind: str, payload: Any, raw: bytes | None = None, kind_header: str = ":event-type"
) -> bytes:
    headers = b""
    for name, value in ((kind_header, kind), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07"
        headers += struct.pack(">H", len(value)) + value.encode()
    body = whole(payload) if raw is None else raw
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return frame + struct.pack(">I", zlib.crc32(frame))


COHERE = {
    "id": "c1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "hi there"}]},
    "usage": {"tokens": {"input_tokens": 3, "output_tokens": 2}},
}
COHERE_EVENTS = sse(
    {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "hi there"}}}},
    {"type": "message-end", "delta": {k: COHERE[k] for k in ("finish_reason", "usage")}},
)
OLLAMA = {
    "model": "m",
    "created_at": "x",
    "message": {"role": "assistant", "content": "hi there"},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 3,
    "eval_count": 2,
}
OLLAMA_EVENTS = (
    whole({**OLLAMA, "done": False}) + b"\n",
    whole({**OLLAMA, "message": {"role": "assistant", "content": ""}}) + b"\n",
)
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [{"text": "hi there"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
}
BEDROCK_TEXT = aws("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hi there"}})
BEDROCK_EVENTS = (
    aws("messageStart", {"role": "assistant"}) + BEDROCK_TEXT[:20],
    BEDROCK_TEXT[20:] + aws("messageStop", {"stopReason": "end_turn"}),
    aws("metadata", {"usage": BEDROCK["usage"], "metrics": {"latencyMs": 1}}),
)
COUNTS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
GIGACHAT = {
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi there"},
            "finish_reason": "stop",
        }
    ],
    "usage": COUNTS,
}
GIGACHAT_EVENTS = sse(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "hi there"}}]},
    {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}], "usage": COUNTS},
)
A2A = {"kind": "message", "messageId": "1", "role": "agent"}
OTHERS: dict[str, tuple[str, Any, tuple[bytes, ...]]] = {
    "cohere": ("https://api.cohere.com/v2/chat", COHERE, COHERE_EVENTS),
    "cohere_chat": ("https://api.cohere.com/v2/chat", COHERE, COHERE_EVENTS),
    "ollama_chat": ("http://localhost:11434/api/chat", OLLAMA, OLLAMA_EVENTS),
    "ollama": (
        "http://localhost:11434/api/generate",
        {**OLLAMA, "response": "hi there"},
        (
            whole({"model": "m", "response": "hi there", "done": False}) + b"\n",
            whole({**OLLAMA, "response": ""}) + b"\n",
        ),
    ),
    "bedrock": ("https://b.example/model/m/converse", BEDROCK, BEDROCK_EVENTS),
    "gigachat": (
        "https://gigachat.devices.sberbank.ru/api/v1/chat/completions",
        GIGACHAT,
        GIGACHAT_EVENTS,
    ),
    "nlp_cloud": (
        "https://api.nlpcloud.io/v1/gpu/m/generation",
        {"generated_text": "hi there", "nb_input_tokens": 3, "nb_generated_tokens": 2},
        (),
    ),
    "bytez": (
        "https://api.bytez.com/models/v2/m",
        {"output": {"role": "assistant", "content": [{"type": "text", "text": "hi there"}]}},
        (),
    ),
    "a2a": (
        "https://a.example",
        {"jsonrpc": "2.0", "result": {**A2A, "parts": [{"kind": "text", "text": "hi there"}]}},
        (),
    ),
    "databricks_agent": (
        "https://d.example/serving-endpoints/m/invocations",
        {
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "hi there"}],
                }
            ]
        },
        (),
    ),
}
BASES = {
    "bedrock": "https://b.example",
    "a2a": "https://a.example",
    "databricks_agent": "https://d.example",
}


def test_all_that_is_not_run_on_a_socket_is_run_on_bytes() -> None:
    ways = {name for name, way in WAYS.items() if way.way == "classes"}
    assert set(OTHERS) == ways - set(OVER_HTTP) - SIGNED
    assert {name for name, (_, _, events) in OTHERS.items() if not events} == UNSTREAMED


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_provider_with_a_format_of_its_own_answers(name: str, dialect: str, stream: bool) -> None:
    url, reply, events = OTHERS[name]
    streamed = stream and events
    wire = FakeWire(
        *(events if streamed else (whole(reply),)),
        kind="text/event-stream" if streamed else "application/json",
    )
    to = provider(name, BASES.get(name) or WAYS[name].base)
    got = ask(call(dialect, stream), to, wire=wire)
    assert (got.status, got.dropped) == (200, ())
    assert "hi there" in got.raw.decode()
    usage = got.tracker.usage if stream else got.reading.usage
    if name not in ("a2a", "bytez", "databricks_agent"):
        assert usage == Usage(3, 2)
    if stream:
        assert got.tracker.complete
        assert got.tracker.malformed == 0
    else:
        assert got.reading.kind is Kind.ANSWER
    (sent,) = wire.sent
    assert sent.url.removesuffix("-stream") == url
    assert any(SECRET in value for _, value in sent.headers) or name in WITHOUT_KEY


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("name", [name for name, (_, _, events) in OTHERS.items() if events])
def test_a_cut_stream_has_no_end(name: str, dialect: str) -> None:
    _, _, events = OTHERS[name]
    cut = events[:1] if name != "bedrock" else (events[0], BEDROCK_TEXT[20:])
    wire = FakeWire(*cut, kind="text/event-stream")
    got = ask(call(dialect, True), provider(name, BASES.get(name) or WAYS[name].base), wire=wire)
    assert not got.tracker.complete
    assert not got.tracker.error
