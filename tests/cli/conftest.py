"""A home folder, and krouter's commands run in it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from krouter.cli.root import cli

CANARY = "sk-canary-7f3a9b"


class Home:
    """`run` gives it to a command as `--home`; only `env` of the environment is seen."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.env: dict[str, str] = {}
        (path / "combos").mkdir()
        for name in list(os.environ):
            if name.endswith(("_API_KEY", "_TOKEN")) or name.startswith("KROUTER_"):
                monkeypatch.delenv(name)

    def combo(self, name: str, combo: Any) -> Path:
        file = self.path / "combos" / f"{name}.json"
        file.write_text(combo if isinstance(combo, str) else json.dumps(combo))
        return file

    def settings(self, text: str) -> Path:
        file = self.path / "krouter.toml"
        file.write_text(text)
        return file

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Result:
        result = run(*args, "--home", str(self.path), env={**self.env, **(env or {})})
        assert CANARY not in result.output
        return result

    def json(self, *args: str, code: int = 0, env: Mapping[str, str] | None = None) -> Any:
        result = self.run(*args, "--json", env=env)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)


def run(*args: str, env: Mapping[str, str] | None = None) -> Result:
    """The command line in this process. Whatever escapes it fails the test."""
    result = CliRunner().invoke(cli, args, env=env, prog_name="krouter", catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(tmp_path, monkeypatch)


def by(rows: list[dict[str, Any]], field: str = "name") -> dict[str, dict[str, Any]]:
    return {row[field]: row for row in rows}


@pytest.fixture
def user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty home folder of somebody who is in its folder `work`, and has no variable that a
    client or a proxy reads."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "work").mkdir()
    prefixes = ("ANTHROPIC_", "OPENAI_", "CLAUDE", "CODEX_", "GEMINI_", "GOOGLE_", "LLM_", "XDG_")
    for name in list(os.environ):
        if name.startswith(prefixes) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder / "work")
    return folder


def put_program(folder: Path, name: str, script: str) -> Path:
    """A program for a PATH: a Python script that finds json, os, signal and sys imported."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!{sys.executable}\nimport json, os, signal, sys\n{script}\n")
    program.chmod(0o755)
    return program
