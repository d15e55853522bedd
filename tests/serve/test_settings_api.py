"""`PUT /api/settings` and `PUT /api/providers/NAME`, over a real socket and a real file."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from krouter.keys import Limits, add_key, change_key
from krouter.settings import LARGEST_FILE
from tests.harness import Krouter, provider_settings

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a b")
SETTINGS = f"# mine\n[routing]\ncombo_round_robin = false  # for now\n\n{SETTINGS}"
ALL = {
    "combo_round_robin": True,
    "combo_sticky_limit": 2,
    "account_strategy": "p2c",
    "account_sticky_limit": 4,
    "reply_model": "served",
    "vision_adapter": {"pdf": {"enabled": True, "models": ["one/v"], "round_robin": True}},
}


@pytest.fixture
def krouter(tmp_path: Path) -> Iterator[Krouter]:
    with Krouter(tmp_path, settings=SETTINGS, env={**ENV, "GLM_API_KEY": "x"}) as krouter:
        yield krouter


def put(krouter: Krouter, path: str, **given: Any) -> httpx.Response:
    return krouter.http.put(f"/api/{path}", json=given)


def file(krouter: Krouter) -> Path:
    return krouter.home / "krouter.toml"


def message(reply: httpx.Response) -> str:
    return str(reply.json()["error"]["message"])


def test_settings_are_changed_in_the_file_and_hold_at_once(krouter: Krouter) -> None:
    file(krouter).chmod(0o640)
    reply = put(krouter, "settings", **ALL)
    assert reply.status_code == 200
    assert "+combo_round_robin = true  # for now" in reply.json()["diff"]
    text = file(krouter).read_text()
    assert text.startswith("# mine\n[routing]\ncombo_round_robin = true  # for now\n")
    assert stat.S_IMODE(file(krouter).stat().st_mode) == 0o640
    assert tomllib.loads(text)["account"] == tomllib.loads(SETTINGS)["account"]
    shown = krouter.http.get("/api/view").json()["settings"]
    pools = shown.pop("vision_adapter")
    assert pools.pop("pdf") == ALL["vision_adapter"]["pdf"]  # type: ignore[index]
    assert shown == {name: value for name, value in ALL.items() if name != "vision_adapter"}
    assert pools["image"]["enabled"] is True
    back = put(krouter, "settings", **dict.fromkeys(ALL, None) | {"vision_adapter": {}})
    assert back.status_code == 200
    assert krouter.router.world.settings.routing.account_strategy == "zenith"


def test_a_switch_starts_the_rotations_again(krouter: Krouter) -> None:
    krouter.router.world.board.turns.take("daily")
    put(krouter, "settings", combo_round_robin=True)
    assert krouter.router.world.board.turns.peek("daily") == 0


def test_a_dry_run_writes_nothing(krouter: Krouter) -> None:
    reply = krouter.http.put("/api/settings?dry=1", json={"combo_sticky_limit": 9})
    assert "+combo_sticky_limit = 9" in reply.json()["diff"]
    assert file(krouter).read_text() == SETTINGS
    stamp = file(krouter).stat()
    assert put(krouter, "settings", combo_round_robin=False).json()["diff"] == ""
    assert file(krouter).stat() == stamp, "what changes nothing writes nothing"


def test_a_provider_has_its_own_strategy(krouter: Krouter) -> None:
    given = {"account_strategy": "round-robin", "account_sticky_limit": 7}
    assert put(krouter, "providers/one", **given).status_code == 200
    shown = krouter.http.get("/api/view").json()["providers"]
    one = next(each for each in shown if each["name"] == "one")
    assert (one["own_strategy"], one["account_sticky_limit"]) == ("round-robin", 7)
    assert put(krouter, "providers/one", account_strategy=None).status_code == 200
    assert krouter.router.world.registry.settings_of("one").account_strategy is None
    assert put(krouter, "providers/zai", account_strategy="p2c").status_code == 200
    assert krouter.router.world.registry.settings_of("glm").account_strategy == "p2c"
    assert '[provider.glm]\naccount_strategy = "p2c"' in file(krouter).read_text()


def test_a_provider_stays_under_the_alias_that_the_file_has(tmp_path: Path) -> None:
    with Krouter(tmp_path, settings="[provider.zai]\n", env=ENV) as krouter:
        assert put(krouter, "providers/glm", account_strategy="p2c").status_code == 200
        assert file(krouter).read_text() == '[provider.zai]\naccount_strategy = "p2c"\n'


def test_a_missing_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        file(krouter).unlink()
        assert put(krouter, "settings", combo_sticky_limit=2).status_code == 200
        assert stat.S_IMODE(file(krouter).stat().st_mode) == 0o600
        assert file(krouter).read_text() == "[routing]\ncombo_sticky_limit = 2\n"


@pytest.mark.parametrize(
    ("path", "given", "status", "says"),
    [
        ("settings", {"combo_sticky_limit": 0}, 400, "$.combo_sticky_limit"),
        ("settings", {"combo_sticky_limit": "2"}, 400, "$.combo_sticky_limit"),
        ("settings", {"combo_stickylimit": 2}, 400, "Did you mean 'combo_sticky_limit'"),
        ("settings", {"account_strategy": "best"}, 400, "$.account_strategy"),
        ("settings", {"reply_model": "none"}, 422, "$.routing.reply_model"),
        ("settings", {"vision_adapter": {"pdf": {"models": [""]}}}, 400, "$.vision_adapter.pdf"),
        ("settings", {"vision_adapter": {"smell": {}}}, 400, "unknown field 'smell'"),
        ("settings", {"server": {"port": 1}}, 400, "unknown field 'server'"),
        ("providers/one", {"key": "env:X"}, 400, "unknown field 'key'"),
        ("providers/onne", {"account_strategy": "p2c"}, 404, "Did you mean 'one'?"),
        ("providers/one", {"account_sticky_limit": -1}, 400, "$.account_sticky_limit"),
    ],
)
def test_a_bad_change_is_refused_with_its_reason(
    krouter: Krouter, path: str, given: dict[str, Any], status: int, says: str
) -> None:
    reply = put(krouter, path, **given)
    assert reply.status_code == status
    assert says in message(reply)
    assert file(krouter).read_text() == SETTINGS


def test_a_file_that_is_bad_already_is_not_touched(krouter: Krouter) -> None:
    file(krouter).write_text("[routing]\ncombo_sticky_limit = 0\n")
    reply = put(krouter, "settings", combo_round_robin=True)
    assert reply.status_code == 422
    assert reply.json()["error"]["problems"][0]["path"] == "$.routing.combo_sticky_limit"
    file(krouter).write_bytes(b"\xff")
    assert "not UTF-8" in message(put(krouter, "settings", combo_round_robin=True))
    assert file(krouter).read_bytes() == b"\xff"


def test_a_link_is_followed_and_what_is_no_file_refused(krouter: Krouter, tmp_path: Path) -> None:
    real = tmp_path / "dotfile"
    file(krouter).rename(real)
    file(krouter).symlink_to(real)
    assert put(krouter, "settings", combo_sticky_limit=5).status_code == 200
    assert file(krouter).is_symlink()
    assert "combo_sticky_limit = 5" in real.read_text()
    file(krouter).unlink()
    os.mkfifo(file(krouter))
    assert put(krouter, "settings", combo_sticky_limit=6).status_code == 409


@pytest.mark.parametrize("path", ["settings", "providers/one"])
def test_who_may(tmp_path: Path, path: str) -> None:
    key = add_key(tmp_path / "keys.json", "full", 0.0)
    limited = add_key(tmp_path / "keys.json", "small", 0.0)
    change_key(tmp_path / "keys.json", "small", lambda key: Limits(rpm=5))
    with Krouter(tmp_path, settings=SETTINGS, env=ENV) as krouter:
        ways: tuple[tuple[dict[str, str], int], ...] = (
            ({}, 401),
            ({"x-krouter-key": limited}, 403),
            ({"x-krouter-key": key, "origin": "https://evil.example"}, 403),
            ({"x-krouter-key": key, "content-type": "text/plain"}, 415),
        )
        for headers, status in ways:
            body = {"content": b"{}", "headers": {"content-type": "application/json", **headers}}
            assert krouter.http.put(f"/api/{path}", **body).status_code == status  # type: ignore[arg-type]
        assert file(krouter).read_text() == SETTINGS


def test_a_file_that_is_too_large_to_be_read_whole_is_left_alone(krouter: Krouter) -> None:
    text = SETTINGS + "# kept " + "x" * LARGEST_FILE + "\n[server]\nport = 1\n"
    file(krouter).write_text(text)
    assert put(krouter, "settings", combo_sticky_limit=7).status_code == 409
    assert file(krouter).read_text() == text


def test_models_that_the_vision_adapter_would_not_use_are_told(krouter: Krouter) -> None:
    pools = {"image": {"enabled": True, "models": ["just", "nosuch/x"]}}
    told = krouter.http.put("/api/settings?dry=1", json={"vision_adapter": pools}).json()
    assert [(each["path"], each["level"]) for each in told["problems"]] == [
        ("$.vision_adapter.image.models[0]", "warning"),
        ("$.vision_adapter.image.models[1]", "warning"),
    ]
    assert "no provider 'nosuch' is known" in told["problems"][1]["message"]
    assert put(krouter, "settings", combo_sticky_limit=2).json()["problems"] == []


def test_what_was_not_seen_is_not_written(krouter: Krouter) -> None:
    edit = {"combo_sticky_limit": 9}
    seen = krouter.http.put("/api/settings?dry=1", json=edit).json()["digest"]
    path = krouter.home / "krouter.toml"
    path.write_text(f"# mine\n{path.read_text()}")
    reply = krouter.http.put(f"/api/settings?digest={seen}", json=edit)
    assert reply.status_code == 409
    assert "has changed since it was read" in reply.text
    assert "= 9" not in path.read_text()
    seen = krouter.http.put("/api/settings?dry=1", json=edit).json()["digest"]
    made = krouter.http.put(f"/api/settings?digest={seen}", json=edit)
    assert made.json()["digest"] not in ("", seen)
    assert "= 9" in path.read_text()
