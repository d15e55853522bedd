"""The clients at their pinned versions, in a cache folder that later runs find filled."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PINS = Path(__file__).parent / "install"
CACHE = ROOT / ".cache" / "clients"
NODE = "node"


def folder(place: str) -> Path:
    """Where a set of clients is installed: `node`, or a Python environment."""
    return CACHE / place


def program(place: str, name: str) -> str:
    inner = "node_modules/.bin" if place == NODE else "bin"
    return str(folder(place) / inner / name)


def version(place: str, package: str) -> str:
    """The pinned version of a package."""
    if place == NODE:
        return str(json.loads((PINS / "package.json").read_text())["dependencies"][package])
    found = re.search(rf"(?m)^{re.escape(package)}==(\S+)", (PINS / f"{place}.txt").read_text())
    assert found, f"{package} is not in {place}.txt"
    return found[1]


def pins(place: str) -> list[Path]:
    names = ("package.json", "package-lock.json") if place == NODE else (f"{place}.txt",)
    return [PINS / name for name in names]


def install(place: str) -> None:
    """Installs a set unless it is there as pinned."""
    stamp = folder(place) / ".pins"
    wanted = sha256(b"".join(path.read_bytes() for path in pins(place))).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"installing {place} into {folder(place)}", flush=True)
    shutil.rmtree(folder(place), ignore_errors=True)
    folder(place).mkdir(parents=True)
    (install_node if place == NODE else install_python)(place)
    stamp.write_text(wanted)


def install_node(place: str) -> None:
    """Not `npm ci`: it demands a locked package for every platform, which not every client has."""
    npm = shutil.which("npm") or sys.exit("the clients written for Node need npm")
    for path in pins(place):
        shutil.copy(path, folder(place))
    subprocess.run([npm, "install", "--no-audit", "--no-fund"], cwd=folder(place), check=True)


def install_python(place: str) -> None:
    uv = str(Path(sys.executable).parent / "uv")
    home = folder(place)
    create = [uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, home]
    subprocess.run(create, check=True)
    wanted = ["--require-hashes", "--requirement", str(PINS / f"{place}.txt")]
    env = {**os.environ, "VIRTUAL_ENV": str(home)}
    subprocess.run([uv, "pip", "install", "--quiet", *wanted], env=env, check=True)
