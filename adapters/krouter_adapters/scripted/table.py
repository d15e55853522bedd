"""The faults that the scripted provider can have, as data."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files

import msgspec

from krouter.script import Faults, Kind


@lru_cache(maxsize=1)
def load_faults() -> Faults:
    """Every fault by its name, in the order of the error table's rows."""
    text = (files(__package__) / "faults.toml").read_text(encoding="utf-8")
    return {
        name: msgspec.convert({"how": "status", "streamed": row["row"], **row, "name": name}, Kind)
        for name, row in tomllib.loads(text).items()
    }
