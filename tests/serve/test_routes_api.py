"""`/api/routes`: filters and pages, over memory and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream

COMBOS: dict[str, Any] = {
    "good": {"models": ["one/a"]},
    "moves": {"models": ["one/x:status=500", "two/b"]},
    "fails": {"models": [{"model": "one/y:status=400", "accounts": ["b"]}]},
}
ASKED = ("good", "moves", "fails", "two/c", "good", "nothing")


class Past:
    """Requests of which memory has only the last two, and the ledger all."""

    def __init__(self, krouter: Krouter) -> None:
        self.krouter = krouter
        replies = [krouter.chat(name) for name in ASKED]
        self.ids = [reply.headers["x-krouter-route"] for reply in replies]
        krouter.idle()
        ledger = krouter.served.house.ledger
        assert ledger is not None
        assert ledger.flush(30)
        while len(krouter.router.routes) > 2:
            krouter.router.routes.popleft()

    def found(self, query: str = "") -> list[int]:
        """The places of those that are told, by the order in which they were asked."""
        told = self.krouter.http.get(f"/api/routes?{query}")
        assert told.status_code == 200
        return [self.ids.index(each["id"]) for each in told.json()]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    home: Path = tmp_path_factory.mktemp("home")
    with Upstream() as upstream:
        settings, env = provider_settings(upstream.url, one="a b", two="a")
        with Krouter(home, combos=COMBOS, settings=settings, env=env, ledger=True) as krouter:
            yield Past(krouter)


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("", [5, 4, 3, 2, 1, 0]),
        ("limit=1", [5]),
        ("limit=3", [5, 4, 3]),
        ("limit=0", [5]),
        ("combo=good", [4, 0]),
        ("combo=", [5, 3]),
        ("asked=two/c", [3]),
        ("outcome=ok", [4, 3, 1, 0]),
        ("outcome=failed", [5, 2]),
        ("outcome=500", [1]),
        ("outcome=400", [2]),
        ("outcome=server error", [1]),
        ("outcome=unknown model", [5]),
        ("account=b", [2, 1]),
        ("account=one/b", [2, 1]),
        ("account=two/a", [3, 1]),
        ("account=two/b", []),
        ("combo=good&outcome=failed", []),
        ("model=two/*", [3, 1]),
        ("model=*/[xy]:*", [2, 1]),
        ("model=two/", []),
        ("caller=", [5, 4, 3, 2, 1, 0]),
        ("caller=somebody", []),
        ("since=0", [5, 4, 3, 2, 1, 0]),
        ("until=0", []),
    ],
)
def test_routes_are_filtered_alike_in_memory_and_in_the_ledger(
    past: Past, query: str, places: list[int]
) -> None:
    assert past.found(query) == places


def test_pages_follow_one_another(past: Past) -> None:
    seen: list[int] = []
    while page := past.found(f"limit=2&before={past.ids[seen[-1]] if seen else ''}"):
        seen += page
    assert seen == [5, 4, 3, 2, 1, 0]


def test_a_route_that_memory_has_lost_comes_from_the_ledger(past: Past) -> None:
    for place in (0, 5):
        told = past.krouter.http.get(f"/api/routes/{past.ids[place]}").json()
        assert (told["id"], told["asked"]) == (past.ids[place], ASKED[place])
    assert past.krouter.http.get("/api/routes/nothing").status_code == 404


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("outcome=great", "ok, failed"),
        ("limit=x", "limit"),
        ("since=x", "since"),
        ("combbo=x&limit=1&statu=2", "combbo, statu"),
    ],
)
def test_what_no_route_can_be_is_refused(past: Past, query: str, says: str) -> None:
    refused = past.krouter.http.get(f"/api/routes?{query}")
    assert refused.status_code == 400
    assert says in refused.json()["error"]["message"]


def test_without_a_ledger_memory_is_all(tmp_path: Path) -> None:
    with Krouter(tmp_path, settings="[ledger]\nenabled = false\n", ledger=True) as krouter:
        krouter.chat("demo")
        assert [each["asked"] for each in krouter.http.get("/api/routes").json()] == ["demo"]


def test_a_ledger_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with Krouter(tmp_path, ledger=True) as krouter:
        id = krouter.chat("demo").headers["x-krouter-route"]
        krouter.idle()
        ledger = krouter.served.house.ledger
        assert ledger is not None
        assert ledger.flush(30)
        assert "x-krouter-ledger" not in krouter.http.get("/api/routes").headers
        for path in krouter.served.house.paths.ledger.parent.glob("ledger.db*"):
            path.unlink()
        krouter.served.house.paths.ledger.write_bytes(b"this is no database" * 100)
        told = krouter.http.get("/api/routes")
        missing = krouter.http.get("/api/routes/nothing")
    assert [each["id"] for each in told.json()] == [id], "what memory has is told all the same"
    assert "cannot be read: it is corrupt" in told.headers["x-krouter-ledger"]
    assert missing.status_code == 503
    assert "the ledger cannot be read" in missing.json()["error"]["message"]
