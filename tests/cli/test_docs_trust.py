"""What docs/trust.md shows is what the commands print, to the letter."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Home

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trust.md").read_text()
BLOCKS = re.findall(r"```console\n\$ krouter (.*?)\n(.*?)```\n", PAGE, re.DOTALL)
BLOCKS = [block for block in BLOCKS if not block[0].startswith("replay")]  # it needs a ledger
IDS = [command for command, _ in BLOCKS]
ACCOUNTS = dict.fromkeys(("GLM_API_KEY", "DEEPSEEK_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"), "k")


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=IDS)
def test_a_block_is_what_the_command_prints(
    home: Home, monkeypatch: pytest.MonkeyPatch, command: str, shown: str
) -> None:
    monkeypatch.chdir(ROOT)
    env = ACCOUNTS if command.startswith("check") else {}
    assert home.run(*shlex.split(command), env=env).stdout == shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("command", ["check", "diff", "drill", "simulate"])
def test_a_command_is_shown_on_daily(command: str) -> None:
    assert any(shown.startswith(f"{command} daily") for shown in IDS)


def test_the_combo_whose_cases_fail_is_daily_but_for_its_first_entry() -> None:
    daily, changed = (
        json.loads((ROOT / folder / "daily.json").read_bytes())
        for folder in ("combos", "docs/examples/night")
    )
    assert changed["models"][0] != daily["models"][0]
    assert changed["models"][1:] == daily["models"][1:]
    assert changed["expect"] == daily["expect"]
