"""What the commands share: their options, and how they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from krouter.cli.output import inert, say
from krouter.paths import Paths, resolve_paths
from krouter.problems import ConfigError, Problem

F = TypeVar("F", bound=Callable[..., Any])


class NotThere(click.ClickException):
    """What was asked for does not exist."""

    exit_code = 1


class Unreachable(click.ClickException):
    """No krouter answers."""

    exit_code = 3


class Unusable(click.ClickException):
    """Settings or files that cannot be used."""

    exit_code = 3

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(inert(str(problem)) for problem in problems))

    def show(self, file: IO[Any] | None = None) -> None:
        say(self.format_message(), file=file, err=True)


class Command(click.Command):
    """Ends with exit code 3 and every problem on stderr where files cannot be used, and takes
    arguments in UTF-8 alone but for the names of files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        left = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name or "")
            if isinstance(value, str) and not isinstance(param.type, click.Path):
                _refuse_odd_bytes(value, ctx, param)
        return left

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise Unusable(error.problems) from None


def _refuse_odd_bytes(value: str, ctx: click.Context, param: click.Parameter) -> None:
    """Raises BadParameter for what came in bytes that are no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(value).decode("utf-8", "backslashreplace")
        raise click.BadParameter(f"'{shown}' is not UTF-8.", ctx, param) from None


home_option = click.option(
    "--home",
    type=click.Path(),
    metavar="DIR",
    help="Folder of krouter.toml, combos/ and keys.json. Default: KROUTER_HOME, else this folder"
    " if it holds krouter.toml or combos/, else the platform's config folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
config_option = click.option(
    "--config", type=click.Path(), metavar="FILE", help="Settings, instead of the home's."
)
_combos_option = click.option(
    "--combos", type=click.Path(), metavar="DIR", help="Combos, instead of the home's."
)


def place_options(command: F) -> F:
    """`--home`, `--config` and `--combos`."""
    return home_option(config_option(_combos_option(command)))


def working_folder() -> Path:
    """Where this command is run. Raises ConfigError where that is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError([Problem(".", "", f"the working folder: {error.strerror}.")]) from None


def find_paths(
    home: str | None, config: str | None = None, combos: str | None = None, *, new: bool = False
) -> Paths:
    """Where everything is. Raises ConfigError where a folder asked for is none; `new` lets the
    home be made later."""
    cwd = working_folder()
    try:
        paths = resolve_paths(home, config, combos, env=os.environ, cwd=cwd)
    except RuntimeError:  # of ~ where no home folder is known, or of ~name
        problem = Problem(str(home or os.environ.get("KROUTER_HOME") or "~"), "", "no such folder.")
        raise ConfigError([problem]) from None
    asked = [(combos, paths.combos)] if new else [(home, paths.home), (combos, paths.combos)]
    missing = [
        Problem(str(path), "", "no such folder.")
        for given, path in asked
        if given and not os.path.isdir(path)
    ]
    if missing:
        raise ConfigError(missing)
    return paths
