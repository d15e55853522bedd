"""`krouter env`: what makes a client use the krouter that is running."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import click

from krouter.cli.aim import bypass, client_called, find_target, here, login_option, target_options
from krouter.cli.clients import CLIENTS, Client
from krouter.cli.common import Command, find_paths, home_option, json_option
from krouter.cli.guides import KEY, Guide, Target
from krouter.cli.output import inert, print_json, print_table
from krouter.cli.shells import OWN, SHELLS, Shell


@click.command(cls=Command)
@click.argument("client", required=False)
@target_options
@login_option
@click.option(
    "--shell",
    type=click.Choice(list(SHELLS)),
    default=OWN,
    help="Whose lines to print. Default: sh, on Windows powershell.",
)
@home_option
@json_option
def env(
    client: str | None,
    model: str | None,
    key: str | None,
    url: str | None,
    login: bool | None,
    shell: str,
    home: str | None,
    as_json: bool,
) -> None:
    """Print what makes a client use the running krouter.

    Without CLIENT the clients are listed. For a client that is set up by variables alone the lines
    can be run as they are: eval "$(krouter env claude)". For one that reads a file its path and
    text are printed too, to be put there by hand: nothing is written. A key that comes from the
    variable KROUTER_KEY is named in the lines, not shown; only the text of a file that must hold
    it, as Continue's .env, and JSON show it.

    JSON without CLIENT: a list of name, title, dialects, program. JSON with CLIENT: client, title,
    url, model, variables, unset, files, each with path and text, start, notes.
    """
    if client is None:
        _list(as_json)
        return
    wanted = client_called(client)
    if login and wanted.name != "claude":
        raise click.BadParameter("only Claude Code has a login to send.", param_hint="--login")
    paths = find_paths(home)
    target = find_target(paths, url=url, model=model, key=key, login=login)
    guide = wanted.guide(target, here())
    variables, unset = changes(wanted, guide, target, os.environ)
    if as_json:
        print_json(
            {
                "client": wanted.name,
                "title": wanted.title,
                "url": target.url,
                "model": target.model,
                "variables": variables,
                "unset": unset,
                "files": [{"path": str(file.path), "text": file.text} for file in guide.files],
                "start": guide.start,
                "notes": guide.notes,
            }
        )
        return
    click.echo(f"# {wanted.title}: {inert(target.model)} of krouter at {inert(target.url)}")
    if not guide.files and variables:
        asked = {
            "--model": model,
            "--url": url,
            "--home": str(paths.home) if home else None,
            "--shell": shell,
        }
        click.echo(f"# Run these lines: {inert(_again(wanted, shell, asked))}")
    for line in _lines(guide, target, SHELLS[shell], variables, unset):
        click.echo(line)
    for file in guide.files:
        click.echo(f"\n# {inert(here().shown(file.path))}\n{_safe(file.text)}", nl=False)


def changes(
    client: Client, guide: Guide, target: Target, env: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The variables to set, and those to unset that would lead the client elsewhere."""
    variables = dict(guide.variables)
    host = urlsplit(target.url).hostname or ""
    if (excepted := bypass(env, host)) is not None and (variables or guide.files):
        variables |= {"NO_PROXY": excepted, "no_proxy": excepted}
    found = (*client.keys, *client.rivals)
    return variables, [name for name in found if name in env and name not in variables]


def _list(as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": client.name,
                    "title": client.title,
                    "dialects": client.dialects,
                    "program": client.program or None,
                }
                for client in CLIENTS.values()
            ]
        )
        return
    rows = [(each.name, each.title, ", ".join(each.dialects)) for each in CLIENTS.values()]
    print_table(("client", "title", "speaks"), rows)


def _again(client: Client, shell: str, asked: Mapping[str, str | None]) -> str:
    """How this command's lines are run. A key is not repeated."""
    rules = SHELLS[shell]
    words = [
        word
        for name, value in asked.items()
        if value and (name, value) != ("--shell", "sh")
        for word in (name, rules.quote(value))
    ]
    return rules.run_line.format(" ".join(("krouter env", client.name, *words)))


def _lines(
    guide: Guide, target: Target, shell: Shell, variables: dict[str, str], unset: list[str]
) -> Iterator[str]:
    """What a shell is to run, and what a person is to know."""
    given = os.environ.get(KEY, "")
    known = {KEY: given} if given and given == target.key else {}
    yield from (f"# {inert(note)}" for note in guide.notes)
    yield from (shell.unset(name) for name in unset)
    for name, value in variables.items():
        if name not in known:
            yield shell.assign(name, inert(value), known)
    if guide.start:
        yield f"# Start it: {guide.start}"


def _safe(text: str) -> str:
    return "\n".join(map(inert, text.split("\n")))
