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
from krouter.cli.examine_client import CLAUDE_MODEL, asked_models, examine_client, overlaid
from krouter.cli.examine_files import claude_settings
from krouter.cli.examine_server import find_server, key_trouble
from krouter.cli.guides import Target
from krouter.cli.output import say

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

    Claude Code's own settings files win over its environment: where their env leads it to another
    address or holds another key, it is not started, and the file is named (exit code 2).
    """
    client = CLIENTS["claude"]
    program = shutil.which(client.program)
    if program is None:
        raise NotThere(
            f"{client.title} is not installed: there is no {client.program} on PATH."
            f" Install it: {client.install}"
        )
    target = find_target(find_paths(home), url=url, model=model, key=key, login=login, home=home)
    variables, unset = changes(client, client.guide(target, here()), target, os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    env = kept | variables
    _check_settings(client, target, env)
    _run(client, program, args, env)


def _check_settings(client: Client, target: Target, env: Mapping[str, str]) -> None:
    """Claude Code's settings win over its environment. Raises UsageError where they lead it
    elsewhere; other models than the one that was asked for are warned of."""
    given, _ = claude_settings(here())
    variables = overlaid(env, given)
    server = find_server(target.url, target.key, [])

    def wrong(token: str) -> str | None:
        return key_trouble(server, token)

    found = [
        each
        for each in examine_client(client, variables, target.url, target.login, wrong, False)
        if each.level == "fault" and each.about in given
    ]
    if found:
        told = " ".join(f"{each.about} {each.message} {each.hint}" for each in found)
        raise click.UsageError(f"Claude Code's settings win over krouter's variables. {told}")
    for each in asked_models(client, variables, target.url):
        if each.source and each.about != CLAUDE_MODEL and each.model != env.get(each.about):
            message = f"{each.about} is {each.model!r} in {each.source}, which wins."
            say(f"Warning: {message}", err=True)


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
