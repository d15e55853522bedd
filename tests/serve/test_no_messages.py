"""A conversation without any message: its provider's own to refuse, and krouter's where none of the
providers speaks the caller's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from tests.harness import Krouter
from tests.serve.test_pairings import CALLERS, SPOKEN, assert_error, settings_for
from tests.upstream import Upstream

FIELDS = {"chat": "messages", "messages": "messages", "gemini": "contents", "responses": "input"}
PAIRINGS = tuple(permutations(CALLERS, 2))
SAYS = "must hold at least one message"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings, env = settings_for(upstream.url)
    combos = {
        **{spoken: {"models": [f"one-{spoken}/m", f"two-{spoken}/m"]} for spoken in SPOKEN},
        **{f"nested-{spoken}": {"models": [spoken]} for spoken in SPOKEN},
        **{f"{a}-{b}": {"models": [f"one-{a}/m", f"one-{b}/m"]} for a, b in PAIRINGS},
    }
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=combos, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture
def krouter(served: Krouter, upstream: Upstream) -> Krouter:
    upstream.clear()
    served.forget()
    return served


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["{}", "nested-{}", "one-{}/m"])
@pytest.mark.parametrize(("caller", "spoken"), PAIRINGS)
def test_nobody_is_asked_who_would_have_to_be_translated_to(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, name: str, stream: bool
) -> None:
    reply = krouter.ask(caller, name.format(spoken), stream, **{FIELDS[caller]: []})
    assert reply.status_code == 400
    assert_error(reply.json(), 400, caller, f"The field '{FIELDS[caller]}' {SAYS}.")
    assert not upstream.requests
    route = krouter.last_route
    assert (route["steps"], route["outcome"]) == ([], "no messages")
    assert krouter.locks() == {}


@pytest.mark.parametrize(("caller", "other"), PAIRINGS)
def test_a_provider_of_the_same_dialect_says_what_it_thinks(
    krouter: Krouter, upstream: Upstream, caller: str, other: str
) -> None:
    upstream.script("m", ["status=400;message=none%20there"])
    reply = krouter.ask(caller, f"{caller}-{other}", **{FIELDS[caller]: []})
    assert (reply.status_code, len(upstream.requests)) == (400, 1)
    assert SAYS in reply.text
    upstream.clear()
    assert krouter.ask(caller, caller, **{FIELDS[caller]: []}).status_code == 200
