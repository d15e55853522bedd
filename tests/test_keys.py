from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from krouter.keys import KeyRing, Limits, add_key, change_key, list_keys, remove_key
from krouter.problems import ConfigError

NOW = 1_700_000_000.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        self.now += 2
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "keys.json"


def test_a_key_is_shown_once_and_stored_hashed(path: Path) -> None:
    key = add_key(path, "laptop", NOW)
    assert key.startswith("kr-")
    assert len(key) >= 35
    assert key not in path.read_text()
    (stored,) = list_keys(path)
    assert (stored.name, stored.created) == ("laptop", "2023-11-14T22:13:20+00:00")
    assert json.loads(path.read_text()) == {"keys": [stored.model_dump(exclude_none=True)]}


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_limits_are_stored_and_changed(path: Path) -> None:
    limits = Limits(models=("daily", "glm/*"), rpm=60, budget="$5.0/day")
    key = add_key(path, "a", NOW, limits=limits)
    add_key(path, "b", NOW)
    first, second = json.loads(path.read_text())["keys"]
    assert list(first) == ["name", "hash", "created", "models", "rpm", "budget"]
    assert first["budget"] == "5/day"
    assert list(second) == ["name", "hash", "created"]
    ring = KeyRing(path, Clock())
    before = ring.find(key)
    assert before is not None
    assert before.is_limited
    changed = change_key(path, "a", lambda key: key.model_copy(update={"rpm": None}))
    assert (changed.models, changed.rpm, changed.budget) == (limits.models, None, "5/day")
    assert ring.find(key) == changed
    assert changed.id == before.id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="no key 'c'"):
        change_key(path, "c", lambda key: key)


def test_a_file_of_before_there_were_limits(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"keys": [ENTRY]}))
    (key,) = list_keys(path)
    assert not key.is_limited
    assert not KeyRing(path, Clock()).problem


def test_only_the_owner_may_read_the_file(path: Path) -> None:
    add_key(path, "a", NOW)
    path.chmod(0o644)
    add_key(path, "b", NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["keys.json"]


def test_randomness_is_injected(path: Path) -> None:
    assert add_key(path, "a", NOW, lambda size: "x" * size) == "kr-" + "x" * 32


def test_keys_are_listed_and_removed(path: Path) -> None:
    assert list_keys(path) == ()
    add_key(path, "a", NOW)
    add_key(path, "b", NOW)
    remove_key(path, "a")
    assert [key.name for key in list_keys(path)] == ["b"]
    with pytest.raises(ConfigError, match="no key 'c'"):
        remove_key(path, "c")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n", "x" * 101])
def test_bad_names(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is no name"):
        add_key(path, name, NOW)
    assert not path.exists()


def test_a_taken_name(path: Path) -> None:
    add_key(path, "a", NOW)
    with pytest.raises(ConfigError, match="already"):
        add_key(path, "a", NOW)


def test_a_ring_knows_its_keys(path: Path) -> None:
    first, second = add_key(path, "a", NOW), add_key(path, "b", NOW)
    ring = KeyRing(path, Clock())
    assert ring.required
    assert (ring.match(first), ring.match(second)) == ("a", "b")
    for wrong in ("", "kr-", first[:-1], first + "x", "\udcff", "ключ"):
        assert ring.match(wrong) is None


def test_a_ring_without_keys_requires_none(path: Path) -> None:
    ring = KeyRing(path, Clock())
    assert not ring.required
    assert ring.match("kr-x") is None


def test_a_ring_follows_the_file(path: Path) -> None:
    ring = KeyRing(path, Clock())
    key = add_key(path, "a", NOW)
    assert ring.match(key) == "a"
    remove_key(path, "a")
    assert ring.match(key) is None
    assert not ring.required


def test_a_ring_looks_once_a_second_at_most(path: Path) -> None:
    clock = [100.0]
    ring = KeyRing(path, lambda: clock[0])
    assert not ring.required
    key = add_key(path, "a", NOW)
    clock[0] += 0.9
    assert ring.match(key) is None
    clock[0] += 0.1
    assert ring.match(key) == "a"


HASH = "0" * 64
ENTRY = {"name": "a", "hash": HASH, "created": "2026-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\xff", "not JSON"),
        ("[]", "object"),
        ("{}", "keys"),
        (json.dumps({"keys": [ENTRY, ENTRY]}), "same name"),
        (json.dumps({"keys": [{**ENTRY, "hash": "kr-plain-secret"}]}), "$.keys[0].hash"),
        (json.dumps({"keys": [{**ENTRY, "name": "a b"}]}), "$.keys[0].name"),
        (json.dumps({"keys": [{**ENTRY, "more": 1}]}), "$.keys[0].more"),
        (json.dumps({"keys": [{**ENTRY, "models": []}]}), "$.keys[0].models"),
        (json.dumps({"keys": [{**ENTRY, "models": "daily"}]}), "$.keys[0].models"),
        (json.dumps({"keys": [{**ENTRY, "rpm": 0}]}), "$.keys[0].rpm"),
        (json.dumps({"keys": [{**ENTRY, "rpm": "60"}]}), "$.keys[0].rpm"),
        (json.dumps({"keys": [{**ENTRY, "budget": "5/year"}]}), "$.keys[0].budget"),
        (json.dumps({"keys": [{**ENTRY, "budget": 5}]}), "$.keys[0].budget"),
    ],
)
def test_a_damaged_file_lets_nobody_in(path: Path, content: str, says: str) -> None:
    key = add_key(path, "a", NOW)
    ring = KeyRing(path, Clock())
    path.write_bytes(content.encode("latin-1"))
    assert ring.match(key) is None
    assert ring.required
    assert says in (ring.problem or "")
    assert "secret" not in (ring.problem or "")
    with pytest.raises(ConfigError):
        add_key(path, "b", NOW)
    assert KeyRing(path, Clock()).required


def test_a_vanished_file_lets_nobody_in_until_it_is_back(path: Path) -> None:
    key = add_key(path, "a", NOW)
    ring = KeyRing(path, Clock())
    kept = path.read_bytes()
    path.unlink()
    assert ring.match(key) is None
    assert ring.required
    assert "gone" in (ring.problem or "")
    path.write_bytes(kept)
    assert ring.match(key) == "a"
    assert ring.problem is None


def test_an_unreadable_or_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "keys.json").mkdir()
    assert KeyRing(tmp_path / "keys.json").required
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be"):
        add_key(tmp_path / "file" / "keys.json", "a", NOW)


CHILD = """
import sys
from pathlib import Path
from krouter.keys import add_key, change_key, remove_key
path, name = Path(sys.argv[1]), sys.argv[2]
for number in range(12):
    add_key(path, f"{name}{number}", 0.0)
    add_key(path, "passing" + name, 0.0)
    remove_key(path, "passing" + name)
"""


def test_commands_at_the_same_time_undo_nothing_of_each_other(path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(path)]
    children = [subprocess.Popen([*command, name]) for name in "abcd"]
    assert [child.wait(60) for child in children] == [0] * 4
    assert {key.name for key in list_keys(path)} == {f"{a}{n}" for a in "abcd" for n in range(12)}
    assert os.listdir(path.parent) == ["keys.json"]


@pytest.mark.skipif(os.name != "posix", reason="pipes and links")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_waited_for(path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    ring = KeyRing(path, Clock())
    assert ring.required
    assert "no regular file" in (ring.problem or "")
    with pytest.raises(ConfigError, match="no regular file"):
        list_keys(path)


@pytest.mark.skipif(os.name != "posix", reason="pipes and links")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_written_through(path: Path, tmp_path: Path, is_there: bool) -> None:
    target = tmp_path / "elsewhere" / "real.json"
    target.parent.mkdir()
    path.parent.mkdir()
    if is_there:
        add_key(target, "a", NOW)
    path.symlink_to(target)
    add_key(path, "b", NOW)
    assert path.is_symlink()
    assert [key.name for key in list_keys(target)] == (["a", "b"] if is_there else ["b"])
    assert os.listdir(target.parent) == ["real.json"]
