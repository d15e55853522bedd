"""The wheel carries both packages and the shipped combos, and nothing under a foreign name."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from krouter.combostore import ComboStore
from krouter.paths import shipped_combos

ROOT = Path(__file__).parent.parent
SHIPPED = {"daily", "panel", "free-tier", "demo"}


def test_the_wheel(tmp_path: Path) -> None:
    command = "-m build --wheel --no-isolation --outdir".split()
    source = tmp_path / "source"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(source)], check=True
    )
    done = subprocess.run(
        [sys.executable, *command, str(tmp_path), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"krouter", "krouter_adapters", "krouter_combos"}
    assert {f"krouter_combos/{name}.json" for name in SHIPPED} <= set(names)
    assert "krouter_adapters/providers.toml" in names
    assert "krouter/py.typed" in names
    pages = {f"krouter/pages/{page.name}" for page in (ROOT / "krouter/pages").iterdir()}
    assert pages <= set(names)


def test_the_shipped_combos_are_found_and_load() -> None:
    store = ComboStore([shipped_combos()])
    assert store.problems == ()
    assert set(store.combos) >= SHIPPED
