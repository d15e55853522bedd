"""`krouter doctor`: why a client does not connect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urlsplit

import click

from krouter.cli.aim import (
    client_called,
    has_login,
    here,
    key_of,
    root_of,
    served_paths,
    served_settings,
    target_options,
)
from krouter.cli.clients import CLIENTS, Client
from krouter.cli.common import Command, find_paths, home_option, json_option
from krouter.cli.examine_client import (
    Variables,
    asked_models,
    examine_all,
    examine_client,
    examine_proxy,
    examine_reach,
    overlaid,
    own_keys,
)
from krouter.cli.examine_files import claude_settings, examine_files
from krouter.cli.examine_server import (
    Server,
    ask_once,
    examine_asked,
    examine_models,
    examine_server,
    find_server,
    key_trouble,
    outlook_of,
    probe,
    with_own_key,
)
from krouter.cli.findings import Asked, Finding, Own, fault, tell, warning
from krouter.cli.output import print_json
from krouter.cli.running import KEY
from krouter.cli.shells import quoted
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
    krouter env lists them, and the models that they name, or at the variables of all. Where no key
    is given, one that the client itself would send to this krouter is tried. Nothing is changed,
    and without --ask no model is asked. Exit code 1 where there is a fault; warnings alone are 0.

    JSON: ok, url, client, findings, each with level (ok, warning, fault), about, message, hint.
    """
    wanted = client_called(client) if client else None
    paths = find_paths(home)
    findings: list[Finding] = []
    given = _key(key, findings)
    base = _address(paths, url, findings)
    if base is not None:
        side = _side_of(wanted, base)
        server = find_server(base, given, findings)
        if server is not None:
            if server.needs_key and not given:
                with _telling("key", findings):
                    server = with_own_key(server, side.keys)
            with _telling("server", findings):
                _examine_server(server, paths, wanted, model, ask, findings)
        with _telling("client", findings):
            _examine_client(base, server, paths, side, findings)
    is_ok = all(each.level != "fault" for each in findings)
    if as_json:
        told = [each.as_json() for each in findings]
        name = wanted.name if wanted else None
        print_json({"ok": is_ok, "url": base, "client": name, "findings": told})
    else:
        tell(findings)
    click.get_current_context().exit(0 if is_ok else 1)


@contextmanager
def _telling(about: str, findings: list[Finding]) -> Iterator[None]:
    """What ends one part of the examination is a fault, and the rest goes on."""
    try:
        yield
    except click.ClickException as error:
        findings.append(fault(about, error.message))
    except (OSError, HTTPException) as error:
        findings.append(fault(about, f"no answer: {error}."))


def _key(given: str | None, findings: list[Finding]) -> str | None:
    """A bad one that nobody has typed is one more finding. Raises BadParameter."""
    try:
        return key_of(given)
    except click.BadParameter as error:
        if given is not None:
            raise
        findings.append(fault("key", f"{KEY} {error.message}", "Set it again, or unset it."))
        return None


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
        place = (
            f" --home {quoted(str(served.home))}"
            if served is not None and served is not paths
            else ""
        )
        findings.append(ask_once(server, found, dialects[0], place))


@dataclass(frozen=True, slots=True)
class _Side:
    """What is known of a client, or of all, before krouter is asked."""

    client: Client | None
    variables: Variables
    keys: Sequence[Own]
    asked: Sequence[Asked] = ()
    found: Sequence[Finding] = ()
    has_files: bool = False


def _side_of(client: Client | None, base: str) -> _Side:
    places = here()
    if client is None:
        variables = overlaid(os.environ, {})
        keys = [key for each in CLIENTS.values() for key in own_keys(each, variables, base)]
        return _Side(None, variables, list(dict.fromkeys(keys)))
    told, read = claude_settings(places) if client.name == "claude" else ({}, [])
    variables = overlaid(os.environ, told)
    files = examine_files(client, places, base)
    keys = own_keys(client, variables, base) + [each for each in files if isinstance(each, Own)]
    asked = asked_models(client, variables, base)
    asked += (each for each in files if isinstance(each, Asked))
    found = [*read, *(each for each in files if isinstance(each, Finding))]
    return _Side(client, variables, keys, asked, found, bool(files))


def _examine_client(
    base: str, server: Server | None, paths: Paths, side: _Side, findings: list[Finding]
) -> None:
    variables, client = side.variables, side.client
    if client is None:
        findings += examine_all(variables, base)
    else:
        findings += side.found

        def wrong(token: str) -> str | None:
            return key_trouble(server, token)

        login = server is not None and _has_login(paths, server)
        findings += examine_client(client, variables, base, login, wrong, side.has_files)
        for own in side.keys:
            if own.about not in client.keys and (why := wrong(own.key)):
                findings.append(fault(own.about, why, f"krouter env {client.name} --key KEY"))
        if server is not None and server.lets_in:
            findings += examine_asked(server, side.asked)
        if client.is_remote:
            findings += examine_reach(client, base, server is not None and server.needs_key)
            return
    findings += examine_proxy(variables, urlsplit(base).hostname or "")


def _has_login(paths: Paths, server: Server) -> bool:
    try:
        return has_login(served_settings(paths, server.base, server.health))
    except ConfigError:  # which the outlook has told of
        return False
