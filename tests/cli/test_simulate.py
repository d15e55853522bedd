from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Home

LOAD = {
    "requests": 200,
    "outages": [{"of": "glm", "from": 30, "to": 60, "fault": "cut"}],
    "quotas": [{"of": "cc", "every": 3600, "requests": 5}],
    "needs": {"image": 0.1},
}


@pytest.fixture
def file(home: Home) -> Path:
    path = home.path / "load.json"
    path.write_text(json.dumps(LOAD))
    return path


def test_as_json(home: Home, file: Path) -> None:
    found: Any = home.json("simulate", "daily", "--load", str(file))
    assert (found["asked"], found["requests"]) == ("daily", 200)
    assert found["answered"] + sum(found["failures"].values()) == 200
    assert sum(found["served"].values()) == found["answered"]


def test_what_is_printed_fits_a_terminal(home: Home, file: Path) -> None:
    result = home.run("simulate", "daily", "--load", str(file))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("daily: 200 requests in ")
    assert max(map(len, lines)) <= 80
    labels = [line.split("  ")[0] for line in lines if line and line[0] != " "]
    assert labels[1:8] == [
        "availability",
        "failed",
        "first byte",
        "whole answer",
        "until failure",
        "attempts",
        "cost",
    ]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("daily",), 2, "Missing option '--load'"),
        (("daily", "--load", "nowhere.json"), 2, "does not exist"),
        (("nope", "--load", "{file}"), 1, "Unknown model 'nope'"),
    ],
)
def test_what_is_wrong_is_said(
    home: Home, file: Path, args: tuple[str, ...], code: int, told: str
) -> None:
    result = home.run("simulate", *(arg.format(file=file) for arg in args))
    assert result.exit_code == code
    assert told in result.stderr


def test_a_wrong_file_is_said(home: Home, file: Path) -> None:
    file.write_text('{"requests": 5, "ratee": 1}')
    result = home.run("simulate", "daily", "--load", str(file))
    assert result.exit_code == 3
    assert "load.json: Object contains unknown field `ratee`. Did you mean 'rate'?" in result.stderr


def test_a_load_that_comes_to_no_request_has_no_availability(home: Home, file: Path) -> None:
    file.write_text('{"seconds": 0.001, "rate": 0.001}')
    told = home.run("simulate", "daily", "--load", str(file)).stdout
    assert "availability    none: no request came\n" in told
    assert home.json("simulate", "daily", "--load", str(file))["availability"] is None
