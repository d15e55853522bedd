"""Where settings, combos, keys and the ledger are."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path

import platformdirs

SETTINGS_FILE = "krouter.toml"
COMBOS_FOLDER = "combos"


@dataclass(frozen=True, slots=True)
class Paths:
    """Absolute paths; none of them needs to exist."""

    home: Path
    config: Path
    combos: Path
    keys: Path
    ledger: Path
    spending: Path


def platform_home() -> Path:
    """The platform's folder for krouter's settings (`~/.config/krouter` on Linux)."""
    return platformdirs.user_config_path("krouter", appauthor=False)


def resolve_paths(
    home: str | Path | None = None,
    config: str | Path | None = None,
    combos: str | Path | None = None,
    *,
    env: Mapping[str, str],
    cwd: Path,
    fallback: Callable[[], Path] = platform_home,
) -> Paths:
    """The home folder and its parts; `config` and `combos` override theirs.

    The home is `home`, else KROUTER_HOME, else `cwd` if it holds krouter.toml or combos/, else
    `fallback()`.
    """
    root = _home(home or env.get("KROUTER_HOME"), cwd, fallback)
    return Paths(
        home=root,
        config=_absolute(config, cwd) if config else root / SETTINGS_FILE,
        combos=_absolute(combos, cwd) if combos else root / COMBOS_FOLDER,
        keys=root / "keys.json",
        ledger=root / "ledger.db",
        spending=root / "spending.db",
    )


def _home(given: str | Path | None, cwd: Path, fallback: Callable[[], Path]) -> Path:
    if given:
        return _absolute(given, cwd)
    is_home = isfile(cwd / SETTINGS_FILE) or isdir(cwd / COMBOS_FOLDER)
    return cwd if is_home else fallback()


def _absolute(path: str | Path, cwd: Path) -> Path:
    return cwd / Path(path).expanduser()


def shipped_combos() -> Path:
    """The folder of the combos that come with the package. Raises FileNotFoundError without it."""
    # A package of data only: importlib.resources gives no single path for a namespace package.
    spec = importlib.util.find_spec("krouter_combos")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package krouter_combos is not installed")
    return Path(next(iter(spec.submodule_search_locations)))
