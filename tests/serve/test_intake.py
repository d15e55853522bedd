"""Reading a request, part by part."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from krouter.callers import keys_in
from krouter.serve.intake import (
    CallerGone,
    Refusal,
    read_body,
    request_headers,
    with_key_of,
)
from tests.harness import Start
from tests.upstream import Upstream

LIMIT = 1 << 20


def sent(*parts: bytes | None) -> list[dict[str, Any]]:
    """What a caller sends; None is that it leaves. Nothing comes after the last: to wait for more
    would be to wait for ever."""
    messages: list[dict[str, Any]] = [
        {"type": "http.disconnect"}
        if part is None
        else {"type": "http.request", "body": part, "more_body": True}
        for part in parts
    ]
    messages[-1]["more_body"] = False
    return messages


def read(messages: list[dict[str, Any]], declared: str = "") -> bytes:
    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    headers = [("content-length", declared)] if declared else []
    return asyncio.run(read_body(receive, headers, LIMIT))


def test_the_parts_of_a_body_are_put_together() -> None:
    assert read(sent(b'{"a":', b"", b"1}")) == b'{"a":1}'
    assert read(sent(b"")) == b""


def test_a_body_in_one_part_is_not_copied() -> None:
    whole = b'{"a":1}'
    assert read(sent(whole)) is whole


def test_a_caller_that_leaves_is_gone() -> None:
    with pytest.raises(CallerGone):
        read(sent(b"{", None))


@pytest.mark.parametrize("parts", [[b"x" * (LIMIT + 1)], [b"x" * LIMIT, b"x"]])
def test_a_last_part_above_the_limit_is_refused_without_waiting_for_another(
    parts: list[bytes],
) -> None:
    with pytest.raises(Refusal, match="larger than 1 MiB"):
        read(sent(*parts))


@pytest.mark.parametrize("declared", ["", str(3 * LIMIT)])
def test_a_body_above_the_limit_is_read_to_its_end_before_it_is_refused(declared: str) -> None:
    messages = sent(*[b"x" * LIMIT] * 3)
    with pytest.raises(Refusal, match="larger than 1 MiB"):
        read(messages, declared)
    assert messages == []


def test_headers_are_text_whatever_bytes_they_hold() -> None:
    raw = [(b"x-name", "é".encode()), (b"x-other", b"\xff"), (b"x-long-" + b"n" * 99, b"v")]
    assert request_headers({"headers": raw}) == [
        ("x-name", "é"),
        ("x-other", "\udcff"),
        ("x-long-" + "n" * 99, "v"),
    ]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", []),
        ("beta=true", []),
        ("key=kr-a&alt=sse", ["kr-a"]),
        ("%6bey=kr-a", ["kr-a"]),
        ("k%65y=a%20b&key=c", ["a b", "c"]),
        ("akey=x", []),
    ],
)
def test_keys_in_a_query(query: str, keys: list[str]) -> None:
    assert keys_in(query) == keys
    assert with_key_of(query, [("a", "b")]) == [("a", "b"), *(("x-goog-api-key", k) for k in keys)]


def test_a_name_that_stands_twice_is_read_as_providers_read_it_and_sent_on_once(
    start: Start, upstream: Upstream
) -> None:
    """The last one counts, as in every common reader of JSON, so that nobody sees another body."""
    krouter = start()
    said = b'[{"role":"user","content":"hi"}]'
    body = b'{"model":"nobody","messages":[],"model":"one/ok","messages":%b,"seed":1,"seed":2}'
    reply = krouter.http.post("/v1/chat/completions", content=body % said)
    assert reply.status_code == 200
    (sent,) = upstream.requests
    assert sent.body == b'{"model":"ok","messages":%b,"seed":2}' % said
