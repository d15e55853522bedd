from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from krouter.combos import combo_schema
from krouter.costs import PER_DOLLAR
from krouter.keys import KeyRing, add_key, list_keys
from krouter.spending import Spending, Spent
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
    without = {"models": None, "rpm": None, "budget": None, "spent": None, "unpriced": None}
    listed = home.json("keys", "list")[0]
    assert listed == {"name": "a", "created": listed["created"], **without, "resets_at": None}
    (head, line, _) = home.run("keys", "list").stdout.splitlines()
    assert head.split() == ["NAME", "CREATED", "MODELS", "RPM", "BUDGET", "SPENT"]
    assert line.split() == ["a", listed["created"], "-", "-", "-", "-"]
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


def test_a_key_with_limits(home: Home) -> None:
    told = home.run(
        "keys", "add", "a", "--models", "demo,one/*", "--rpm", "60", "--budget", "5/day"
    )
    assert told.exit_code == 0
    assert "Unknown model" not in told.stderr
    (key,) = list_keys(home.path / "keys.json")
    assert (key.models, key.rpm, key.budget) == (("demo", "one/*"), 60, "5/day")
    hour = int(time.time()) // 3600 * 3600
    Spending(home.path / "spending.db", lambda: hour).add(key.id, Spent(PER_DOLLAR * 5 // 4, 2))
    listed = home.json("keys", "list")[0]
    assert (listed["models"], listed["rpm"], listed["budget"]) == (["demo", "one/*"], 60, "5/day")
    assert (listed["spent"], listed["unpriced"]) == (1.25, 2)
    assert listed["resets_at"].endswith("T00:00:00+00:00")
    assert "demo, one/*  60   $5/day  $1.2500 + 2 unpriced" in home.run("keys", "list").stdout
    told = home.run("keys", "set", "a", "--rpm", "off", "--budget", "0.50/month")
    assert told.exit_code == 0
    assert told.stderr == "'a' is limited to: models demo, one/*; budget $0.5/month.\n"
    assert home.json("keys", "list")[0]["spent"] == 1.25
    told = home.run("keys", "set", "a", "--models", "off", "--budget", "off")
    assert told.stderr == "'a' is limited to: nothing.\n"
    (changed,) = list_keys(home.path / "keys.json")
    assert (changed.hash, changed.is_limited) == (key.hash, False)


def test_spending_that_cannot_be_read_is_unknown(home: Home) -> None:
    home.run("keys", "add", "a", "--budget", "5/day")
    (home.path / "spending.db").write_bytes(b"no database " * 999)
    assert home.json("keys", "list")[0]["spent"] is None
    assert "unknown" in home.run("keys", "list").stdout


def test_a_name_that_is_no_model_is_pointed_out(home: Home) -> None:
    home.combo("daily", {"models": ["demo/x"]})
    for args in (("add", "a"), ("set", "a")):
        told = home.run("keys", *args, "--models", "dialy,daily")
        assert told.exit_code == 0
        assert "Warning: Unknown model 'dialy'" in told.stderr
        assert "Did you mean 'daily'" in told.stderr
    home.settings("nonsense")
    assert home.run("keys", "set", "a", "--models", "dialy").exit_code == 0


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--models", "", "names of combos and models are parted by commas"),
        ("--models", "a,,b", "names of combos and models are parted by commas"),
        ("--rpm", "0", "a whole number of requests a minute, from 1 to 60,000"),
        ("--rpm", "1.5", "a whole number"),
        ("--rpm", "-1", "a whole number"),
        ("--rpm", "9" * 999, "a whole number"),
        ("--budget", "0.0000001/day", "at most 7 digits before the point, 6 after it"),
        ("--budget", "5", "US dollars per hour, day, week or month, as 5/day"),
        ("--budget", "0/day", "more than 0"),
    ],
)
@pytest.mark.parametrize("command", ["add", "set"])
def test_a_limit_that_is_none(home: Home, command: str, option: str, value: str, says: str) -> None:
    before = home.run("keys", "add", "b")
    assert before.exit_code == 0
    result = home.run("keys", command, "a" if command == "add" else "b", option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert says in " ".join(result.stderr.split())
    assert [key["name"] for key in home.json("keys", "list")] == ["b"]


def test_setting_nothing_or_an_unknown_key(home: Home) -> None:
    home.run("keys", "add", "laptop")
    assert home.run("keys", "set", "laptop").exit_code == 2
    result = home.run("keys", "set", "labtop", "--rpm", "5")
    assert result.exit_code == 1
    assert "there is no key 'labtop'. Did you mean 'laptop'?" in result.stderr


def test_removing_an_unknown_key_is_exit_code_1(home: Home) -> None:
    home.run("keys", "add", "laptop")
    result = home.run("keys", "remove", "labtop")
    assert result.exit_code == 1
    assert "there is no key 'labtop'. Did you mean 'laptop'?" in result.stderr


@pytest.mark.parametrize(
    "args", [("list",), ("add", "a"), ("set", "a", "--rpm", "1"), ("remove", "a")]
)
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
