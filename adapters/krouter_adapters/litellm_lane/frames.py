"""How providers cut a stream into events, other than server-sent events.

Sources: Ollama's API reference (a JSON object per line); the AWS documentation, "Event stream
encoding".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Protocol

from krouter.sse import Event, Splitter, SSEError

MOST_FRAME = 64 << 20


class Frames(Protocol):
    def feed(self, chunk: bytes) -> list[Event]: ...

    def flush(self) -> list[Event]: ...


class Lines:
    """One JSON object a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MOST_FRAME:
            raise SSEError("a line is too long")
        return [Event(line, b"", line.strip()) for line in lines if line.strip()]

    def flush(self) -> list[Event]:
        rest, self._rest = self._rest, b""
        return [Event(rest, b"", rest.strip())] if rest.strip() else []


_PRELUDE = 12
_STRING = 7
# Bytes of a header value, by the number of its type.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}

# The status an exception of Bedrock's inside a stream stands for.
_STATUS = {
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "modelStreamErrorException": 500,
    "validationException": 400,
    "modelTimeoutException": 504,
}


class AwsFrames:
    """Binary frames: lengths, headers, payload, checksums."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        self._rest += chunk
        events = []
        while len(self._rest) >= _PRELUDE:
            total, head, _ = struct.unpack(">III", self._rest[:_PRELUDE])
            if total > MOST_FRAME or head + 16 > total:
                raise SSEError("not an event stream of AWS")
            if len(self._rest) < total:
                break
            frame, self._rest = self._rest[:total], self._rest[total:]
            headers = _headers(frame[_PRELUDE : _PRELUDE + head])
            events.append(_event(headers, frame[_PRELUDE + head : -4]))
        return events

    def flush(self) -> list[Event]:
        self._rest = b""
        return []


def _headers(data: bytes) -> dict[str, str]:
    found, at = {}, 0
    while at < len(data):
        size = data[at]
        name = data[at + 1 : at + 1 + size].decode("utf-8", "replace")
        at += 1 + size
        kind, at = data[at], at + 1
        if kind in _SIZES:
            at += _SIZES[kind]
            continue
        (length,) = struct.unpack(">H", data[at : at + 2])
        if kind == _STRING:
            found[name] = data[at + 2 : at + 2 + length].decode("utf-8", "replace")
        at += 2 + length
    return found


def _event(headers: Mapping[str, str], payload: bytes) -> Event:
    kind = headers.get(":exception-type") or headers.get(":error-code")
    if not kind:
        return Event(payload, headers.get(":event-type", "").encode(), payload)
    try:
        told = json.loads(payload)
        message = told.get("message") or told.get("Message")
    except (ValueError, AttributeError):
        message = None
    message = message or headers.get(":error-message") or kind
    error = {"message": message, "type": kind, "code": _STATUS.get(kind, 500)}
    return Event(payload, b"error", json.dumps({"error": error}).encode())


class WrappedEvents:
    """Server-sent events, cut anywhere, inside frames of AWS's."""

    def __init__(self) -> None:
        self._outer = AwsFrames()
        self._inner = Splitter()

    def feed(self, chunk: bytes) -> list[Event]:
        events = []
        for frame in self._outer.feed(chunk):
            events += [frame] if frame.name == b"error" else self._inner.feed(frame.raw)
        return events

    def flush(self) -> list[Event]:
        return self._inner.flush()


def is_wrapped(name: str) -> bool:
    """Whether even a stream in the caller's dialect must be unwrapped."""
    return name in ("sagemaker_chat", "sagemaker_nova")


def frames_for(name: str) -> Frames:
    if is_wrapped(name):
        return WrappedEvents()
    if name in ("ollama", "ollama_chat"):
        return Lines()
    return AwsFrames() if name == "bedrock" else Splitter()
