from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import click
import pytest

from krouter._version import __version__
from krouter.cli.docs import render
from krouter.cli.output import aligned, draw_table
from krouter.cli.root import COMMANDS, cli
from tests.cli.conftest import Home, run


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)])
def test_without_a_command_the_help_is_printed(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 0
    assert all(name in result.stdout for name in COMMANDS)
    assert "Exit codes:" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_of_a_command_is_its_first_line(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert (command.help or "").partition("\n")[0] == COMMANDS[name][1]
    assert run(name, "-h").exit_code == 0


def test_the_help_imports_no_command() -> None:
    heavy = ("pydantic", "fastapi", "uvicorn", "aiohttp", "rich", "litellm", "msgspec")
    code = f"""
import sys
sys.argv = ["krouter", "--help"]
from krouter.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
found = [name for name in {heavy!r} if name in sys.modules]
print(*found, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert "Commands:" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("serve", "--port", "99999"),
        ("serve", "extra"),
        ("explain",),
        ("explain", "demo", "--dialect", "morse"),
        ("-l", "models"),
        ("keys", "nonsense"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


def test_version(home: Home) -> None:
    assert run("--version").stdout == f"krouter {__version__}\n"
    assert run("version").stdout == f"krouter {__version__}\n"
    assert home.json("version")["version"] == __version__


def test_the_documentation_is_up_to_date() -> None:
    file = Path(__file__).parents[2] / "docs" / "cli.md"
    assert file.read_text() == render(), "run: python -m krouter.cli.docs > docs/cli.md"


@pytest.mark.parametrize(
    "args",
    [("models",), ("combos",), ("check",), ("explain", "demo"), ("serve", "--port", "0")],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_settings_that_cannot_be_used_are_exit_code_3(
    home: Home, args: tuple[str, ...], as_json: bool
) -> None:
    home.settings("[servr]\nport = 1\n")
    extra = ("--json",) if as_json and args[0] != "serve" else ()
    result = home.run(*args, *extra)
    if args[0] == "check":
        assert result.exit_code == 1
        assert "krouter.toml" in result.stdout
        return
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "$.servr: unknown field" in result.stderr
    assert "Did you mean 'server'?" in result.stderr


@pytest.mark.parametrize("option", ["--home", "--combos", "--config"])
def test_a_place_asked_for_by_name_must_exist(tmp_path: Path, option: str) -> None:
    result = run("models", option, str(tmp_path / "nowhere"))
    assert result.exit_code == 3
    assert "nowhere: " in result.stderr


def test_aligned_text_cuts_nothing_off() -> None:
    long = "x" * 300
    assert aligned(("a", "bc"), [(long, "1"), ("y", "")]) == f"{'A':300}  BC\n{long}  1\ny"


def test_a_terminal_gets_a_table_that_folds() -> None:
    file = io.StringIO()
    draw_table(("name", "why"), [("[red]a[/red]", "long " * 60)], file)
    assert "[red]a[/red]" in file.getvalue()
    assert file.getvalue().count("long") == 60
