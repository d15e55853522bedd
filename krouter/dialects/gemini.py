"""Google's generateContent.

Source: the Gemini API reference, "Generating content" and "API versions"; the Google Cloud API
design guide, "Errors". The path names the model and the method; a stream has no closing mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from krouter.body import Body, dump
from krouter.dialects.base import (
    UNREADABLE,
    Asked,
    CallError,
    Kind,
    Reading,
    Tracker,
    Usage,
    as_count,
    error_status,
    read_loosely,
    rename,
    skimmed,
    told_message,
)
from krouter.dialects.thinking import signatures_of
from krouter.sse import Event, encode, with_data

WHOLE, STREAMED = "generateContent", "streamGenerateContent"

_OTHER_METHODS = {
    "countTokens": "counts no tokens in this dialect: POST /v1/messages/count_tokens",
    "embedContent": "embeds nothing in this dialect: POST /v1/embeddings",
    "batchEmbedContents": "embeds nothing in this dialect: POST /v1/embeddings",
}

_STATUS_OF = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}


class _Part(msgspec.Struct, rename="camel"):
    text: Any = None
    function_call: Any = None
    inline_data: Any = None
    file_data: Any = None
    executable_code: Any = None
    code_execution_result: Any = None
    thought_signature: Any = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: Any = 0
    finish_reason: Any = None


class _PlainCandidate(msgspec.Struct, rename="camel"):
    index: Any = 0
    finish_reason: Literal[""] | None = None


class _FullCandidate(_Candidate, rename="camel"):
    content: _Content | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: Any = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: Any = None
    error: Any = None


class _PlainChunk(msgspec.Struct, rename="camel"):
    """A `_Chunk` that tells no more than counts: any other is refused."""

    candidates: list[_PlainCandidate] | None = None
    prompt_feedback: None = None
    usage_metadata: Any = None
    error: None = None


class _FullChunk(msgspec.Struct, rename="camel"):
    """A whole reply, or a chunk of which it matters what it says."""

    candidates: list[_FullCandidate] | msgspec.UnsetType | None = msgspec.UNSET
    prompt_feedback: _Feedback | None = None
    usage_metadata: Any = None
    model_version: Any = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk).decode
_plain_chunk = msgspec.json.Decoder(_PlainChunk).decode
_full_chunk = msgspec.json.Decoder(_FullChunk).decode

_SAYS = (
    "text",
    "function_call",
    "inline_data",
    "file_data",
    "executable_code",
    "code_execution_result",
)


class GeminiTracker:
    """Complete once every candidate asked for has a finish reason, or the prompt was blocked.
    Closed by an error alone: counts may follow the finish reason.

    Comments are left out and `data:` is followed by a space, since Google's own clients break on
    the one and on the lack of the other.
    """

    def __init__(self, wanted: int, rename: str | None) -> None:
        self.started = self.has_content = self.complete = self.closed = False
        self.error = b""
        self.error_status: int | None = None
        self.malformed = 0
        self.signed: list[str] = []
        self._counts: dict[str, Any] | None = None
        self._wanted = wanted
        self._finished: set[int] = set()
        self._rename = rename

    @property
    def usage(self) -> Usage | None:
        """Read when it is asked for, since each chunk tells it anew."""
        return read_usage(self._counts)

    def feed(self, event: Event) -> bytes | None:
        raw = event.data
        if not raw:
            return b""
        chunk = self._read(raw)
        if event.name == b"error" or (chunk is not None and chunk.error):
            return self._fail(chunk.error if chunk else None, raw)
        if chunk is None:
            return self._unread(raw)
        self.started = True
        if isinstance(chunk, _FullChunk):
            self._look_into(chunk.candidates or ())
        self._note(chunk)
        if self._rename is not None:
            raw = rename(raw, self._rename, "modelVersion")
        elif _is_plain(event.raw):
            return None
        return with_data(event, raw) if _is_plain(event.raw) else encode(raw)

    def skim(self, events: bytes) -> int:
        if self._rename is not None or b"thoughtSignature" in events:
            return 0
        chunks, size = skimmed(events, _plain_chunk)
        for chunk in chunks:
            self._count(chunk.usage_metadata)
        return size

    def _read(self, raw: bytes) -> _Chunk | _FullChunk | None:
        """What is said is looked into until something has been, and for signatures."""
        is_full = not self.has_content or b"thoughtSignature" in raw
        try:
            return _full_chunk(raw) if is_full else _chunk(raw)
        except UNREADABLE:
            return read_loosely(raw, _FullChunk) if is_full else read_loosely(raw, _Chunk)

    def _unread(self, raw: bytes) -> bytes | None:
        """Google puts the error of a stream into a list."""
        listed = read_loosely(raw, list)
        if listed and isinstance(listed[0], dict) and listed[0].get("error"):
            self._fail(listed[0]["error"], dump(listed[0]))
            return encode(self.error)
        if not raw.startswith(b"[DONE]"):  # which gateways add
            self.malformed += 1
        return b""

    def _fail(self, error: Any, raw: bytes) -> bytes | None:
        """An error passes as it came where clients see that it is one."""
        self.error, self.error_status = raw, error_status(raw)
        self.started = self.closed = True
        if isinstance(error, dict):
            return None
        message = told_message(error or read_loosely(raw, dict), raw)
        return GEMINI.error_event(self.error_status, message, {})

    def _look_into(self, candidates: Iterable[_FullCandidate]) -> None:
        for part in _parts(candidates):
            self.has_content = self.has_content or _says(part)
            if isinstance(part.thought_signature, str) and part.thought_signature:
                self.signed.append(part.thought_signature)

    def _note(self, chunk: _Chunk | _FullChunk) -> None:
        for candidate in chunk.candidates or ():
            if candidate.finish_reason:
                index = candidate.index
                self._finished.add(index if isinstance(index, int) else 0)
        self.complete = len(self._finished) >= self._wanted or self.complete or _is_blocked(chunk)
        self._count(chunk.usage_metadata)

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts = usage


def _is_plain(event: bytes) -> bool:
    """Whether every line has the form that Google's own have."""
    return all(line.startswith(b"data: ") for line in event.splitlines() if line)


def _parts(candidates: Iterable[_FullCandidate]) -> Iterable[_Part]:
    return (part for one in candidates if one.content for part in one.content.parts or ())


def _says(part: _Part) -> bool:
    return any(getattr(part, name) for name in _SAYS)


def _is_blocked(reply: _Chunk | _FullChunk) -> bool:
    return reply.prompt_feedback is not None and bool(reply.prompt_feedback.block_reason)


def read_usage(usage: Any) -> Usage | None:
    """`usageMetadata` of a reply or chunk; None where it holds no counts. Thoughts are counted
    beside what the candidates say, a tool's results beside the prompt."""
    if not isinstance(usage, dict):
        return None
    prompt, tools, output, thoughts, cached = (
        as_count(usage.get(f"{name}TokenCount"))
        for name in ("prompt", "toolUsePrompt", "candidates", "thoughts", "cachedContent")
    )
    return Usage(prompt + tools, output + thoughts, cached)


class Gemini:
    name = "gemini"
    paths: tuple[str, ...] = ()
    prefix = "/v1beta/models/"
    keep_alive = b""  # Google's clients break on comments

    def asked(self, body: Body, path: str) -> Asked:
        model, _, method = path.removeprefix(self.prefix).rpartition(":")
        model = _model_named(model)
        if method in _OTHER_METHODS:
            raise CallError(f"krouter {_OTHER_METHODS[method]}.", 501)
        if method not in (WHOLE, STREAMED):
            raise CallError(f"There is nothing at {path}: ask for MODEL:{WHOLE}.", 404)
        if not model.strip():
            raise CallError("The path names no model: a combo, or provider/model.")
        first = bytes(memoryview(body.fields.get("contents", b""))[:1])
        if first not in (b"[", b"{"):
            raise CallError("The field 'contents' must be a content or a list of contents.")
        return Asked(model, method == STREAMED)

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        return {}

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        config = body.value("generationConfig") or body.value("generation_config")
        wanted = config.get("candidateCount") if isinstance(config, dict) else None
        return GeminiTracker(wanted if isinstance(wanted, int) and wanted > 1 else 1, rename)

    def read_reply(self, raw: bytes) -> Reading:
        reply: _FullChunk | None
        try:
            reply = _full_chunk(raw)
        except UNREADABLE:
            reply = read_loosely(raw, _FullChunk)
        if reply is None:
            return Reading(Kind.GARBAGE)
        if reply.error:
            return Reading(Kind.ERROR, error=raw, status=error_status(raw))
        signs = (reply.prompt_feedback, reply.usage_metadata, reply.model_version)
        if reply.candidates is msgspec.UNSET and signs == (None, None, None):
            return Reading(Kind.GARBAGE)
        candidates = reply.candidates or ()
        answered = any(map(_has_said, _parts(candidates))) or any(
            candidate.finish_reason == "STOP" for candidate in candidates
        )
        signed = signatures_of(
            {"thoughtSignature": part.thought_signature} for part in _parts(candidates)
        )
        kind = Kind.ANSWER if answered else Kind.EMPTY
        return Reading(kind, read_usage(reply.usage_metadata), signed=signed)

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        return rename(raw, model, "modelVersion")

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        told = told[0] if isinstance(told, list) and told else told  # as for a stream
        around = told if isinstance(told, dict) else {}
        error = around.get("error")
        if not isinstance(error, dict) or not isinstance(error.get("status"), str):
            around, error = {}, {"code": status, "status": status_name(status)}
        error = {"code": status, **error, "message": message, **notes}
        try:
            return dump({**around, "error": error})
        except RecursionError:
            return self.error_body(status, message, notes, None)

    def error_event(
        self, status: int, message: str, notes: Mapping[str, Any], after: Tracker | None = None
    ) -> bytes:
        return encode(self.error_body(status, message, notes, None))

    def ending(self, tracker: Tracker) -> bytes:
        return b""


def _model_named(path: str) -> str:
    """Google's clients put `models/` before a name, also before one that follows a provider's."""
    provider, slash, model = path.removeprefix("models/").partition("/")
    return f"{provider}{slash}{model.removeprefix('models/')}"


def _has_said(part: _Part) -> bool:
    return _says(part) and (not isinstance(part.text, str) or bool(part.text.strip()))


def names_method(path: str) -> bool:
    """Whether a path ends in one of Google's methods; names of models may hold a colon too."""
    method = path.rpartition(":")[2]
    return method in (WHOLE, STREAMED, *_OTHER_METHODS)


def status_name(status: int) -> str:
    """Google's name for an HTTP status."""
    return _STATUS_OF.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")


GEMINI = Gemini()
