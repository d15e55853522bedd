"""What clients cannot do without, left out one piece at a time: krouter's own streams have each of
them, whoever the provider is, and the validators fail where one is missing.

Measured on Claude Code, Codex, opencode, Copilot, Qwen Code, Cline, Continue, Gemini CLI and the
vendors' SDKs. What none of them needs is in the table too: krouter sends it all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from krouter.sse import encode
from tests.emitted import STREAMS
from tests.harness import Krouter
from tests.upstream import Behaviour, Upstream
from tests.validators import Heard, events

DIALECTS = ("chat", "messages", "responses", "gemini")
BASES = {"chat": "/v1", "messages": "", "responses": "", "gemini": ""}
FULL = "thinking;text=It%20is%20sunny.;tool=look;args=%7B%22at%22:%22sea%22%7D;usage=30,8;chunks=3"
TOOL = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
TOOLS: dict[str, dict[str, Any]] = {
    "chat": {
        "tools": [{"type": "function", "function": TOOL}],
        "stream_options": {"include_usage": True},
    },
    "messages": {"tools": [{"name": "look", "input_schema": TOOL["parameters"]}]},
    "responses": {"tools": [{"type": "function", **TOOL}]},
    "gemini": {
        "tools": [{"functionDeclarations": [TOOL]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    },
}
Told = list[tuple[str, Any]]
"""Name and data of each event."""


class Piece(NamedTuple):
    """`without` takes it out, or spoils it; the result is the same list where it is not there."""

    dialect: str
    name: str
    without: Callable[[Told], Told]


def left_out(dialect: str, name: str, *kinds: str) -> Piece:
    """Events of these types."""

    def without(told: Told) -> Told:
        return [(event, data) for event, data in told if data["type"] not in kinds]

    return Piece(dialect, name, without)


def lacking(dialect: str, name: str, change: Callable[[Any], object]) -> Piece:
    """A field; `change` is shown each event's data, and takes it out."""

    def without(told: Told) -> Told:
        changed = deepcopy(told)
        for _, data in changed:
            if isinstance(data, dict):
                change(data)
        return changed

    return Piece(dialect, name, without)


def pop(*path: str) -> Callable[[Any], object]:
    """Takes out what stands at `path`, of each item where there is a list."""

    def take(data: Any, path: tuple[str, ...]) -> None:
        if isinstance(data, list):
            for each in data:
                take(each, path)
        elif isinstance(data, dict):
            if len(path) == 1:
                data.pop(path[0], None)
            else:
                take(data.get(path[0]), path[1:])

    return lambda data: take(data, path)


def put(value: Any, *path: str) -> Callable[[Any], object]:
    """Puts another value where there is one."""

    def change(data: Any) -> None:
        for name in path[:-1]:
            data = data.get(name) if isinstance(data, dict) else None
        if isinstance(data, dict) and data.get(path[-1]):
            data[path[-1]] = value

    return change


def without_names(told: Told) -> Told:
    return [("", data) for _, data in told]


def with_unknown(place: int) -> Callable[[Told], Told]:
    unknown = ("unheard_of", {"type": "unheard_of", "sequence_number": 0})
    return lambda told: [*told[:place], unknown, *told[place:]]


def in_end(change: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda data: change(data) if data["type"] == "response.completed" else None


def without_done(told: Told) -> Told:
    return [each for each in told if each[1] != "[DONE]"]


def without_usage_chunk(told: Told) -> Told:
    return [each for each in told if not (isinstance(each[1], dict) and each[1].get("usage"))]


PIECES = (
    Piece("messages", "event lines", without_names),
    left_out("messages", "content_block_stop", "content_block_stop"),
    lacking("messages", "message_start.usage", pop("message", "usage")),
    lacking("messages", "all usage", lambda d: (pop("message", "usage")(d), pop("usage")(d))),
    left_out("messages", "message_delta", "message_delta"),
    lacking("messages", "stop_reason", pop("delta", "stop_reason")),
    left_out("messages", "message_stop", "message_stop"),
    lacking("messages", "id", pop("message", "id")),
    lacking("messages", "model", pop("message", "model")),
    lacking("messages", "role", pop("message", "role")),
    Piece("messages", "no unknown event", with_unknown(1)),
    left_out("responses", "response.created", "response.created"),
    left_out("responses", "output_item.added", "response.output_item.added"),
    left_out("responses", "content_part.added", "response.content_part.added"),
    left_out("responses", "text deltas", "response.output_text.delta"),
    left_out("responses", "argument deltas", "response.function_call_arguments.delta"),
    left_out("responses", "output_item.done", "response.output_item.done"),
    left_out("responses", "response.completed", "response.completed"),
    lacking("responses", "usage in the end", in_end(put(None, "response", "usage"))),
    lacking("responses", "output in the end", in_end(put([], "response", "output"))),
    Piece("responses", "event lines", without_names),
    lacking("responses", "model", pop("response", "model")),
    Piece("responses", "no unknown event first", with_unknown(0)),
    lacking("chat", "finish_reason", pop("choices", "finish_reason")),
    lacking("chat", "tool_calls[].index", pop("choices", "delta", "tool_calls", "index")),
    lacking("chat", "id", pop("id")),
    lacking("chat", "model", pop("model")),
    Piece("chat", "[DONE]", without_done),
    lacking("chat", "role", pop("choices", "delta", "role")),
    lacking("chat", "created", pop("created")),
    Piece("chat", "usage chunk", without_usage_chunk),
    lacking("gemini", "finishReason", pop("candidates", "finishReason")),
    lacking("gemini", "usageMetadata", pop("usageMetadata")),
    lacking("gemini", "role", pop("candidates", "content", "role")),
    lacking("gemini", "args", pop("candidates", "content", "parts", "functionCall", "args")),
)


def told_in(raw: bytes) -> Told:
    return [
        (
            event.name.decode(),
            "[DONE]" if event.data == b"[DONE]" else json.loads(event.data or b""),
        )
        for event in events(raw)
    ]


def written(told: Told) -> bytes:
    return b"".join(
        encode(data.encode() if isinstance(data, str) else json.dumps(data).encode(), name)
        for name, data in told
    )


def heard_in(raw: bytes, dialect: str) -> Heard:
    """Of a whole stream; raises AssertionError for one that no strict client could read."""
    try:
        heard = STREAMS[dialect](raw)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AssertionError(repr(error)) from error
    assert heard.ending == "complete"
    assert heard.usage, "a client counts tokens"
    return heard


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory, up: Upstream) -> Iterator[Krouter]:
    settings = "".join(
        f'[provider.of-{dialect}]\nspeaks = ["{dialect}"]\n'
        f'base_urls = {{ {dialect} = "{up.url}{base}" }}\n'
        for dialect, base in BASES.items()
    )
    with Krouter(tmp_path_factory.mktemp("home"), settings=settings) as served:
        yield served


@pytest.fixture(autouse=True)
def _fresh(krouter: Krouter, up: Upstream) -> None:
    up.clear()
    krouter.forget()


def stream(krouter: Krouter, caller: str, spoken: str, does: str = FULL) -> bytes:
    reply = krouter.ask(caller, f"of-{spoken}/{does}", True, **TOOLS[caller])
    assert reply.status_code == 200, reply.text
    return reply.content


@pytest.mark.parametrize("spoken", DIALECTS)
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: f"{piece.dialect}-{piece.name}")
def test_it_is_there_and_missed(krouter: Krouter, piece: Piece, spoken: str) -> None:
    whole = told_in(stream(krouter, piece.dialect, spoken))
    heard = heard_in(written(whole), piece.dialect)
    assert heard.text == "It is sunny."
    assert heard.calls == [("look", {"at": "sea"})]
    poorer = piece.without(whole)
    assert poorer != whole, "krouter sends it"
    with pytest.raises(AssertionError):
        heard_in(written(poorer), piece.dialect)


@pytest.mark.parametrize("spoken", DIALECTS)
@pytest.mark.parametrize(
    ("old", "new"), [(b"data: ", b"data:"), (b"data: ", b": still here\ndata: ")],
    ids=["a space after data", "no comments"],
)  # fmt: skip
def test_geminis_lines(krouter: Krouter, spoken: str, old: bytes, new: bytes) -> None:
    """Gemini CLI alone breaks on comments and on a missing space."""
    raw = stream(krouter, "gemini", spoken)
    heard_in(raw, "gemini")
    with pytest.raises(AssertionError, match="no comments, and a space before data"):
        heard_in(raw.replace(old, new, 1), "gemini")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_ping_more_or_less_matters_to_nobody(krouter: Krouter, dialect: str) -> None:
    raw = stream(krouter, "messages", dialect)
    told = [each for each in told_in(raw) if each[0] != "ping"]
    pinged = [*told[:2], ("ping", {"type": "ping"}), *told[2:]]
    for each in (told, pinged):
        assert heard_in(written(each), "messages").calls


ENDS = {
    "chat": {"finish_reason"},
    "messages": {"message_delta", "stop_reason", "message_stop"},
    "responses": {"response.completed"},
    "gemini": {"finishReason"},
}
"""Without these a stream has no proper end."""


def other_than(dialect: str) -> tuple[str, ...]:
    return tuple(each for each in DIALECTS if each != dialect)


OF_PROVIDERS = [
    pytest.param(piece, caller, id=f"{piece.dialect}-{piece.name}-to-{caller}")
    for piece in PIECES
    for caller in other_than(piece.dialect)
]


def spoiled(krouter: Krouter, up: Upstream, piece: Piece) -> bytes:
    """The provider's next stream lacks the piece; the bytes that it will send."""
    whole = told_in(stream(krouter, piece.dialect, piece.dialect))
    raw = written(piece.without(whole))
    kind = (("content-type", "text/event-stream"),)
    up.script("poor", [Behaviour(body=raw, headers=kind)])
    return raw


@pytest.mark.parametrize(("piece", "caller"), OF_PROVIDERS)
def test_a_provider_that_leaves_it_out(
    krouter: Krouter, up: Upstream, piece: Piece, caller: str
) -> None:
    """Translated, the stream has all that a client needs, or says that it is cut."""
    spoiled(krouter, up, piece)
    raw = stream(krouter, caller, piece.dialect, "poor")
    if piece.name in ENDS[piece.dialect]:
        assert STREAMS[caller](raw).ending == "error"
        return
    heard = STREAMS[caller](raw)
    assert heard.ending in ("complete", "error")
    if heard.ending == "complete":
        assert heard.calls == [("look", {} if piece.name == "args" else {"at": "sea"})]


NATIVE = [pytest.param(piece, id=f"{piece.dialect}-{piece.name}") for piece in PIECES]


@pytest.mark.native_garbage("a provider that leaves out what its own clients need")
@pytest.mark.parametrize("piece", NATIVE)
def test_natively_its_bytes_pass_and_a_missing_end_is_told(
    krouter: Krouter, up: Upstream, piece: Piece
) -> None:
    sent = told_in(spoiled(krouter, up, piece))
    got = told_in(stream(krouter, piece.dialect, piece.dialect, "poor"))
    if piece.name in ENDS[piece.dialect]:
        said, (_, last) = got[: len(sent)], got[-1]
        assert "error" in (last.get("response") or last), "a stream that has no end says so"
        assert not [data for _, data in said if data == "[DONE]"]
    elif piece.name == "[DONE]":
        assert got == [*sent, ("", "[DONE]")]
    else:
        assert [data for _, data in got] == [renamed(data, piece) for _, data in sent]


def renamed(data: Any, piece: Piece) -> Any:
    """A message's model is the name that was asked for, even where the provider names none."""
    if piece.dialect == "messages" and "message" in data:
        return {**data, "message": {**data["message"], "model": "of-messages/poor"}}
    return data
