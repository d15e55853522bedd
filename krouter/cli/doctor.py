"""`krouter doctor`: why a client does not connect."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import click

from krouter.cli.aim import (
    client_called,
    has_login,
    here,
    key_of,
    lets_in,
    root_of,
    served_paths,
    served_settings,
    target_options,
)
from krouter.cli.clients import Client
from krouter.cli.common import Command, find_paths, home_option, json_option
from krouter.cli.examine_client import (
    examine_all,
    examine_client,
    examine_proxy,
    examine_reach,
    overlaid,
)
from krouter.cli.examine_files import claude_settings, examine_files
from krouter.cli.examine_server import (
    Server,
    ask_once,
    examine_models,
    examine_server,
    find_server,
    outlook_of,
    probe,
)
from krouter.cli.findings import Finding, fault, tell, warning
from krouter.cli.output import print_json
from krouter.dialects import DIALECTS
from krouter.paths import Paths
from krouter.problems import ConfigError

MOST_TOLD = 3


@click.command(cls=Command)
@click.argument("client", required=False)
@target_options
@click.option(
    "--ask",
    is_flag=True,
    help="Also send one real request for a few tokens through the combo, and say who answers it.",
)
@home_option
@json_option
def doctor(
    client: str | None,
    model: str | None,
    key: str | None,
    url: str | None,
    ask: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Find out why a client does not connect.

    Looks whether a krouter answers, whether it is well, whom it lets in, whether the combo can be
    answered, and whether each dialect is understood; then at variables and files of CLIENT, as
    krouter env lists them, or at the variables of all. Nothing is changed, and without --ask no
    model is asked. Exit code 1 where there is a fault; warnings alone are 0.

    JSON: ok, url, client, findings, each with level (ok, warning, fault), about, message, hint.
    """
    wanted = client_called(client) if client else None
    paths, given = find_paths(home), key_of(key)
    findings: list[Finding] = []
    base = _address(paths, url, findings)
    if base is not None:
        server = find_server(base, given, findings)
        if server is not None:
            _examine_server(server, paths, wanted, model, ask, findings)
        _examine_client(base, server, paths, wanted, findings)
    is_ok = all(each.level != "fault" for each in findings)
    if as_json:
        told = [each.as_json() for each in findings]
        name = wanted.name if wanted else None
        print_json({"ok": is_ok, "url": base, "client": name, "findings": told})
    else:
        tell(findings)
    click.get_current_context().exit(0 if is_ok else 1)


def _address(paths: Paths, url: str | None, findings: list[Finding]) -> str | None:
    try:
        return root_of(paths, url)
    except ConfigError as error:
        findings += (fault("settings", str(problem), "krouter check") for problem in error.problems)
        return None


def _examine_server(
    server: Server,
    paths: Paths,
    client: Client | None,
    model: str | None,
    ask: bool,
    findings: list[Finding],
) -> None:
    findings += examine_server(server, paths)
    if not server.lets_in:
        return
    found = examine_models(server, model, findings)
    if found is None:
        return
    served = served_paths(paths, server.base, server.health)
    if served is not None:
        try:
            findings.append(outlook_of(found, served))
        except ConfigError as error:
            findings += (warning("settings", str(each)) for each in error.problems[:MOST_TOLD])
    dialects = client.dialects if client else tuple(DIALECTS)
    findings += probe(server, found, dialects)
    if ask:
        place = f" --home {served.home}" if served is not None and served is not paths else ""
        findings.append(ask_once(server, found, dialects[0], place))


def _examine_client(
    base: str,
    server: Server | None,
    paths: Paths,
    client: Client | None,
    findings: list[Finding],
) -> None:
    places = here()
    if client is None:
        variables = overlaid(os.environ, {})
        findings += examine_all(variables, base)
    else:
        told, read = claude_settings(places) if client.name == "claude" else ({}, [])
        variables = overlaid(os.environ, told)
        files = examine_files(client, places, base)
        findings += [*read, *files]

        def takes(token: str) -> bool:
            return server is None or not server.needs_key or lets_in(base, token)

        login = server is not None and _has_login(paths, server)
        findings += examine_client(client, variables, base, login, takes, bool(files))
        if client.is_remote:
            findings += examine_reach(client, base, server is not None and server.needs_key)
            return
    findings += examine_proxy(variables, urlsplit(base).hostname or "")


def _has_login(paths: Paths, server: Server) -> bool:
    try:
        return has_login(served_settings(paths, server.base, server.health))
    except ConfigError:  # which the outlook has told of
        return False
