"""Which account serves a conversation, and for how long."""

from __future__ import annotations

from krouter.sessions import KEEP_SECONDS, Sessions
from tests.harness import Clock


def test_a_conversation_stays_for_fifteen_minutes_from_its_last_answer() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    sessions.bind("talk", "glm", "a")
    clock.forward(KEEP_SECONDS - 1)
    assert sessions.account("talk", "glm") == "a"
    assert sessions.account("talk", "cc") is None
    sessions.bind("talk", "glm", "a")
    clock.forward(KEEP_SECONDS - 1)
    assert sessions.account("talk", "glm") == "a"
    clock.forward(1)
    assert sessions.account("talk", "glm") is None


def test_the_conversations_of_an_account_are_forgotten() -> None:
    sessions = Sessions(Clock())
    for session, provider, account in (("a", "glm", "x"), ("b", "glm", "y"), ("a", "ds", "x")):
        sessions.bind(session, provider, account)
    sessions.forget("glm", "x")
    found = [sessions.account(*key) for key in (("a", "glm"), ("b", "glm"), ("a", "ds"))]
    assert found == [None, "y", "x"]


def test_conversations_are_bounded() -> None:
    sessions = Sessions(Clock(), size=2)
    for name in "abc":
        sessions.bind(name, "glm", "x")
    assert [sessions.account(name, "glm") for name in "abc"] == [None, "x", "x"]
