"""`krouter doctor`: why a client does not connect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any
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
    Variable,
    Variables,
    asked_models,
    comes_here,
    examine_all,
    examine_client,
    examine_proxy,
    examine_reach,
    names_no_model,
    overlaid,
    own_keys,
)
from krouter.cli.examine_files import aider_settings, claude_settings, examine_files
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
    takes_claudes,
    with_own_key,
)
from krouter.cli.findings import Asked, Finding, Own, fault, tell, warning
from krouter.cli.hints import placed
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

    Looks whether a krouter answers, whether it is well, whom it lets in, whether the models that
    CLIENT is set to can be answered, or that of --model, and whether each dialect is understood;
    then at variables and files of CLIENT, as krouter env lists them, or at the addresses and keys
    in the variables of all. Where no key is given, one that the client itself would send to this
    krouter is tried. Nothing is changed, and without --ask no model is asked. Exit code 1 where
    there is a fault; warnings alone are 0.

    JSON: ok, url, client, findings, each with level (ok, warning, fault), about, message, hint.
    """
    wanted = client_called(client) if client else None
    paths = find_paths(home)
    findings: list[Finding] = []
    given = _key(key, findings)
    base = _address(paths, url, findings)
    if base is not None:
        server = find_server(base, given, findings)
        side = _side_of(wanted, base, server is not None and server.needs_key)
        if server is not None:
            if server.needs_key and not given:
                with _telling("key", findings):
                    server = with_own_key(server, side.keys)
            with _telling("server", findings):
                _examine_server(server, paths, side, model, ask, findings)
        with _telling("client", findings):
            _examine_client(base, server, paths, side, findings)
    is_ok = all(each.level != "fault" for each in findings)
    typed = {"--home": str(paths.home) if home else None, "--url": url and base}
    findings = [replace(each, hint=placed(each.hint, typed)) for each in findings]
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
    side: _Side,
    model: str | None,
    ask: bool,
    findings: list[Finding],
) -> None:
    client = side.client
    elsewhere = client.title if client and not (side.comes or client.is_remote) else ""
    findings += examine_server(server, paths, elsewhere)
    if not server.lets_in:
        return
    known: dict[str, dict[str, Any]] = {}
    side.told += examine_asked(server, side.asked, known)
    if model is not None or not known:
        found = examine_models(server, model, findings)
        if found is None:
            return
        known = {str(model or found["id"]): found}
    served = served_paths(paths, server.base, server.health)
    for name, told in known.items():
        is_available = told.get("available")
        if served is None and is_available is None:
            continue
        try:
            findings.append(outlook_of(name, is_available, served))
        except ConfigError as error:
            findings += (warning("settings", str(each)) for each in error.problems[:MOST_TOLD])
    dialects = client.dialects if client else tuple(DIALECTS)
    findings += probe(server, next(iter(known)), dialects)
    if ask:
        is_other = served is not None and served is not paths
        place = f" --home {quoted(str(served.home))}" if served and is_other else ""
        findings += (ask_once(server, name, dialects[0], place) for name in known)


@dataclass(slots=True)
class _Side:
    """What is known of a client, or of all, before krouter is asked. `comes` is whether it asks
    this krouter; `told` is what krouter says of its models."""

    client: Client | None
    variables: Variables
    keys: Sequence[Own]
    asked: Sequence[Asked] = ()
    found: Sequence[Finding] = ()
    comes: bool = False
    has_files: bool = False
    told: list[Finding] = field(default_factory=list)


def _side_of(client: Client | None, base: str, needs_key: bool) -> _Side:
    places = here()
    if client is None:
        variables = overlaid(os.environ, {})
        keys = [key for each in CLIENTS.values() for key in own_keys(each, variables, base)]
        return _Side(None, variables, list(dict.fromkeys(keys)))
    told: dict[str, Variable] = {}
    read: list[Finding] = []
    if client.name == "claude":
        told, read = claude_settings(places)
    elif client.name == "aider":
        told = aider_settings(places)
        env = {name: each.value for name, each in told.items()}
        places = replace(places, env={**places.env, **env})
    variables = overlaid(os.environ, told)
    files = examine_files(client, places, base, needs_key)
    own = [each for each in files if isinstance(each, Own)]
    keys = list(dict.fromkeys([*own_keys(client, variables, base), *own]))
    asked = asked_models(client, variables, base)
    asked += (each for each in files if isinstance(each, Asked))
    found = [*read, *(each for each in files if isinstance(each, Finding))]
    is_named = any(each.about == "file" and each.level != "fault" for each in found)
    comes = comes_here(client, variables, base) or bool(own) or (bool(files) and is_named)
    is_broken = any(each.level == "fault" for each in read)
    return _Side(client, variables, keys, asked, found, comes, bool(files) or is_broken)


def _examine_client(
    base: str, server: Server | None, paths: Paths, side: _Side, findings: list[Finding]
) -> None:
    variables, client = side.variables, side.client

    def wrong(token: str) -> str | None:
        return key_trouble(server, token)

    if client is None:
        needs_key = server is not None and server.needs_key
        findings += examine_all(variables, base, wrong, needs_key)
    else:
        findings += side.found
        login = server is not None and _has_login(paths, server)
        findings += examine_client(client, variables, base, login, wrong, side.has_files)
        for own in side.keys:
            if own.about not in client.keys and (why := wrong(own.key)):
                hint = own.hint or f"krouter env {client.name} --key KEY"
                findings.append(fault(own.about, why, hint))
        findings += side.told
        if server is not None and server.lets_in and client.name == "claude" and side.comes:
            findings += _examine_claudes(server, side)
        if client.is_remote:
            findings += examine_reach(client, base, server is not None and server.needs_key)
            return
    findings += examine_proxy(variables, urlsplit(base).hostname or "")


def _examine_claudes(server: Server, side: _Side) -> Iterator[Finding]:
    """Claude Code asks for models of its own where nobody names one."""
    if not names_no_model(side.variables) or takes_claudes(server):
        return
    message = "is not set: Claude Code asks for models of its own, and no name here takes them."
    yield warning("ANTHROPIC_MODEL", message, "Start it with krouter code, or set it to a combo.")


def _has_login(paths: Paths, server: Server) -> bool:
    try:
        return has_login(served_settings(paths, server.base, server.health))
    except ConfigError:  # which the outlook has told of
        return False
