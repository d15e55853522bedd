"""Every snippet of docs/sdk.md runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from krouter.arguments import KROUTER_WAY
from krouter.combos import parse_combo
from tests.harness import complaints
from tests.upstream import Upstream

PAGE = (Path(__file__).parent.parent / "docs" / "sdk.md").read_text()
COMBOS = {
    "daily": ["local/first:status=529", "local/second:text=Good%20day"],
    "agent": ["local/agent:tool"],
    "vectors": ["local/vectors:status=503", "local/embed"],
    "busy": ["local/busy:status=429;retry-after=20"],
}


def snippets() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_snippets_run(tmp_path: Path) -> None:
    (tmp_path / "combos").mkdir()
    for name, models in COMBOS.items():
        (tmp_path / "combos" / f"{name}.json").write_text(json.dumps({"models": models}))
    with Upstream() as upstream:
        base = f"{upstream.url}/v1"
        (tmp_path / "krouter.toml").write_text(f'[provider.local]\nbase_url = "{base}"\n')
        program = "\n".join([f"LOCAL = {base!r}", *snippets()])
        done = subprocess.run(
            [sys.executable, "-W", "error", "-X", "dev", "-c", program],
            env={**os.environ, "KROUTER_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert complaints(done.stderr) == []
    assert done.returncode == 0
    said = done.stdout.splitlines()
    assert said[:2] == ["Good day", "local/second:text=Good%20day"]
    assert "429 20" in said
    assert any(line.startswith("fallbacks is not an argument of krouter") for line in said)
    assert said[-1] == "small"


def test_the_combo_files_it_shows_are_ones() -> None:
    shown = re.findall(r"in `combos/(\w+)\.json`:\n\n```json\n(.*?)```", PAGE, re.DOTALL)
    combos = {name: parse_combo(text.encode(), f"{name}.json", name) for name, text in shown}
    assert combos["vectors"].models[0].model.startswith("openai/")


def test_the_arguments_it_names_are_refused() -> None:
    table = PAGE.partition("| LiteLLM | krouter |")[2].partition("\n\n")[0]
    named = {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert named <= set(KROUTER_WAY)
