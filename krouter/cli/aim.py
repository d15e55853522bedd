"""Finding the krouter that is running, and what a client is to ask it for."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click

from krouter.cli.clients import ALSO_CALLED, CLIENTS, Client
from krouter.cli.common import NotThere, working_folder
from krouter.cli.guides import CLAUDE_TIERS, Target
from krouter.cli.hints import placed
from krouter.cli.output import inert, say
from krouter.cli.places import Places
from krouter.cli.running import (
    KEY,
    Refused,
    ask_at,
    base_of,
    health_of,
    lets_in,
    no_krouter,
    url_option,
)
from krouter.paths import Paths, resolve_paths
from krouter.problems import did_you_mean
from krouter.settings import Settings, load_settings

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT = "daily"
LAST = "demo"
"""The combo that always answers, and never with a model's words."""
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_model_option = click.option(
    "--model",
    metavar="COMBO",
    help=f"The combo, or provider/model, to ask for. Default: {DEFAULT} if it has an account, else"
    f" the first combo that has, {LAST} at the last.",
)
_key_option = click.option(
    "--key", metavar="KEY", help=f"A key of krouter's, where it asks for one. Default: {KEY}."
)
login_option = click.option(
    "--login/--no-login",
    default=None,
    help="Whether Claude Code sends its own login. Default: if krouter.toml has an account with"
    ' auth = "caller".',
)


def target_options(command: F) -> F:
    """`--model`, `--key` and `--url`."""
    return _model_option(_key_option(url_option(command)))


def here() -> Places:
    """The places of whoever runs this command. Raises NotThere, ConfigError."""
    try:
        return Places(os.environ, Path.home(), working_folder())
    except RuntimeError:
        raise NotThere("no home folder is known: set the variable HOME.") from None


def client_called(name: str) -> Client:
    """The client of that name. Raises NotThere."""
    known = name.lower()
    titled = {client.title.lower(): client.name for client in CLIENTS.values()}
    found = CLIENTS.get(ALSO_CALLED.get(known) or titled.get(known) or known)
    if found is None:
        near = did_you_mean(known, [*CLIENTS, *ALSO_CALLED])
        raise NotThere(f"there is no client {name!r}. {near or 'krouter env lists them.'}")
    return found


def root_of(paths: Paths, url: str | None) -> str:
    """Where the krouter is; `url` may be the base URL of a client. Raises BadParameter,
    ConfigError."""
    return base_of(paths, url).removesuffix("/v1").rstrip("/")


def key_of(given: str | None) -> str | None:
    """The key that was given. Raises BadParameter for what no header can carry."""
    key = given if given is not None else os.environ.get(KEY, "")
    if not is_sendable(key) or key.split() != [key][: len(key)]:
        where = "--key" if given is not None else KEY
        raise click.BadParameter("is no key: it holds blanks or odd characters.", param_hint=where)
    return key or None


def is_sendable(key: str) -> bool:
    """Whether a header can carry it."""
    return key.isascii() and key.isprintable()


def find_target(
    paths: Paths,
    *,
    url: str | None = None,
    model: str | None = None,
    key: str | None = None,
    login: bool | None = None,
    home: str | None = None,
) -> Target:
    """Asks the running krouter; `home` is the one that was asked for, if any. What is odd about it
    goes to stderr. Raises ClickException, ConfigError."""
    base = root_of(paths, url)
    needed = key_for(base, key_of(key))
    found = named_model(base, model, needed)
    health = health_of(base, needed)
    settings = served_settings(paths, base, health)
    named = {"--home": str(paths.home) if home else None}
    if home and (other := other_home(paths, base, health)):
        say(inert(f"Warning: {other}"), err=True)
    if model is None and found["id"] == LAST:
        told = f"Warning: no combo has an account but {LAST}, which answers without any model."
        say(told, err=True)
    if found.get("available") is False:
        told = f"{found['id']} cannot be answered now: no entry has an account. krouter check says"
        say(inert(placed(f"Warning: {told} which are there.", named)), err=True)
    return Target(
        base,
        found["id"],
        needed,
        _number(found.get("context_window")),
        _number(found.get("max_output_tokens")),
        has_login(settings) if login is None else login,
        aliased_tiers(settings),
    )


def _number(told: Any) -> int | None:
    return told if type(told) is int and told > 0 else None


def key_for(base: str, key: str | None) -> str | None:
    """The key that the krouter at `base` wants, None where it wants none. Raises ClickException."""
    if lets_in(base, None):
        return None
    if key is None:
        raise Refused(
            401,
            f"the krouter at {base} asks for a key: give one with --key or the variable {KEY};"
            " krouter keys add NAME makes one.",
        )
    if not lets_in(base, key):
        raise Refused(401, f"the key is none of the krouter at {base}; see krouter keys list.")
    return key


def named_model(base: str, model: str | None, key: str | None) -> dict[str, Any]:
    """The model that was asked for, else the default one, as /v1/models tells it. Raises
    ClickException."""
    if model is not None:
        found = _asked_for(base, model, key)
    else:
        found = default_model(listed_models(base, key))
    if found is None:
        hint = "name a provider/model with --model."
        raise NotThere(f"the krouter at {base} serves no combo: {hint}")
    if not _is_model(found):
        raise no_krouter(base)
    return dict(found)


def listed_models(base: str, key: str | None) -> list[dict[str, Any]]:
    """What /v1/models tells. Raises ClickException."""
    told = ask_at(base, "/v1/models", key=key)
    data = told.get("data") if isinstance(told, dict) else None
    if not isinstance(data, list) or not all(map(_is_model, data)):
        raise no_krouter(base)
    return data


def _asked_for(base: str, model: str, key: str | None) -> Any:
    try:
        return ask_at(base, f"/v1/models/{quote(model)}", key=key)
    except Refused as refused:
        if refused.status == 404:
            raise NotThere(unlisted(refused.message)) from None
        raise


def unlisted(message: str) -> str:
    """What a krouter says of a model that it has not, for people."""
    told, found, _ = message.partition(" GET /v1/models")
    return f"{told} krouter models lists what there is." if found else message


def _is_model(told: Any) -> bool:
    return isinstance(told, dict) and isinstance(told.get("id"), str)


def default_model(listed: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """`daily` if it can be answered, else the first combo that can, `demo` at the last; without any
    such `daily`, else the first."""
    combos = [each for each in listed if each.get("owned_by") == "combo"]
    order = {DEFAULT: -1, LAST: 1}
    combos.sort(key=lambda each: order.get(each["id"], 0))
    return next((each for each in combos if each.get("available", True)), next(iter(combos), None))


def served_settings(paths: Paths, base: str, health: Mapping[str, Any]) -> Settings:
    """The settings of the krouter that runs; the defaults where they cannot be seen from here.
    Raises ConfigError."""
    served = served_paths(paths, base, health)
    return load_settings(served.config) if served else Settings()


def served_paths(paths: Paths, base: str, health: Mapping[str, Any]) -> Paths | None:
    """The files of the krouter that runs: those of `paths` if that is its home, else those of the
    home that it tells, if it runs on this machine; None where they cannot be known."""
    told = health.get("home")
    if not isinstance(told, str):
        return None
    home = Path(told)
    if home.resolve() == paths.home.resolve():
        return paths
    try:
        is_here = urlsplit(base).hostname in LOOPBACK and home.is_absolute() and os.path.isdir(home)
    except OSError:  # of a name that is too long
        is_here = False
    return resolve_paths(home, env={}, cwd=home) if is_here else None


def other_home(paths: Paths, base: str, health: Mapping[str, Any]) -> str:
    """What to say where the krouter that answers has another home than `paths`; else nothing."""
    told = health.get("home")
    if not isinstance(told, str) or Path(told).resolve() == paths.home.resolve():
        return ""
    return f"the krouter at {base} has another home, {told}, not {paths.home}."


def has_login(settings: Settings) -> bool:
    """Whether a Claude account takes the caller's own login."""
    return any(
        account.auth == "caller" and account.provider in ("cc", "claude", "anthropic")
        for account in settings.account
    )


_VERSIONS = ("3-5", "4-5", "4-5-20251001", "5", "5-5", "10", "10-1-20991231")
"""Such as Claude Code may ask for: what holds for all of them holds for those to come."""


def aliased_tiers(settings: Settings) -> Mapping[str, str]:
    """The tiers of Claude's models that the settings have aliases for: nothing where these take
    every version, else where the newest name leads that they take."""
    if not settings.aliases:
        return {}
    from krouter.naming import aliased  # only here: it brings much along

    found = {}
    for tier in CLAUDE_TIERS:
        start = f"claude-{tier.lower()}-"
        versions = [f"{start}{version}" for version in _VERSIONS]
        spelled = [name for name in settings.aliases if name.startswith(start)]
        to = {name: aliased(name, settings.aliases) for name in (*spelled, *versions)}
        if all(to[name] for name in versions):
            found[tier] = ""
        elif led := [name for name, combo in to.items() if combo]:
            found[tier] = to[max(led, key=_by_number)] or ""
    return found


def _by_number(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]


def bypass(env: Mapping[str, str], host: str) -> str | None:
    """What NO_PROXY must be, so that no proxy is asked for `host`; None where it is well."""
    if is_bypassed(env, host):
        return None
    given = env.get("no_proxy") or env.get("NO_PROXY") or ""
    return ",".join(filter(None, (given, host)))


def is_bypassed(env: Mapping[str, str], host: str) -> bool:
    """Whether the proxy variables leave `host` alone."""
    if not any(env.get(name) or env.get(name.upper()) for name in PROXIES):
        return True
    excepted = env.get("no_proxy") or env.get("NO_PROXY") or ""
    return any(_excepts(each.strip().lower(), host.lower()) for each in excepted.split(","))


def _excepts(entry: str, host: str) -> bool:
    if entry == "*" or entry.strip("[]") == host:
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        name = entry.removeprefix("*").lstrip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
