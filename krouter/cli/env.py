"""`krouter env`: what makes a client use the krouter that is running."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import click

from krouter.cli.aim import bypass, client_called, find_target, here, login_option, target_options
from krouter.cli.clients import CLIENTS, Client, also_called
from krouter.cli.common import Command, find_paths, home_option, json_option
from krouter.cli.guides import KEY, File, Guide, Target
from krouter.cli.output import inert, print_json, print_table, say
from krouter.cli.shells import OWN, SHELLS, Shell, quoted


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
@click.option(
    "--file",
    "as_file",
    is_flag=True,
    help="Print nothing but the text of the client's file; what else there is to do goes to"
    " stderr.",
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
    as_file: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Print what makes a client use the running krouter.

    Without CLIENT the clients are listed. All that is printed is lines for a shell, which can be
    run as they are: eval "$(krouter env claude)". Of a client that reads a file its path and text
    are printed too, as comments; --file prints that text alone: krouter env codex --file. No file
    of a client's is written. A key that comes from the variable KROUTER_KEY is named in the lines,
    not shown; only the text of a file that must hold it, as Continue's .env, and JSON show it.

    JSON without CLIENT: a list of name, title, dialects, program, also (other names). JSON with
    CLIENT: client, title, url, model, variables, unset, files, each with path, text and how (what
    to do where there is one already), start, notes.
    """
    if client is None:
        _list(as_json)
        return
    wanted = client_called(client)
    if login and wanted.name != "claude":
        raise click.BadParameter("only Claude Code has a login to send.", param_hint="--login")
    paths = find_paths(home)
    target = find_target(paths, url=url, model=model, key=key, login=login, home=home)
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
                "files": [
                    {"path": str(file.path), "text": file.text, "how": file.how}
                    for file in guide.files
                ],
                "start": guide.start,
                "notes": guide.notes,
            }
        )
        return
    lines = list(_lines(guide, target, SHELLS[shell], variables, unset))
    if as_file:
        _print_file(wanted, guide, lines)
        return
    say(f"# {wanted.title}: {inert(target.model)} of krouter at {inert(target.url)}")
    if variables or unset:
        asked: dict[str, str | None] = {
            "--model": model,
            "--url": url,
            "--home": str(paths.home) if home else None,
            "--shell": shell,
        }
        first = f"put the key into {KEY}, and then " if key else ""
        if login is not None:
            asked["--login" if login else "--no-login"] = ""
        say(f"# To run these lines: {first}{inert(_again(wanted, shell, asked))}")
    for line in lines:
        say(line)
    for number, file in enumerate(guide.files):
        alone = f" (alone: {_alone(wanted, url, home and str(paths.home), model)})"
        say(f"#\n# {_put(file)}{'' if number else inert(alone)}:")
        for line in file.text.splitlines():
            say(f"#   {inert(line)}".rstrip())


def _put(file: File) -> str:
    how = f" {file.how}" if file.how else ""
    return f"Put this into {inert(here().shown(file.path))}.{how}".removesuffix(".")


def _alone(client: Client, url: str | None, home: str | None, model: str | None) -> str:
    given = {"--url": url, "--home": home, "--model": model}
    words = [f" {name} {quoted(value)}" for name, value in given.items() if value]
    return f"krouter env {client.name} --file{''.join(words)}"


def _print_file(client: Client, guide: Guide, lines: list[str]) -> None:
    """The text of the client's own file on stdout, all else on stderr. Raises UsageError."""
    if not guide.files:
        raise click.UsageError(f"{client.title} reads no file: leave --file out.")
    own, *others = guide.files
    say(f"# {_put(own)}.", err=True)
    for file in others:  # which hold a key
        name = file.text.partition("=")[0]
        path = inert(here().shown(file.path))
        say(f"# Put this into {path}. {file.how}\n#   {name}=KEY", err=True)
    for line in lines:
        say(line, err=True)
    say(own.text, nl=False)


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
                    "also": also_called(client),
                }
                for client in CLIENTS.values()
            ]
        )
        return
    rows = [
        (each.name, ", ".join(also_called(each)) or "-", each.title, ", ".join(each.dialects))
        for each in CLIENTS.values()
    ]
    print_table(("client", "also", "title", "speaks"), rows)


def _again(client: Client, shell: str, asked: Mapping[str, str | None]) -> str:
    """How this command's lines are run. A key is not repeated."""
    rules = SHELLS[shell]
    words = [
        word
        for name, value in asked.items()
        if value is not None and (name, value) != ("--shell", "sh")
        for word in (name, *([rules.quote(value)] if value else []))
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
