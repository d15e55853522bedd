"""`/v1/models` in both shapes: which names, what is known of them, and page by page."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from starlette.exceptions import HTTPException

from krouter.serve.models import paged
from tests.harness import Krouter, Start

ANTHROPIC = {"anthropic-version": "2023-06-01"}
SEES = {"model": "one/sees", "reads": ["image"], "contextWindow": 200_000}
BLIND = {"model": "one/blind", "reads": [], "contextWindow": 64_000}
COMBOS: dict[str, Any] = {
    "small": {"models": [BLIND]},
    "nested": {"models": ["combo/small", SEES]},
    "unsure": {"models": ["one/who", BLIND]},
    "known": {"models": ["anthropic/claude-sonnet-4-6"]},
}
UNKNOWN = dict.fromkeys(("image", "pdf", "audio", "video"))
NO = dict.fromkeys(UNKNOWN, False)
ALIASES = '[aliases]\nquick = "small"\n"gpt-*" = "nested"\nlost = "nowhere"\n'


@pytest.fixture
def krouter(start: Start) -> Krouter:
    return start(combos=COMBOS, settings=ALIASES)


def listed(krouter: Krouter, headers: dict[str, str] | None = None, **query: Any) -> Any:
    reply = krouter.http.get("/v1/models", headers=headers, params=query)
    assert reply.status_code == 200
    return reply.json()


@pytest.mark.parametrize(
    ("name", "window", "largest", "reads"),
    [
        ("small", 64_000, 64_000, NO),
        ("nested", 64_000, 200_000, {**NO, "image": True}),
        ("unsure", 64_000, 64_000, UNKNOWN),
        ("one/who", None, None, UNKNOWN),
        ("quick", 64_000, 64_000, NO),
        ("claude-nested", 64_000, 200_000, {**NO, "image": True}),
        ("gpt-5", 64_000, 200_000, {**NO, "image": True}),
    ],
)
@pytest.mark.parametrize("headers", [{}, ANTHROPIC])
def test_what_is_known(
    krouter: Krouter, headers: Any, name: str, window: Any, largest: Any, reads: Any
) -> None:
    model = krouter.http.get(f"/v1/models/{name}", headers=headers).json()
    assert model["id"] == name
    assert model["type" if headers else "object"] == "model"
    assert model["context_window"] == window
    assert model["largest_context_window"] == largest
    assert model["max_output_tokens"] is None
    assert model["reads"] == reads


def test_the_model_table_tells_of_shipped_providers(krouter: Krouter) -> None:
    model = krouter.http.get("/v1/models/known").json()
    assert model["context_window"] >= 200_000
    assert model["max_output_tokens"] >= 64_000
    assert model["reads"]["image"] is True


def test_openais_list_has_combos_first_then_aliases_and_models(krouter: Krouter) -> None:
    data = listed(krouter)["data"]
    names = [model["id"] for model in data if model["id"] in {*COMBOS, "quick", "one/sees"}]
    assert set(names[:4]) == set(COMBOS)
    assert names[4:] == ["quick", "one/sees"]
    owners = {model["id"]: model["owned_by"] for model in data}
    assert (owners["nested"], owners["quick"], owners["one/sees"]) == ("combo", "combo", "one")
    assert not {"lost", "gpt-*"} & set(owners)


def test_claude_code_lists_each_combo_under_a_name_it_shows(krouter: Krouter) -> None:
    page = listed(krouter, ANTHROPIC, limit=1000)
    names = [model["id"] for model in page["data"]]
    assert {"small", "claude-small", "quick", "claude-nested"} <= set(names)
    assert not any("/" in name for name in names)
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, names[0], names[-1])


def test_anthropics_sdk_turns_the_pages(krouter: Krouter) -> None:
    whole = [model["id"] for model in listed(krouter, ANTHROPIC, limit=1000)["data"]]
    with anthropic.Anthropic(base_url=krouter.url, api_key="sk-none") as client:
        assert [model.id for model in client.models.list(limit=3)] == whole
        found = client.models.retrieve("claude-small")
        assert (found.id, found.type) == ("claude-small", "model")


NAMES = [f"m{number}" for number in range(25)]


@pytest.mark.parametrize(
    ("query", "names", "more"),
    [
        ({}, NAMES[:20], True),
        ({"limit": "1000"}, NAMES, False),
        ({"limit": "25"}, NAMES, False),
        ({"limit": "2", "after_id": "m3"}, ["m4", "m5"], True),
        ({"after_id": "m24"}, [], False),
        ({"limit": "2", "before_id": "m3"}, ["m1", "m2"], True),
        ({"limit": "3", "before_id": "m3"}, ["m0", "m1", "m2"], False),
    ],
)
def test_pages(query: dict[str, str], names: list[str], more: bool) -> None:
    assert paged(NAMES, query) == (names, more)


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "-1"}, {"limit": "x"}, {"limit": "²"}]
)
def test_limits_that_are_none(query: dict[str, str]) -> None:
    with pytest.raises(HTTPException, match="limit"):
        paged(NAMES, query)


def test_an_unknown_place_on_the_list_is_told_of_in_anthropics_form(krouter: Krouter) -> None:
    reply = krouter.http.get("/v1/models", headers=ANTHROPIC, params={"after_id": "nobody"})
    assert reply.status_code == 400
    assert reply.json()["type"] == "error"
    assert "nobody" in reply.json()["error"]["message"]


GOOGLES = "/v1beta/models"


def test_googles_list_has_the_same_names(krouter: Krouter) -> None:
    page = krouter.http.get(GOOGLES, params={"pageSize": 1000}).json()
    names = [model["name"].removeprefix("models/") for model in page["models"]]
    assert set(names) == {model["id"] for model in listed(krouter)["data"]}
    assert set(names[: len(COMBOS)]) >= set(COMBOS)
    assert "nextPageToken" not in page


def test_a_model_in_googles_shape(krouter: Krouter) -> None:
    known = krouter.http.get(f"{GOOGLES}/known").json()
    assert known["name"] == "models/known"
    assert known["displayName"] == "known"
    assert known["inputTokenLimit"] >= 200_000
    assert known["outputTokenLimit"] >= 64_000
    assert known["supportedGenerationMethods"] == ["generateContent", "streamGenerateContent"]
    small = krouter.http.get(f"{GOOGLES}/small").json()
    assert small["inputTokenLimit"] == 64_000
    assert "outputTokenLimit" not in small, "what is not known is no number"
    for path in ("one/sees", "one%2Fsees", "one/sees:free"):
        told = krouter.http.get(f"{GOOGLES}/{path}").json()
        assert told["name"] == f"models/{path.replace('%2F', '/')}"


def test_googles_pages(krouter: Krouter) -> None:
    whole = krouter.http.get(GOOGLES, params={"pageSize": 1000}).json()["models"]
    turned, token = [], ""
    while token is not None:
        page = krouter.http.get(GOOGLES, params={"pageSize": 2, "pageToken": token}).json()
        assert 1 <= len(page["models"]) <= 2
        turned += page["models"]
        token = page.get("nextPageToken")
    assert turned == whole


@pytest.mark.parametrize("query", [{"pageToken": "nobody"}, {"pageSize": "-1"}, {"pageSize": "x"}])
def test_googles_pages_that_cannot_be(krouter: Krouter, query: dict[str, str]) -> None:
    reply = krouter.http.get(GOOGLES, params=query)
    assert reply.status_code == 400
    assert reply.json()["error"]["status"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("header", ["x-goog-api-client", "x-goog-api-key"])
@pytest.mark.parametrize("path", ["", "/small", "/nobody"])
def test_googles_clients_get_their_shape_under_v1_too(
    krouter: Krouter, header: str, path: str
) -> None:
    reply = krouter.http.get(f"/v1/models{path}", headers={header: "google-genai-sdk/3.6.1"})
    assert reply.json() == krouter.http.get(f"{GOOGLES}{path}").json()
    assert reply.status_code == (404 if path == "/nobody" else 200)


def test_a_judge_is_a_model_too(start: Start) -> None:
    panel = {"models": ["one/a", "two/b"], "strategy": "fusion", "judge": "one/j"}
    listing = {"models": ["one/a"], "judge": "two/unused"}
    krouter = start(combos={"fused": panel, "plain": listing})
    names = {model["id"] for model in listed(krouter)["data"]}
    assert "one/j" in names
    assert "two/unused" not in names
