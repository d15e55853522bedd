"""`krouter code`: Claude Code, started for the krouter that is running."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping

import click

from krouter.cli.aim import find_target, here, login_option, target_options
from krouter.cli.children import run_beside, windows_command
from krouter.cli.clients import CLIENTS, Client
from krouter.cli.common import Command, NotThere, find_paths, home_option
from krouter.cli.env import changes

SEVERAL = 2
"""An option of krouter's and its value."""
_IGNORED = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]
"""What Python ignores, and would leave ignored in what it is replaced by."""


class Passing(Command):
    """Reads its own options until the first word that is none, and leaves all after it alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = self._own(ctx, args)
        if own > len(args):  # a value is missing, and -- must not be taken for it
            return super().parse_args(ctx, args)
        rest = args[own:]
        return super().parse_args(ctx, [*args[:own], "--", *rest[rest[:1] == ["--"] :]])

    def _own(self, ctx: click.Context, args: list[str]) -> int:
        """How many words are krouter's; more than there are where the last has no value."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        flags = {o for each in options if each.is_flag for o in (*each.opts, *each.secondary_opts)}
        valued = {opt for each in options if not each.is_flag for opt in each.opts}
        at = 0
        while at < len(args):
            name, sign, _ = args[at].partition("=")
            if name in valued:
                at += 1 if sign else SEVERAL
            elif args[at] in flags:
                at += 1
            else:
                break
        return at


@click.command(cls=Passing)
@target_options
@login_option
@home_option
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def code(
    model: str | None,
    key: str | None,
    url: str | None,
    login: bool | None,
    home: str | None,
    args: tuple[str, ...],
) -> None:
    """Start Claude Code with the running krouter.

    It finds in its environment what krouter env claude prints. krouter's own options come first;
    ARGS, from the first word that is none of them or after --, are Claude Code's, untouched:
    krouter code --model daily -p "What is this?". Its exit code is this command's.
    """
    client = CLIENTS["claude"]
    program = shutil.which(client.program)
    if program is None:
        raise NotThere(
            f"{client.title} is not installed: there is no {client.program} on PATH."
            f" Install it: {client.install}"
        )
    target = find_target(find_paths(home), url=url, model=model, key=key, login=login)
    variables, unset = changes(client, client.guide(target, here()), target, os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    _run(client, program, args, kept | variables)


def _run(client: Client, program: str, args: tuple[str, ...], env: Mapping[str, str]) -> None:
    """In place of this process where that can be, so that signals and the terminal are its own."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        if os.name == "posix":
            for number in _IGNORED:
                signal.signal(number, signal.SIG_DFL)
            os.execve(program, [program, *args], dict(env))  # noqa: S606
        shell = os.environ.get("COMSPEC", "cmd.exe")
        code = run_beside(windows_command(program, args, shell), env)
    except OSError as error:
        raise click.ClickException(f"{program} cannot be run: {error.strerror}.") from None
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    click.get_current_context().exit(code)
