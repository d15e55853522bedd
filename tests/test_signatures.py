"""Thinking goes back to whoever signed it, and to nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Krouter
from tests.upstream import Upstream
from tests.validators import events

SETTINGS = """
[provider.one]
base_urls = {{ messages = "{one}", responses = "{one}" }}
[provider.two]
base_urls = {{ messages = "{two}", responses = "{two}" }}
[provider.chat]
base_urls = {{ chat = "{two}/v1" }}
"""


@pytest.fixture
def one() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def two() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def krouter(tmp_path: Path, one: Upstream, two: Upstream) -> Iterator[Krouter]:
    text = SETTINGS.format(one=one.url, two=two.url)
    with Krouter(tmp_path, settings=text) as running:
        yield running


def thought(krouter: Krouter, model: str, stream: bool) -> dict[str, Any]:
    """The thinking block of a reply, as a client sends it back."""
    reply = krouter.messages(model, stream)
    assert reply.status_code == 200
    if not stream:
        return next(b for b in reply.json()["content"] if b["type"] == "thinking")
    block: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
    for event in events(reply.content):
        delta = json.loads(event.data or b"{}").get("delta", {})
        block["thinking"] += delta.get("thinking", "")
        block["signature"] += delta.get("signature", "")
    return block


def history(block: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [block, {"type": "text", "text": "hi"}]},
        {"role": "user", "content": "go on"},
    ]


def sent_back(upstream: Upstream) -> bool:
    content = upstream.requests[-1].json["messages"][1]["content"]
    return any(isinstance(b, dict) and b["type"] == "thinking" for b in content)


@pytest.mark.parametrize("stream", [False, True])
def test_it_goes_back_to_its_maker_alone(
    krouter: Krouter, one: Upstream, two: Upstream, stream: bool
) -> None:
    block = thought(krouter, "one/x:thinking", stream)
    assert block["signature"]
    krouter.messages("one/good", messages=history(block))
    assert sent_back(one)
    reply = krouter.messages("two/good", messages=history(block))
    assert not sent_back(two)
    assert reply.headers["x-krouter-dropped"] == "thinking of another provider"
    assert krouter.last_route["dropped"] == ["thinking of another provider"]


@pytest.mark.parametrize("stream", [False, True])
def test_sealed_reasoning_goes_back_to_its_maker_alone(
    krouter: Krouter, one: Upstream, two: Upstream, stream: bool
) -> None:
    reply = krouter.responses("one/x:thinking", stream)
    whole = reply.json() if not stream else json.loads(events(reply.content)[-1].data or b"")
    reasoning, said = whole.get("response", whole)["output"]
    assert reasoning["encrypted_content"]
    krouter.idle()
    for target, upstream, kept in (("one/good", one, [reasoning, said]), ("two/good", two, [said])):
        hello = {"role": "user", "content": "hello"}
        reply = krouter.responses(target, input=[hello, reasoning, said, hello])
        assert upstream.requests[-1].json["input"] == [hello, *kept, hello]
    assert reply.headers["x-krouter-dropped"] == "thinking of another provider"


def test_what_is_not_known_to_be_foreign_is_left_alone(krouter: Krouter, two: Upstream) -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "from another day"}
    reply = krouter.messages("two/good", messages=history(block))
    assert sent_back(two)
    assert "x-krouter-dropped" not in reply.headers


def test_what_krouter_sealed_is_never_taken_for_a_signature(
    krouter: Krouter, one: Upstream
) -> None:
    """Not even by a krouter that knows no more whose it is, as after a restart."""
    block = {"type": "thinking", "thinking": "hm", "signature": "krouter1.eyJ"}
    reply = krouter.messages("one/good", messages=history(block))
    assert b"krouter1." not in one.requests[-1].body
    assert reply.headers["x-krouter-dropped"] == "thinking of another provider"
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": "krouter1.eyJ"}
    hello = {"role": "user", "content": "hello"}
    reply = krouter.responses("one/good", input=[hello, reasoning, hello])
    assert b"krouter1." not in one.requests[-1].body
    assert reply.headers["x-krouter-dropped"] == "thinking of another provider"


def test_it_is_forgotten_after_a_day(krouter: Krouter, two: Upstream) -> None:
    block = thought(krouter, "one/x:thinking", False)
    krouter.clock.forward(24 * 3600)
    krouter.messages("two/good", messages=history(block))
    assert sent_back(two)


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_that_nobody_has_signed_is_sent_to_no_provider_of_messages(
    krouter: Krouter, one: Upstream, stream: bool
) -> None:
    block = thought(krouter, "chat/x:thinking", stream)
    krouter.messages("one/good", messages=history(block))
    assert not sent_back(one)
