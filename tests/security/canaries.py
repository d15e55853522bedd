"""Secrets that are known wherever they turn up, and a provider that says back what it was sent."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from tests.upstream import Behaviour, Request, parse

CORES = {
    "env": "cnryenvk1a2b3c",
    "file": "cnryfilek4d5e6f",
    "command": "cnrycmdk7a8b9c",
    "setting": "cnrysetk1d2e3f",
    "caller": "cnrycallk4a5b6c",
    "x-api-key": "cnryxapik7d8e9f",
    "x-goog-api-key": "cnrygoogk1b2c3d",
    "query": "cnryqueryk4e5f6a",
    "cookie": "cnrycookk7b8c9d",
    "unused": "cnryunusedk1e2f",
    "argument": "cnryargk3a4b5c6d",
}
"""Letters and digits in the middle of each secret, which no way of writing it changes."""


def secret(name: str) -> str:
    """With all that is written differently here and there."""
    return f"sk/{CORES[name]}+&='=="


def _marks(core: str) -> Iterator[bytes]:
    yield core.encode()
    for before in range(3):
        whole = b64encode(b"\0" * before + core.encode())
        yield whole[4:-4]


def found(raw: bytes, *but: str) -> list[str]:
    """Which secrets stand there, however they are written."""
    return [
        name
        for name, core in CORES.items()
        if name not in but and any(mark in raw for mark in _marks(core))
    ]


def _as_json(text: str) -> str:
    return json.dumps(text)[1:-1]


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": _as_json,
    "slashes": lambda text: _as_json(text).replace("/", "\\/"),
    "careful": lambda text: "".join(f"\\u{ord(c):04x}" if c in "&='<>" else c for c in text),
    "percent": lambda text: quote(text, safe=""),
    "small percent": lambda text: re.sub("%..", lambda m: m[0].lower(), quote(text, safe="")),
    "html": html.escape,
    "base64": lambda text: b64encode(f"user:{text}".encode()).decode(),
    "url base64": lambda text: b64encode(f"u:{text}".encode(), b"-_").decode(),
}


@dataclass(frozen=True)
class Echo:
    """Says back the headers and the address of a request, written as `encoding` has it. `way` is
    what it does, with `{}` for the words."""

    way: str
    encoding: str

    def __call__(self, request: Request) -> Behaviour:
        written = ENCODINGS[self.encoding]
        given = [value.rpartition(" ")[2] for _, value in request.headers]
        given += request.path.replace("?", "&").split("&")[1:]
        words = " ".join(written(value) for value in given)
        return parse(self.way.replace("{}", quote(f"no such key {words} here", safe="")))


def _json(status: int) -> str:
    body = '{"error":{"message":"{}","type":"x","code":"{}"}}'
    return f"status={status};body={body};header-x-echo={{}};header-x-request-id=r-{{}}"


WAYS = (
    _json(400),
    _json(401),
    _json(403),
    _json(429),
    _json(500),
    _json(529),
    "status=307;body={};header-location=http://127.0.0.1:1/{}",
    "status=502;body=<html><p>{}</p></html>;header-x-echo={}",
    "error=0;message={};code={};header-x-echo={}",
    "error=1;message={};code={};header-x-echo={}",
    "error=json;message={};header-x-echo={}",
    "garbage=text;header-x-echo={}",
    "reset=1;header-x-echo={}",
    "ok:header-x-echo={};header-request-id={}",
)
CASES = (
    *(Echo(way, "plain") for way in WAYS),
    *(Echo(WAYS[place % 5], encoding) for place, encoding in enumerate(ENCODINGS)),
    *(Echo("ok:header-x-echo={}", encoding) for encoding in ENCODINGS),
)
