"""`/api/combos/NAME`: reading, judging, saving and deleting, over a real socket and real files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from krouter.keys import Limits, add_key, change_key
from krouter.paths import shipped_combos
from tests.harness import Krouter, provider_settings

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a", two="a b")
C = {"description": "d", "models": ["one/a", "two/gpt-4o"]}
COMBOS: dict[str, Any] = {
    "c": C,
    "outer": {"models": ["c", "one/z"]},
    "bad": {"models": []},
}


@pytest.fixture
def krouter(tmp_path: Path) -> Any:
    with Krouter(tmp_path, combos=COMBOS, settings=SETTINGS, env=ENV) as krouter:
        yield krouter


def read(krouter: Krouter, name: str) -> dict[str, Any]:
    found: dict[str, Any] = krouter.http.get(f"/api/combos/{name}").json()
    return found


def save(krouter: Krouter, name: str, combo: Any, digest: str | None = None) -> httpx.Response:
    digest = read(krouter, name).get("digest", "") if digest is None else digest
    return krouter.http.put(f"/api/combos/{name}", json={"combo": combo, "digest": digest})


def preview(krouter: Krouter, name: str, **given: Any) -> dict[str, Any]:
    reply = krouter.http.post(f"/api/combos/{name}/preview", json=given)
    assert reply.status_code == 200
    found: dict[str, Any] = reply.json()
    return found


def message(reply: httpx.Response) -> str:
    return str(reply.json()["error"]["message"])


def file(krouter: Krouter, name: str) -> Path:
    return krouter.home / "combos" / f"{name}.json"


def test_a_combo_is_read(krouter: Krouter) -> None:
    found = read(krouter, "c")
    assert json.loads(found["text"]) == C
    assert (found["shipped"], len(found["digest"])) == (False, 64)
    assert read(krouter, "daily")["shipped"] is True
    assert json.loads(read(krouter, "bad")["text"]) == {"models": []}, "so that it can be mended"
    assert krouter.http.get("/api/combos/none").status_code == 404


def test_a_reorder_lands_in_the_file_and_is_served_at_once(krouter: Krouter) -> None:
    file(krouter, "c").write_text(json.dumps(C, indent=4))
    file(krouter, "c").chmod(0o644)
    turned = {**C, "models": C["models"][::-1]}
    saved = save(krouter, "c", turned)
    assert saved.status_code == 200
    assert file(krouter, "c").read_text() == json.dumps(turned, indent=4) + "\n"
    assert stat.S_IMODE(file(krouter, "c").stat().st_mode) == 0o644
    assert [e.model for e in krouter.router.world.combos["c"].models] == turned["models"]
    assert saved.json()["digest"] == read(krouter, "c")["digest"]
    assert '-        "one/a",' in saved.json()["diff"]
    assert sorted(os.listdir(krouter.home / "combos")) == ["bad.json", "c.json", "outer.json"]


def test_a_new_combo_is_its_owners_alone(krouter: Krouter) -> None:
    assert save(krouter, "new", {"models": ["one/n"]}, "").status_code == 200
    assert stat.S_IMODE(file(krouter, "new").stat().st_mode) == 0o600
    assert krouter.router.world.combos["new"].models[0].model == "one/n"


def test_a_shipped_combo_is_saved_in_the_home(krouter: Krouter) -> None:
    shipped = read(krouter, "daily")
    packaged = (shipped_combos() / "daily.json").read_bytes()
    combo = json.loads(shipped["text"])
    combo["models"].append("one/x")
    assert save(krouter, "daily", combo, shipped["digest"]).status_code == 200
    assert (shipped_combos() / "daily.json").read_bytes() == packaged
    assert read(krouter, "daily")["shipped"] is False
    gone = krouter.http.delete(f"/api/combos/daily?digest={read(krouter, 'daily')['digest']}")
    assert gone.json() == {"deleted": "daily", "served": True}, "the shipped one is served again"
    assert read(krouter, "daily") == shipped
    refused = krouter.http.delete(f"/api/combos/daily?digest={shipped['digest']}")
    assert refused.status_code == 409
    assert "comes with krouter" in message(refused)


def test_what_a_deletion_leaves_is_told_before(krouter: Krouter) -> None:
    assert read(krouter, "c")["returns"] is False
    krouter.write_combo("demo", C)
    assert read(krouter, "demo")["returns"] is True


def test_a_home_that_is_the_shipped_folder_loses_what_it_deletes(tmp_path: Path) -> None:
    with Krouter(tmp_path, combos={}) as krouter:
        folder = krouter.home / "combos"
        folder.rmdir()
        folder.symlink_to(shipped_combos())
        told = read(krouter, "demo")
        assert (told["shipped"], told["returns"]) == (False, False)


def test_a_preview_tells_whether_the_file_is_still_the_same(krouter: Krouter) -> None:
    digest = read(krouter, "c")["digest"]
    path = "/api/combos/c/preview"
    given = {"combo": C, "digest": digest}
    assert krouter.http.post(path, json=given).status_code == 200
    krouter.write_combo("c", {"models": ["two/other"]})
    assert krouter.http.post(path, json=given).status_code == 409
    assert krouter.http.post(path, json={**given, "digest": ""}).status_code == 409


def test_nobody_undoes_what_another_has_done(krouter: Krouter) -> None:
    digest = read(krouter, "c")["digest"]
    krouter.write_combo("c", {"models": ["two/other"]})
    refused = save(krouter, "c", C, digest)
    assert refused.status_code == 409
    assert "has changed since it was read" in message(refused)
    assert "is there already" in message(save(krouter, "c", C, ""))
    file(krouter, "c").unlink()
    assert "is gone" in message(save(krouter, "c", C, digest))
    assert not file(krouter, "c").exists()


@pytest.mark.parametrize(
    ("combo", "path", "says"),
    [
        ({"models": []}, "$.models", "at least one entry"),
        ({"models": ["one/a"], "stratgy": "fusion"}, "$.stratgy", "Did you mean 'strategy'?"),
        ({"models": ["nobody"]}, "$.models[0]", "unknown combo 'nobody'"),
        ({"models": ["outer"]}, "$.models[0]", "lead back to 'c'"),
        ({"models": ["one/a"], "name": "d"}, "$.name", "called 'd' here"),
        ({"models": ["one/a"], "stickyLimit": 1.5}, "$.stickyLimit", "integer"),
        ({"models": ["one/a"], "stickyLimit": float("nan")}, "", "not a number"),
        ({"models": ["one/a\ud800"]}, "", "not UTF-8"),
        ({"models": ["one/a"] * 90_000}, "", "larger than"),
    ],
)
def test_a_bad_edit_is_refused_with_its_reason(
    krouter: Krouter, combo: Any, path: str, says: str
) -> None:
    file(krouter, "c").write_text(json.dumps(C, indent=4))
    before = file(krouter, "c").read_bytes()
    content = json.dumps({"combo": combo, "digest": read(krouter, "c")["digest"]})
    headers = {"content-type": "application/json"}
    refused = krouter.http.put("/api/combos/c", content=content, headers=headers)
    assert refused.status_code == 422
    problem = refused.json()["error"]["problems"][0]
    assert (problem["path"], problem["level"]) == (path, "error")
    assert says in f"{problem['message']} {problem['hint']}"
    assert file(krouter, "c").read_bytes() == before


def test_a_combo_that_others_name_cannot_be_deleted_or_nested_too_deeply(krouter: Krouter) -> None:
    refused = krouter.http.delete(f"/api/combos/c?digest={read(krouter, 'c')['digest']}")
    assert refused.status_code == 422
    assert "the combo 'outer' at $.models[0]: unknown combo 'c'" in message(refused)
    assert file(krouter, "c").exists()
    deeper = {"models": ["deep"]}
    assert save(krouter, "deep", {"models": ["one/d"]}, "").status_code == 200
    assert save(krouter, "most", {"models": ["outer"]}, "").status_code == 200
    refused = save(krouter, "c", deeper)
    assert refused.status_code == 422
    assert "the combo 'most' at $.models[0]: more than 3 levels" in message(refused)


def test_a_preview_tells_the_diff_and_what_it_means_and_writes_nothing(krouter: Krouter) -> None:
    before = file(krouter, "c").read_bytes()
    told = preview(krouter, "c", combo={**C, "models": ["two/gpt-4o", "one/a"]})
    assert told["problems"] == []
    assert told["diff"].startswith("--- a/c.json\n+++ b/c.json\n")
    assert any("two/gpt-4o goes first, not one/a" in text for text in told["meaning"])
    assert file(krouter, "c").read_bytes() == before
    told = preview(krouter, "c", combo={**C, "models": ["onne/a"]})
    assert told["problems"] == [
        {
            "path": "$.models[0]",
            "message": "no provider 'onne' is known, so nothing can be sent there.",
            "hint": "Did you mean 'one'?",
            "level": "warning",
        }
    ]
    told = preview(krouter, "c", combo={"models": [{"model": "two/m", "accounts": ["z"]}]})
    assert [each["level"] for each in told["problems"]] == ["warning"]
    assert preview(krouter, "fresh", combo={"models": ["one/a"]})["meaning"] == []


def test_a_text_is_saved_as_it_is_written(krouter: Krouter) -> None:
    text = '{"models":   ["one/a"]}'
    told = preview(krouter, "c", text='{"models": ["one/a",]}')
    assert "not JSON at line 1" in told["problems"][0]["message"]
    told = preview(krouter, "c", text='{"models": ["one/a"], "models": ["one/b"]}')
    assert "stands twice" in told["problems"][0]["message"]
    body = {"text": text, "digest": read(krouter, "c")["digest"]}
    assert krouter.http.put("/api/combos/c", json=body).status_code == 200
    assert file(krouter, "c").read_text() == text


@pytest.mark.parametrize(
    "name",
    [
        "..%2Fx",
        "..%2f..%2Fetc%2Fpasswd",
        "%2Fetc%2Fpasswd",
        "%2e%2e%2Fkeys",
        "a%5Cb",
        "a%00b",
        "a b",
        ".hidden",
        "x.schema",
        "n" * 101,
        "%C3%A4",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PREVIEW"])
def test_names_that_lead_elsewhere_are_refused(
    shared_door: Krouter, name: str, method: str
) -> None:
    before = sorted(str(path) for path in shared_door.home.rglob("*"))
    path, body = f"/api/combos/{name}", {"combo": C}
    if method == "PREVIEW":
        method, path = "POST", f"{path}/preview"
    query = "?digest=" if method == "DELETE" else ""
    given = body if method in ("PUT", "POST") else None
    reply = shared_door.http.request(method, f"{path}{query}", json=given)
    assert reply.status_code == 400
    assert "combo" in message(reply)
    assert sorted(str(path) for path in shared_door.home.rglob("*")) == before


@pytest.fixture(scope="module")
def shared_door(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, settings=SETTINGS, env=ENV) as krouter:
        yield krouter


def test_a_link_is_followed_and_stays_one(krouter: Krouter, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(json.dumps(C))
    file(krouter, "linked").symlink_to(real)
    krouter.served.house.refresh()
    assert save(krouter, "linked", {"models": ["one/new"]}).status_code == 200
    assert file(krouter, "linked").is_symlink()
    assert json.loads(real.read_text()) == {"models": ["one/new"]}
    digest = read(krouter, "linked")["digest"]
    assert krouter.http.delete(f"/api/combos/linked?digest={digest}").status_code == 200
    assert real.exists()


def test_links_to_what_is_no_file_are_refused(krouter: Krouter, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, target in (("loop", "loop.json"), ("pipe", "../pipe"), ("far", "no/such/folder")):
        file(krouter, name).symlink_to(target)
        refused = save(krouter, name, C, "")
        assert refused.status_code == 409
        assert "cannot be" in message(refused)
        assert not (tmp_path / "combos" / "no").exists()


def test_a_file_that_holds_another_combo_is_left_alone(krouter: Krouter) -> None:
    krouter.write_combo("file", {"name": "other", "models": ["one/o"]})
    krouter.served.house.refresh()
    refused = save(krouter, "file", C, "")
    assert refused.status_code == 409
    assert "holds the combo 'other'" in message(refused)
    renamed = {"name": "other", "models": ["one/p"]}
    assert save(krouter, "other", renamed).status_code == 200
    assert json.loads(file(krouter, "file").read_text()) == renamed


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{}", "needs either combo"),
        (b'{"combo": {}, "text": ""}', "needs either combo"),
        (b'{"combo": []}', "$.combo"),
        (b'{"combo": {}, "digst": ""}', "Did you mean 'digest'?"),
        (b"nonsense", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"combo": {}, "digest": 7}', "$.digest"),
    ],
)
def test_bodies_that_are_none(shared_door: Krouter, body: bytes, says: str) -> None:
    headers = {"content-type": "application/json"}
    refused = shared_door.http.put("/api/combos/c", content=body, headers=headers)
    assert refused.status_code == 400
    assert says in message(refused)


def test_a_deep_combo_is_refused(shared_door: Krouter) -> None:
    body = b'{"combo": {"models": ' + b"[" * 300 + b"]" * 300 + b"}}"
    headers = {"content-type": "application/json"}
    refused = shared_door.http.put("/api/combos/c", content=body, headers=headers)
    assert refused.status_code == 422
    assert "nested more than" in message(refused)


@pytest.mark.parametrize("call", ["GET c", "PUT c", "DELETE c?digest=", "POST c/preview"])
def test_who_may(tmp_path: Path, call: str) -> None:
    key = add_key(tmp_path / "keys.json", "full", 0.0)
    limited = add_key(tmp_path / "keys.json", "small", 0.0)
    change_key(tmp_path / "keys.json", "small", lambda key: Limits(rpm=5))
    method, path = call.split()
    with Krouter(tmp_path, combos={"c": C}) as krouter:
        ways: tuple[tuple[dict[str, str], int], ...] = (
            ({}, 401),
            ({"x-krouter-key": limited}, 403),
            ({"x-krouter-key": key, "origin": "https://evil.example"}, 403),
            ({"x-krouter-key": key, "sec-fetch-site": "cross-site"}, 403),
        )
        for headers, status in ways:
            body = {"combo": C} if method in ("PUT", "POST") else None
            reply = krouter.http.request(method, f"/api/combos/{path}", json=body, headers=headers)
            assert reply.status_code == status
        assert json.loads(file(krouter, "c").read_text()) == C


def test_a_form_is_no_save(shared_door: Krouter) -> None:
    reply = shared_door.http.put(
        "/api/combos/c", content=b"{}", headers={"content-type": "text/plain"}
    )
    assert reply.status_code == 415
