"""`krouter diff` over files, folders and names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Home

OLD: dict[str, Any] = {"models": ["glm/glm-5.1", "cc/claude-sonnet-4-6"]}
NEW: dict[str, Any] = {"models": ["glm/glm-5.1", "ds/deepseek-v4-pro"]}


def folder(path: Path, **combos: Any) -> str:
    path.mkdir()
    for name, combo in combos.items():
        text = combo if isinstance(combo, str) else json.dumps(combo)
        (path / f"{name}.json").write_text(text)
    return str(path)


def test_a_name_against_a_file(home: Home, tmp_path: Path) -> None:
    home.combo("mine", OLD)
    new = folder(tmp_path / "new", mine=NEW)
    result = home.run("diff", "mine", f"{new}/mine.json")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:3] == [
        "mine:",
        "  ds/deepseek-v4-pro joins; cc/claude-sonnet-4-6 leaves",
        "  no attachment: the order is glm/glm-5.1, ds/deepseek-v4-pro (it was",
    ]
    assert "  a new dead end: image" in result.stdout.splitlines()


def test_no_effect_no_output(home: Home, tmp_path: Path) -> None:
    home.combo("mine", OLD)
    new = folder(tmp_path / "new", other={"description": "The same.", **OLD})
    result = home.run("diff", "mine", f"{new}/other.json")
    assert (result.exit_code, result.output) == (0, "")
    assert home.json("diff", "combo/mine", "mine") == {"same": True, "combos": []}


def test_folders_with_what_is_nested_in_them(home: Home, tmp_path: Path) -> None:
    outer = {"models": ["demo/a", "inner"]}
    old = folder(tmp_path / "old", outer=outer, inner=OLD, gone=OLD, same=OLD)
    new = folder(tmp_path / "new", outer=outer, inner=NEW, come=OLD, same=OLD)
    found = home.json("diff", old, new)
    assert [(each["name"], each["is"]) for each in found["combos"]] == [
        ("come", "added"),
        ("gone", "removed"),
        ("inner", "changed"),
        ("outer", "changed"),
    ]
    (models,) = (c for c in found["combos"][3]["changes"] if c["what"] == "models")
    assert set(models["old"]) - set(models["new"]) == {"cc/claude-sonnet-4-6"}
    assert home.run("diff", old, new).stdout.startswith("come: added\n\ngone: removed\n\ninner:\n")


@pytest.mark.parametrize("which", ["name", "file", "text", "folder", "nested"])
def test_what_cannot_be_read_is_3(home: Home, tmp_path: Path, which: str) -> None:
    home.combo("mine", OLD)
    bad = folder(tmp_path / "bad", text="{", nested={"models": ["nowhere"]})
    given = {
        "name": ("mine", "nine"),
        "file": ("mine", f"{bad}/none.json"),
        "text": ("mine", f"{bad}/text.json"),
        "nested": (f"{bad}/nested.json", "mine"),
        "folder": (bad, bad),
    }[which]
    result = home.run("diff", *given)
    assert result.exit_code == 3
    assert {"name": "Did you mean 'mine'?", "nested": "unknown combo"}.get(
        which, ""
    ) in result.output


def test_a_folder_against_a_name_is_wrong(home: Home, tmp_path: Path) -> None:
    assert home.run("diff", "demo", folder(tmp_path / "new")).exit_code == 2


def test_a_folder_that_has_the_name_of_a_combo(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken, and how to name the combo is said."""
    home.combo("mine", OLD)
    (tmp_path / "elsewhere").mkdir()
    folder(tmp_path / "elsewhere" / "mine")
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = home.run("diff", "mine", "demo")
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "'mine' is a folder here. The combo is combo/mine." in told
    assert home.run("diff", "combo/mine", "demo").exit_code == 0
