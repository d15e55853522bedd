"""What the router asks of a dialect: pure functions over bodies and events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from krouter.body import Body, BodyError
from krouter.errortext import read_error, stands_for
from krouter.sse import Event, plain_data, with_data


class Kind(StrEnum):
    """What a 2xx JSON body is."""

    ANSWER = "answer"
    EMPTY = "empty"
    ERROR = "error"
    GARBAGE = "garbage"


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one attempt. `input` is the whole prompt, with `cached` and `cache_write`; of a
    `partial` one not all has been told."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    partial: bool = False

    def plus(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.partial or other.partial,
        )


class Reading(msgspec.Struct, frozen=True):
    """A JSON reply as its dialect reads it. `error` is the body of an error inside a 200 and
    `status` the HTTP status it stands for."""

    kind: Kind
    usage: Usage | None = None
    error: bytes = b""
    status: int | None = None
    signed: tuple[str, ...] = ()
    """The signatures of its thinking."""
    shown: bytes | None = None
    """What the caller is to see in its place; None where it is shown as it came."""


class CallError(ValueError):
    """A request that cannot be routed; the message says what is wrong with it."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class Asked(NamedTuple):
    """What a request asks for: the name of a combo or a model, and whether as a stream."""

    model: str
    stream: bool


class Tracker(Protocol):
    """Follows one stream. Fed every event in turn, it knows how far the reply has come."""

    started: bool
    """An event other than a comment or a ping has come."""
    has_content: bool
    """Text, reasoning or a tool call has come."""
    complete: bool
    """The dialect's proper end has come, but for a closing mark krouter can supply."""
    closed: bool
    """Nothing more is to come."""
    error: bytes
    """The body of an error event, or empty."""
    error_status: int | None
    malformed: int
    """How many events were not the dialect's JSON; they are left out."""
    signed: list[str]
    """The signatures of thinking that have come."""

    @property
    def usage(self) -> Usage | None: ...

    def feed(self, event: Event) -> bytes | None:
        """None to pass the event on as it is, else the bytes to send in its place."""

    def skim(self, events: bytes) -> int:
        """Takes in the first of some whole events, as far as it is plain that `feed` would let
        them pass and learn next to nothing; how many bytes they have. To be asked once content has
        come, which makes it most of a stream."""


class Dialect(Protocol):
    """A wire format. One file defines one; `krouter.dialects.get` finds it by name."""

    name: str
    paths: tuple[str, ...]
    """Its endpoints."""
    prefix: str
    """How the paths of its endpoints begin, where they name the model; empty where they do not."""

    keep_alive: bytes
    """What tells a caller that waits for a stream that it is not forgotten, as SSE bytes; empty
    where clients of the dialect take nothing of the kind."""

    def asked(self, body: Body, path: str) -> Asked:
        """Raises CallError."""

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        """Fields to change in every request of this dialect."""

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        """A tracker for the reply to `body`; `rename` is the model name the caller is to see."""

    def read_reply(self, raw: bytes) -> Reading: ...

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        """A JSON reply that names `model`; unchanged if it already does."""

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        """An error reply. `told` is the provider's parsed error body, whose fields are kept where
        it has the dialect's form; `notes` are added to the error object."""

    def error_event(
        self,
        status: int,
        message: str,
        notes: Mapping[str, Any],
        after: Tracker | None = None,
    ) -> bytes:
        """An error after the stream has begun, as SSE bytes; `after` has followed what came."""

    def ending(self, tracker: Tracker) -> bytes:
        """What is missing after a complete stream, or after an error event of the provider's, as
        SSE bytes."""


UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What a decoder of msgspec raises."""

_MOST_TOKENS = 1 << 53
_HALF = re.compile("[\ud800-\udfff]")

_T = TypeVar("_T")


def read_loosely(raw: bytes, kind: type[_T]) -> _T | None:
    """What a strict decoder refuses but clients take: an emoji cut in half, NaN, huge numbers.
    None where it is no JSON of that kind."""
    try:
        return msgspec.convert(json.loads(raw.decode("utf-8", "replace")), kind)
    except (ValueError, *UNREADABLE):
        return None


def skimmed(events: bytes, decode: Callable[[bytes], _T]) -> tuple[list[_T], int]:
    """What `decode` makes of the first of some whole events, until it refuses one; and how many
    bytes they have."""
    data, more = plain_data(events)
    read: list[_T] = []
    try:
        read.extend(map(decode, data))
    except UNREADABLE:
        data = data[: len(read)]
    return read, sum(map(len, data)) + more * len(data)


def without_halves(text: str) -> str:
    """`text` with a sign in place of each half of a surrogate pair, which could not be sent on."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
    return text


def asked_in(body: Body, conversation: str, kinds: str, what: str) -> Asked:
    """The `model` and `stream` of a body whose `conversation` begins with one of `kinds`, which is
    `what`. Raises CallError."""
    model = body.value("model")
    if not isinstance(model, str) or not model.strip():
        wrong = "is missing" if "model" not in body.fields else "must be a text that is not empty"
        raise CallError(f"The field 'model' {wrong}: name a combo, or provider/model.")
    stream = body.value("stream")
    if stream is not None and not isinstance(stream, bool):
        raise CallError("The field 'stream' must be true or false.")
    given = body.fields.get(conversation)
    if given is None or chr(memoryview(given)[0]) not in kinds:
        raise CallError(f"The field {conversation!r} must be {what}.")
    return Asked(model, stream is True)


def rename(raw: bytes, model: str, field: str = "model") -> bytes:
    """A JSON object that names `model` in `field`; unchanged if it does already, or cannot be
    cut."""
    try:
        body = Body.parse(raw)
    except BodyError:
        return raw
    return raw if body.value(field) == model else body.edited({field: model})


def renamed_within(event: Event, field: str, model: str) -> bytes | None:
    """The bytes of an event whose `field` holds what names the model; None to leave it as it is."""
    try:
        whole = Body.parse(event.data or b"")
    except BodyError:
        return None
    inner = rename(bytes(whole.fields[field]), model)
    return with_data(event, whole.edited({field: msgspec.Raw(inner)}))


def told_message(error: Any, raw: bytes) -> str:
    """The words of an error that has not the dialect's form."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error")
    return error if isinstance(error, str) and error else raw.decode("utf-8", "replace")


def error_status(raw: bytes) -> int:
    """The HTTP status that an error inside a 200 stands for; 500 where it does not say."""
    text, _ = read_error(raw)
    return stands_for(text) or 500


def count_of(value: Any) -> int | None:
    """A token count, which some hosts write as text or with a fraction of nothing; None for what
    is none."""
    if type(value) is int:
        return value if 0 <= value <= _MOST_TOKENS else None
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= _MOST_TOKENS else None


def as_count(value: Any) -> int:
    """A token count; anything else counts as none."""
    return 0 if value is None else count_of(value) or 0


def has_text(value: Any) -> bool:
    """Whether a content field holds something visible: text, or a block that is not blank text."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list):
        return any(map(_has_block, value))
    return bool(value)


def _has_block(block: Any) -> bool:
    if isinstance(block, str):
        return bool(block.strip())
    if not isinstance(block, dict) or block.get("type") not in ("text", "output_text"):
        return bool(block)
    text = block.get("text")
    return bool(text.strip() if isinstance(text, str) else text)
