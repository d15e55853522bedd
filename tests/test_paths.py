from __future__ import annotations

from pathlib import Path

import pytest

from krouter.paths import Paths, platform_home, resolve_paths, shipped_combos

FALLBACK = Path("/platform")


@pytest.mark.parametrize(
    ("home", "env", "in_cwd", "expected"),
    [
        (None, {}, "", "/platform"),
        (None, {}, "krouter.toml", "{cwd}"),
        (None, {}, "combos/", "{cwd}"),
        (None, {"KROUTER_HOME": ""}, "krouter.toml", "{cwd}"),
        (None, {"KROUTER_HOME": "/env"}, "combos/", "/env"),
        ("/option", {"KROUTER_HOME": "/env"}, "krouter.toml", "/option"),
        ("below", {}, "krouter.toml", "{cwd}/below"),
        (None, {"KROUTER_HOME": "below"}, "", "{cwd}/below"),
    ],
)
def test_home(
    tmp_path: Path, home: str | None, env: dict[str, str], in_cwd: str, expected: str
) -> None:
    if in_cwd.endswith("/"):
        (tmp_path / in_cwd).mkdir()
    elif in_cwd:
        (tmp_path / in_cwd).touch()
    paths = resolve_paths(home, env=env, cwd=tmp_path, fallback=lambda: FALLBACK)
    root = Path(expected.format(cwd=tmp_path))
    assert paths == Paths(
        root,
        root / "krouter.toml",
        root / "combos",
        root / "keys.json",
        root / "ledger.db",
        root / "spending.db",
    )


def test_parts_override_the_home(tmp_path: Path) -> None:
    paths = resolve_paths("/home", "my.toml", "/elsewhere", env={}, cwd=tmp_path)
    assert paths.config == tmp_path / "my.toml"
    assert paths.combos == Path("/elsewhere")
    assert paths.keys == Path("/home/keys.json")


def test_the_platform_folder_is_absolute() -> None:
    assert platform_home().is_absolute()
    assert platform_home().name == "krouter"


def test_shipped_combos_is_a_folder() -> None:
    assert shipped_combos().is_dir()
