"""A primary that is down for a minute: others serve, it is probed, and it leads again soon."""

from __future__ import annotations

import pytest

from tests.harness import Start, calls
from tests.upstream import Upstream

STEP = 0.5
"""Seconds between two requests."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("down", ["status=503", "status=500", "reset", "status=529", "close"])
def test_it_is_probed_not_hammered_and_leads_again(
    start: Start, upstream: Upstream, down: str, stream: bool
) -> None:
    krouter = start("one/main", "two/spare", accounts={"one": "a", "two": "x"})

    def served() -> str:
        krouter.clock.forward(STEP)
        reply = krouter.chat("daily", stream)
        assert reply.status_code == 200
        return reply.headers["x-krouter-model"]

    assert served() == "one/main"
    upstream.clear()
    upstream.script("main", [down])
    for _ in range(int(60 / STEP)):
        assert served() == "two/spare"
    asked = calls(upstream)
    assert asked.count("two-x spare") == 120
    assert 3 <= asked.count("one-a main") <= 8
    upstream.clear()
    waited = 0.0
    while served() != "one/main":
        waited += STEP
        assert waited <= 30
    assert [served() for _ in range(20)] == ["one/main"] * 20
