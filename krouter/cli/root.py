"""The group of all commands. A command's module is imported when the command is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from krouter._version import __version__
from krouter.cli.following import printing
from krouter.cli.output import inert_lines, say

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "serve": ("krouter.cli.serve:serve", "Serve the combos over HTTP."),
        "models": ("krouter.cli.listings:models", "List the names a caller can ask for."),
        "combos": ("krouter.cli.listings:combos", "List the combos, or the entries of one."),
        "check": (
            "krouter.cli.check:check",
            "Check files, settings, credentials, and what can be answered.",
        ),
        "diff": ("krouter.cli.diff:diff", "Say what a change of combos means."),
        "explain": ("krouter.cli.explain:explain", "Show how a request would be answered now."),
        "test": ("krouter.cli.trial:test", "Run the tests that combo files bring with them."),
        "drill": ("krouter.cli.drill:drill", "Run a combo against every fault, offline."),
        "simulate": (
            "krouter.cli.simulate:simulate",
            "Run very many requests against a combo, offline.",
        ),
        "replay": (
            "krouter.cli.replay:replay",
            "Run past requests over changed combos, and show what differs.",
        ),
        "log": ("krouter.cli.log:log", "List past requests, the newest last."),
        "route": ("krouter.cli.route:route", "Draw what happened to one request, and why."),
        "usage": ("krouter.cli.usage:usage", "Sum up tokens and money of past requests."),
        "quota": (
            "krouter.cli.quota:quota",
            "Show what is left of each account, or tell krouter of it.",
        ),
        "keys": ("krouter.cli.keys:keys", "Add, change, list and remove the keys of callers."),
        "env": ("krouter.cli.env:env", "Print what makes a client use the running krouter."),
        "code": ("krouter.cli.code:code", "Start Claude Code with the running krouter."),
        "doctor": ("krouter.cli.doctor:doctor", "Find out why a client does not connect."),
        "schema": ("krouter.cli.files:schema", "Print the JSON Schema of a combo file."),
        "paths": (
            "krouter.cli.files:paths",
            "Show where settings, combos, keys and the ledger are.",
        ),
        "version": ("krouter.cli.version:version", "Print the version."),
    }
)
"""Where each command is, and its first line of help: `krouter --help` imports none of them."""

EPILOG = """
\b
Exit codes:
  0  all is well
  1  check, test, drill or doctor found problems, or what was asked for does not exist
  2  the command line is wrong
  3  settings, files or the address cannot be used, or no krouter answers
"""


class LazyGroup(click.Group):
    """Knows its commands by name alone, and takes `-l` for `serve -l`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in ("-l", "--log"):
            args = ["serve", *args]
        with printing():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with printing():
            try:
                return super().invoke(ctx)
            except click.ClickException as error:
                error.message = inert_lines(error.message)  # type: ignore[misc]
                raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("-l", "--log", is_flag=True, help="The same as: krouter serve -l")
@click.version_option(__version__, prog_name="krouter", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, log: bool) -> None:
    """krouter puts one model name in front of many models.

    A tool asks for a combo such as `daily`; krouter answers from the first model on the list
    behind that name that can take the request right now.
    """
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
