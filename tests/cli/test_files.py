from __future__ import annotations

import json
from pathlib import Path

import pytest

from krouter.combos import combo_schema
from krouter.keys import KeyRing, add_key
from tests.cli.conftest import Home, run
from tests.harness import Krouter


def test_a_key_is_printed_alone_and_lets_in(home: Home) -> None:
    result = home.run("keys", "add", "laptop")
    assert result.exit_code == 0
    key = result.stdout.strip()
    assert result.stdout == f"{key}\n"
    assert key.startswith("kr-")
    assert key not in result.stderr
    assert key not in (home.path / "keys.json").read_text()
    assert KeyRing(home.path / "keys.json").match(key) == "laptop"


def _port(url: str) -> str:
    return f"[server]\nport = {url.rpartition(':')[2]}\n"


def test_a_key_that_guards_another_server_than_the_one_that_answers(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Krouter(tmp_path_factory.mktemp("served")) as krouter:
        home.settings(_port(krouter.url))
        told = home.run("keys", "add", "laptop").stderr
        assert f"guards the krouter whose home is {home.path}.\n" in told
        other = krouter.home.resolve()
        assert f"Warning: the krouter at {krouter.url} has another home, {other}" in told
        assert f"--home {other}" in told


def test_a_key_that_guards_the_server_that_answers(home: Home) -> None:
    with Krouter(home.path) as krouter:
        home.settings(_port(krouter.url))
        for name in ("first", "second"):
            assert "Warning" not in home.run("keys", "add", name).stderr


def test_a_server_that_asks_for_other_keys(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    served = tmp_path_factory.mktemp("served")
    add_key(served / "keys.json", "other", 0.0)
    with Krouter(served) as krouter:
        home.settings(_port(krouter.url))
        assert "knows other keys" in home.run("keys", "add", "laptop").stderr


def test_keys_are_listed_and_removed(home: Home) -> None:
    assert home.json("keys", "list") == []
    assert home.run("keys", "list").stdout == ""
    for name in ("a", "b"):
        home.run("keys", "add", name)
    assert [key["name"] for key in home.json("keys", "list")] == ["a", "b"]
    assert set(home.json("keys", "list")[0]) == {"name", "created"}
    assert home.run("keys", "list").stdout.startswith("NAME  CREATED\na     ")
    assert "last" not in home.run("keys", "remove", "a").stderr
    assert "It was the last" in home.run("keys", "remove", "b").stderr
    assert home.json("keys", "list") == []


def test_a_first_key_makes_the_home(tmp_path: Path) -> None:
    assert run("keys", "add", "a", "--home", str(tmp_path / "new")).exit_code == 0
    assert (tmp_path / "new" / "keys.json").is_file()


@pytest.mark.parametrize("name", ["a b", "", "x/y", "a"])
def test_a_bad_or_taken_name_is_a_wrong_command_line(home: Home, name: str) -> None:
    home.run("keys", "add", "a")
    result = home.run("keys", "add", name)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "NAME" in result.stderr


def test_removing_an_unknown_key_is_exit_code_1(home: Home) -> None:
    home.run("keys", "add", "laptop")
    result = home.run("keys", "remove", "labtop")
    assert result.exit_code == 1
    assert "there is no key 'labtop'. Did you mean 'laptop'?" in result.stderr


@pytest.mark.parametrize("args", [("list",), ("add", "a"), ("remove", "a")])
def test_a_broken_keys_file_is_exit_code_3(home: Home, args: tuple[str, ...]) -> None:
    (home.path / "keys.json").write_text("{")
    result = home.run("keys", *args)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"{home.path / 'keys.json'}: not JSON.")


def test_the_schema(tmp_path: Path) -> None:
    assert json.loads(run("schema").stdout) == combo_schema()
    file = tmp_path / "combo.schema.json"
    result = run("schema", "--output", str(file))
    assert result.exit_code == 0
    assert result.stdout == ""
    assert file.read_text() == run("schema").stdout
    missing = run("schema", "--output", str(tmp_path / "no" / "file"))
    assert missing.exit_code == 3
    assert "cannot be written" in missing.stderr


def test_paths(home: Home) -> None:
    found = home.json("paths")
    assert found["home"] == str(home.path)
    assert found["config"] == str(home.path / "krouter.toml")
    assert found["combos"] == str(home.path / "combos")
    assert found["keys"] == str(home.path / "keys.json")
    assert (Path(found["shipped_combos"]) / "demo.json").is_file()
    lines = home.run("paths").stdout.splitlines()
    assert lines[1].split() == ["home", str(home.path), "yes"]


def test_the_home_of_the_environment(tmp_path: Path) -> None:
    found = json.loads(run("paths", "--json", env={"KROUTER_HOME": str(tmp_path)}).stdout)
    assert found["home"] == str(tmp_path)
