"""`/api/quota`, and who may make an admin call, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from krouter.keys import add_key
from krouter.quota import Poll
from krouter.reporter import Balance, Report, Window
from tests.harness import Krouter, provider_settings

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a", two="a b")
FIGURE = {"provider": "one", "account": "a", "model": "m", "remaining": 0.9}


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, settings=SETTINGS, env={**ENV, "GLM_API_KEY": "x"}) as krouter:
        yield krouter


def tell(krouter: Krouter, **change: Any) -> httpx.Response:
    body = {name: value for name, value in {**FIGURE, **change}.items() if value is not ...}
    return krouter.http.post("/api/quota", json=body)


def test_a_figure_is_told_and_shown(tmp_path: Path) -> None:
    with Krouter(tmp_path, settings=SETTINGS, env=ENV) as krouter:
        empty = krouter.http.get("/api/quota").json()
        assert [empty[name] for name in ("figures", "windows", "balances", "failing")] == [[]] * 4
        now = krouter.clock.now
        told = tell(krouter, resets_at=now + 7200)
        shown = {**FIGURE, "resets_at": now + 7200, "spent": False, "source": "reported"}
        assert (told.status_code, told.json()) == (200, {**shown, "age": 0, "combos": []})
        assert tell(krouter, model="spent", remaining=0.02).json()["spent"]
        krouter.clock.forward(100)
        figures = krouter.http.get("/api/quota").json()["figures"]
        assert [each["model"] for each in figures] == ["m", "spent"]
        assert figures[0] == {**shown, "age": 100}
        krouter.clock.forward(3600)
        assert [each["model"] for each in krouter.http.get("/api/quota").json()["figures"]] == ["m"]


def test_windows_balances_and_failures_are_shown(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        pool, now = krouter.served.house.pool, krouter.clock.now
        windows = (Window("5h", 0.5, now + 60), Window("7d opus", 0.1, None, "opus"))
        report = Report(windows=windows, balances=(Balance("key limit", 2.5, of=10.0),))
        pool.quota.note("cc", "a", report, "polled")
        pool.quota.polls["cc", "b"] = Poll(now, now + 120, 1, "status 403")
        pool.quota.polls["cc", "a"] = Poll(now, now)
        found = krouter.http.get("/api/quota").json()
    whose = {"provider": "cc", "account": "a"}
    how = {"source": "polled", "age": 0}
    assert found["windows"] == [
        {**whose, "window": "5h", "model": None, "remaining": 0.5, "resets_at": now + 60, **how},
        {**whose, "window": "7d opus", "model": "opus", "remaining": 0.1, "resets_at": None, **how},
    ]
    money = {"balance": "key limit", "amount": 2.5, "of": 10.0, "currency": "USD"}
    assert found["balances"] == [{**whose, **money, **how}]
    assert found["failing"] == [
        {"provider": "cc", "account": "b", "problem": "status 403", "failures": 1}
        | {"next_at": now + 120}
    ]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("2h30m", 9000), ("2027-01-15T09:00:00Z", 3600), (1_800_003_600, 3600), ("1800003600", 3600)],
)
def test_a_reset_may_be_written_in_many_ways(krouter: Krouter, given: Any, seconds: float) -> None:
    told = tell(krouter, resets_at=given).json()
    assert told["resets_at"] - krouter.clock.now == seconds


def test_the_provider_is_no_part_of_the_model(tmp_path: Path) -> None:
    combos = {"c": {"models": ["one/m", "one/one/own"]}}
    with Krouter(tmp_path, combos=combos, settings=SETTINGS, env=ENV) as krouter:
        named = ("one/m", "two/m", "one/own", "m")
        told = [tell(krouter, model=name).json() for name in named]
    assert [each["model"] for each in told] == ["m", "two/m", "one/own", "m"]
    assert [each["combos"] for each in told] == [["c"], [], ["c"], ["c"]]


def test_an_alias_and_the_only_account_need_no_full_name(krouter: Krouter) -> None:
    told = tell(krouter, provider="zai", account=...).json()
    assert (told["provider"], told["account"]) == ("glm", "env")
    assert tell(krouter, account=None).json()["account"] == "a"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"remaining": 90}, r"$.remaining: Input should be less than or equal to 1 (value 90)"),
        ({"remaining": -0.1}, "$.remaining: Input should be greater than or equal to 0"),
        ({"remaining": "0.9"}, '$.remaining: Input should be a valid number (value "0.9")'),
        ({"remaining": True}, "$.remaining: Input should be a valid number (value true)"),
        ({"remaining": ...}, "$.remaining: required field is missing"),
        ({"model": ""}, "$.model: String should have at least 1 character"),
        ({"model": " m"}, '$.model: must not begin or end with a blank (value " m")'),
        ({"model": ...}, "$.model: required field is missing"),
        ({"provider": "onne"}, "$.provider: unknown provider 'onne'. Did you mean 'one'?"),
        ({"account": "b"}, "$.account: unknown account 'b': one has the accounts a."),
        ({"provider": "two", "account": ...}, "$.account: required field is missing: two has the"),
        ({"provider": "groq", "account": ...}, "groq has no account"),
        ({"resets_at": "yesterday"}, "$.resets_at: must be a time to come, at most 32 days ahead"),
        ({"resets_at": 1_700_000_000}, "(value 1700000000)"),
        ({"resets_at": "2100-01-01"}, '(value "2100-01-01")'),
        ({"resets_at": [1]}, "$.resets_at"),
        ({"remainig": 1}, "unknown field 'remainig' (value 1). Did you mean 'remaining'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(
    krouter: Krouter, change: dict[str, Any], says: str
) -> None:
    before = krouter.served.house.pool.quota.notes()
    refused = tell(krouter, **change)
    assert refused.status_code == 400
    assert says in refused.json()["error"]["message"]
    assert krouter.served.house.pool.quota.notes() == before


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b"[" * 100_000, b"\xff", b'{"model": "\\ud800"}']
)
def test_bodies_that_are_no_object(krouter: Krouter, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert krouter.http.post("/api/quota", content=body, headers=headers).status_code == 400


def test_a_figure_of_nan_or_with_half_a_character_is_refused(krouter: Krouter) -> None:
    headers = {"content-type": "application/json"}
    for change in (b'"remaining": NaN', b'"remaining": 1e999', b'"model": "\\ud800"'):
        fields = b'{"provider": "one", "model": "m", "remaining": 0.5, ' + change + b"}"
        reply = krouter.http.post("/api/quota", content=fields, headers=headers)
        assert reply.status_code == 400


def test_a_body_that_is_too_large(krouter: Krouter) -> None:
    assert tell(krouter, model="m" * (2 << 20)).status_code == 413


HERE = "{here}"


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"origin": HERE}, True),
        ({"origin": HERE, "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"origin": "http://[evil"}, False),
        ({"origin": "http://127.0.0.1:1"}, False),
        ({"origin": HERE, "sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
    ],
)
@pytest.mark.parametrize("call", ["GET /api/quota", "POST /api/quota", "GET /api/routes"])
def test_no_page_of_another_site_makes_an_admin_call(
    krouter: Krouter, call: str, headers: dict[str, str], allowed: bool
) -> None:
    method, path = call.split()
    given = {name: value.format(here=krouter.url) for name, value in headers.items()}
    body = FIGURE if method == "POST" else None
    reply = krouter.http.request(method, path, json=body, headers=given)
    assert reply.status_code == (200 if allowed else 403)


def test_a_configured_origin_may_call_models_but_not_the_admin_api(tmp_path: Path) -> None:
    settings = '[server]\ncors_origins = ["https://tool.example"]\n'
    headers = {"origin": "https://tool.example"}
    with Krouter(tmp_path, settings=settings) as krouter:
        assert krouter.http.get("/v1/models", headers=headers).status_code == 200
        assert krouter.http.get("/api/routes", headers=headers).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_is_no_admin_call(krouter: Krouter, kind: str) -> None:
    reply = krouter.http.post("/api/quota", content=b"{}", headers={"content-type": kind})
    assert reply.status_code == 415
    assert "application/json" in reply.json()["error"]["message"]
    charset = {"content-type": "application/json; charset=utf-8"}
    assert krouter.http.post("/api/quota", content=b"{}", headers=charset).status_code == 400


def test_admin_calls_need_a_key_where_there_is_one(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    with Krouter(tmp_path, settings=SETTINGS, env=ENV) as krouter:
        assert krouter.http.get("/api/quota").status_code == 401
        assert tell(krouter).status_code == 401
        headers = {"x-krouter-key": key}
        assert krouter.http.get("/api/quota", headers=headers).status_code == 200
        assert krouter.http.post("/api/quota", json=FIGURE, headers=headers).status_code == 200


def test_a_changed_credential_has_no_figures(tmp_path: Path) -> None:
    with Krouter(tmp_path, settings=SETTINGS, env=ENV) as krouter:
        tell(krouter)
        house = krouter.served.house
        (tmp_path / "krouter.toml").write_text(SETTINGS.replace("env:ONE_A", "env:TWO_A"))
        house.refresh()
        assert house.pool.quota.notes() == []
