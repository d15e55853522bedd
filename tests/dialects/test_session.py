from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.history import FIELD
from krouter.dialects.session import session_key
from tests.dialects.streams import shaped

UUID = "3f2b1c9e-1111-4222-8333-944455566677"
BODY: dict[str, Any] = {
    "prompt_cache_key": "key",
    "metadata": {"user_id": f"user_ab12_account__session_{UUID}"},
    "messages": [{"role": "user", "content": "hello"}],
}


def key(dialect: str, body: dict[str, Any], *headers: tuple[str, str]) -> str:
    return session_key(dialect, Body.parse(json.dumps(body).encode()), headers)


def test_the_first_name_of_a_session_wins() -> None:
    headers = [
        ("X-Session-Affinity", "e"),
        ("x-session-id", "d"),
        ("thread-id", "c"),
        ("session-id", "b"),
        ("X-Claude-Code-Session-Id", "a"),
    ]
    found = [key("messages", BODY, *headers[:count]) for count in range(5, 0, -1)]
    assert found == ["a", "b", "c", "d", "e"]
    assert key("messages", BODY, ("session-id", " ")) == "key"
    without_key = {**BODY, "prompt_cache_key": ""}
    assert key("messages", without_key) == UUID


@pytest.mark.parametrize(
    ("user", "session"),
    [
        (json.dumps({"device_id": "d", "account_uuid": "", "session_id": UUID}), UUID),
        (f"user_ab_account_cd_session_{UUID}", UUID),
        ("someone", None),
        ("{not json", None),
        ("[]", None),
        ('{"session_id": 7}', None),
        (7, None),
    ],
)
def test_the_session_inside_the_user_id(user: Any, session: str | None) -> None:
    body = {"metadata": {"user_id": user}, "messages": [{"role": "user", "content": "hi"}]}
    opening = key("messages", {"messages": body["messages"]})
    assert key("messages", body) == (session or opening)


def test_a_long_name_is_shortened() -> None:
    assert len(key("chat", BODY, ("session-id", "a" * 9000))) == 32


MARK = {"cache_control": {"type": "ephemeral"}}
TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("dialect", "first", "later"),
    [
        (
            "messages",
            {"system": "s", "messages": [{"role": "user", "content": [{**TEXT, **MARK}]}]},
            {
                "system": [{"type": "text", "text": "s", **MARK}],
                "messages": [
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "b"},
                    {"role": "user", "content": "c"},
                ],
            },
        ),
        (
            "chat",
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
            {
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": "s"}]},
                    {"role": "user", "content": [TEXT]},
                    {"role": "assistant", "content": "b"},
                ],
            },
        ),
        (
            "responses",
            {"instructions": "s", "input": "hi"},
            {"instructions": "s", "input": [{"role": "user", "content": "hi"}, {"type": "x"}]},
        ),
        (
            "gemini",
            {"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [{"parts": [TEXT]}]},
            {
                "system_instruction": {"parts": {"text": "s"}},
                "contents": [{"role": "user", "parts": [TEXT]}, {"role": "model", "parts": []}],
            },
        ),
    ],
)
def test_a_conversation_keeps_its_digest(
    dialect: str, first: dict[str, Any], later: dict[str, Any]
) -> None:
    assert key(dialect, first) == key(dialect, later)
    name = FIELD[dialect]
    other = {**first, name: json.loads(json.dumps(first[name]).replace("hi", "ho"))}
    assert key(dialect, first) != key(dialect, other)
    system = json.loads(json.dumps(first).replace('"s"', '"t"'))
    assert key(dialect, first) != key(dialect, system)


def test_a_first_message_of_an_image_alone_tells_conversations_apart() -> None:
    def asked(data: str) -> str:
        image = {"type": "image", "source": {"data": data}}
        return key("messages", {"messages": [{"role": "user", "content": [image]}]})

    assert asked("A") != asked("B")


@given(
    st.sampled_from(sorted(FIELD)),
    shaped("role", "content", "parts", "text", "user_id", "type"),
)
def test_any_json_has_a_key(dialect: str, value: Any) -> None:
    names = (*FIELD.values(), "metadata", "prompt_cache_key", "system")
    try:
        body = Body.parse(json.dumps(dict.fromkeys(names, value)).encode())
    except ValueError:
        return
    assert session_key(dialect, body, [])


def test_a_name_that_is_no_text_harms_nothing() -> None:
    name = "\udcff" * 200
    assert session_key("chat", Body.parse(b"{}"), [("x-session-id", name)])
