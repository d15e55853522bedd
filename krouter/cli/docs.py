"""The command line's documentation, made of its own help: `python -m krouter.cli.docs`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from krouter.cli.output import say
from krouter.cli.root import cli

WIDTH = 90
INTRO = """\
# The command line

Made by `python -m krouter.cli.docs > docs/cli.md` from the commands' own help. Every listing takes
`--json`: one document on stdout, with the fields that its help names. Everything that is not the
answer itself goes to stderr.
"""


def render() -> str:
    """Every command's help, as Markdown."""
    return INTRO + "".join(_sections(cli, "krouter", None))


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    ctx = click.Context(
        command,
        parent,
        name,
        terminal_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield f"\n## {ctx.command_path}\n\n```\n{ctx.get_help()}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(ctx):
            if found := command.get_command(ctx, each):
                yield from _sections(found, each, ctx)


if __name__ == "__main__":
    say(render(), nl=False)
