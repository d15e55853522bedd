"""What krouter doctor looks at on the client's side: its variables."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from krouter.cli.aim import LOOPBACK, PROXIES, is_bypassed
from krouter.cli.clients import CLIENTS, Client
from krouter.cli.findings import Asked, Finding, Own, fault, ok, warning
from krouter.cli.guides import CLAUDE_TIERS

OFF = ("0", "false", "no", "off")
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
CLAUDE_NAMES = ("default", "best", "opusplan", *(tier.lower() for tier in CLAUDE_TIERS))
"""Names of Claude Code's own for models."""
CLAUDE_MODEL = "model"
"""Under which the model of Claude Code's settings stands beside the variables; it has a source."""
ENDPOINTS = ("/chat/completions", "/responses", "/messages", "/completions", "/models")


@dataclass(frozen=True, slots=True)
class Variable:
    """A value, and which file has put it there; none where the shell has."""

    value: str
    source: str = ""

    def says(self, what: str) -> str:
        return f"in {self.source}: {what}" if self.source else what

    def mend(self, hint: str) -> str:
        """What to do about it."""
        return f"Change it in {self.source}." if self.source else hint


Variables = Mapping[str, Variable]


def overlaid(env: Mapping[str, str], given: Mapping[str, Variable]) -> dict[str, Variable]:
    """The variables that a client sees; empty ones are none."""
    found = {name: Variable(value) for name, value in env.items()} | dict(given)
    return {name: variable for name, variable in found.items() if variable.value}


def is_same(url: str, base: str) -> bool:
    """Whether both are the same port of the same machine."""
    try:
        return _origin(url) == _origin(base)
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, "loopback" if host in LOOPBACK else host, port


def base_fault(value: str, base: str, path: str) -> tuple[str, str] | None:
    """What is wrong with a client's base URL, "fault" or "warning" first; None where it is well.
    `path` is what belongs behind `base`."""
    wanted = f"{base}{path}"
    if not is_same(value, base):
        return "fault", f"is {shown_url(value)!r}, which is not this krouter: {wanted}"
    parts = urlsplit(value)
    if "@" in parts.netloc:
        return "fault", f"holds a user name or a password, which krouter does not read: {wanted}"
    if parts.query or parts.fragment:
        return "fault", f"holds a query, behind which the client puts the path: {wanted}"
    own = parts.path.rstrip("/").removeprefix(urlsplit(base).path.rstrip("/"))
    if own == path:
        return None
    if any(own.endswith(each) for each in ENDPOINTS):
        return "fault", f"holds an endpoint, which the client adds itself: {wanted}"
    if own == f"{path}/v1":
        return "warning", f"has a /v1 too many, which krouter passes over: {wanted}"
    if path and not own:
        return "fault", f"lacks {path}: {wanted}"
    return "fault", f"has the path {own}, where nothing is: {wanted}"


_USER = re.compile(r"(?s)^((?:[A-Za-z][\w+.-]*:)?//)?.*@")


def shown_url(url: str) -> str:
    """Without what a user name, a query or a fragment may hold."""
    return re.split("[?#]", _USER.sub(lambda found: found[1] or "", url), maxsplit=1)[0]


def examine_client(
    client: Client,
    variables: Variables,
    base: str,
    login: bool,
    wrong: Callable[[str], str | None],
    is_set_up: bool,
) -> Iterator[Finding]:
    """The variables of one client, as it sees them. `wrong` says what is wrong with a key;
    `is_set_up` is that it has been told elsewhere where to go, or may have been."""
    yield from _program(client)
    told = [name for name in client.bases if name in variables]
    for name in told:
        yield _base(client, name, variables[name], base)
    if client.bases and not told and not is_set_up:
        does = "do" if client.title.endswith("s") else "does"
        message = f"is not set: {client.title} {does} not ask krouter."
        yield fault(" or ".join(client.bases), message, _how(client))
    for name in client.rivals:
        if name in variables and variables[name].value.lower() not in OFF:
            yield _rival(client, name, variables[name])
    if comes_here(client, variables, base):
        yield from _keys(client, variables, login, wrong)


def comes_here(client: Client, variables: Variables, base: str) -> bool:
    """Whether variables send a client to the krouter at `base`."""
    told = [name for name in client.bases if name in variables]
    return bool(told) and all(is_same(variables[name].value, base) for name in told)


def _given(client: Client, variables: Variables) -> list[str]:
    """The variables that hold keys; of a client with several makers' only those of whose address
    is told."""
    given = [name for name in client.keys if name in variables]
    if len(client.bases) == 1:
        return given
    makers = {name.partition("_")[0] for name in client.bases if name in variables}
    return [name for name in given if name.partition("_")[0] in makers]


def own_keys(client: Client, variables: Variables, base: str) -> list[Own]:
    """The keys in variables that a client would send to the krouter at `base`."""
    if not comes_here(client, variables, base):
        return []
    found = [Own(name, variables[name].value) for name in _given(client, variables)]
    headers = variables.get(HEADERS)
    if _is_claude(client) and headers:
        named = (line.partition(":") for line in headers.value.splitlines())
        found += (
            Own(HEADERS, value.strip())
            for name, _, value in named
            if name.strip().lower() == "x-krouter-key"
        )
    return found


def asked_models(client: Client, variables: Variables, base: str) -> list[Asked]:
    """The models in variables that a client would ask the krouter at `base` for."""
    if not comes_here(client, variables, base):
        return []
    found = {name: variables[name] for name in client.models if name in variables}
    chosen = variables.get(CLAUDE_MODEL)
    if _is_claude(client) and chosen and chosen.source and "ANTHROPIC_MODEL" not in found:
        found[CLAUDE_MODEL] = chosen
    asked = (Asked(name, _sent(client, each.value), each.source) for name, each in found.items())
    return [each for each in asked if each.model]


def names_no_model(variables: Variables) -> bool:
    """Whether Claude Code is left to choose among models of its own."""
    chosen = variables.get(CLAUDE_MODEL)
    if "ANTHROPIC_MODEL" in variables or (chosen and chosen.source):
        return False
    return not all(f"ANTHROPIC_DEFAULT_{tier}_MODEL" in variables for tier in ("OPUS", "SONNET"))


def _sent(client: Client, model: str) -> str:
    """As the client sends it; nothing for what it takes for another name of its own."""
    if _is_claude(client):
        model = re.sub(r"(?i)\[1m\]$", "", model)
        return "" if model.lower() in CLAUDE_NAMES else model
    return model.removeprefix("openai/") if client.name == "aider" else model


def _how(client: Client) -> str:
    how = f"krouter env {client.name}"
    return f"Start it with krouter code, or run the lines of {how}" if _is_claude(client) else how


def _is_claude(client: Client) -> bool:
    return client.name == "claude"


def _program(client: Client) -> Iterator[Finding]:
    if not client.program:
        return
    if found := shutil.which(client.program):
        yield ok("program", f"{client.title} is {found}.")
    else:
        message = f"there is no {client.program} on PATH."
        yield warning("program", message, f"To install it: {client.install}")


def _base(client: Client, name: str, variable: Variable, base: str) -> Finding:
    wrong = base_fault(variable.value, base, client.bases[name])
    if wrong is None:
        return ok(name, variable.says(f"is {shown_url(variable.value)}."))
    kind = fault if wrong[0] == "fault" else warning
    return kind(name, variable.says(wrong[1]), variable.mend(_how(client)))


def _rival(client: Client, name: str, variable: Variable) -> Finding:
    hint = variable.mend("Unset it.")
    if name.endswith("_MODEL"):
        message = f"is set: {client.title} asks {variable.value} for small things."
        return warning(name, variable.says(message), hint)
    return fault(name, variable.says(f"is set, which leads {client.title} elsewhere."), hint)


def _keys(
    client: Client, variables: Variables, login: bool, wrong: Callable[[str], str | None]
) -> Iterator[Finding]:
    given = _given(client, variables)
    if _is_claude(client) and login:
        for name in given:
            message = variables[name].says("is set, and is sent in place of the login.")
            hint = 'Unset it: the account with auth = "caller" needs the login.'
            yield fault(name, message, variables[name].mend(hint))
        return
    if _is_claude(client) and len(given) > 1:
        message = f"is set beside {given[0]}: {client.title} asks which one to use."
        yield warning(given[1], variables[given[1]].says(message), f"Keep {given[0]} alone.")
    if not given:
        wants = "want" if client.title.endswith("s") else "wants"
        message = f'is not set: {client.title} {wants} one, if only "none".'
        yield fault(client.keys[0], message, _how(client))
    for name in given:
        why = wrong(variables[name].value)
        if why is None:
            yield ok(name, variables[name].says("krouter takes it."))
        else:
            yield fault(
                name,
                variables[name].says(why),
                variables[name].mend(f"krouter env {client.name} --key KEY"),
            )


def examine_all(
    variables: Variables, base: str, wrong: Callable[[str], str | None], needs_key: bool
) -> Iterator[Finding]:
    """The variables of every client, where they are set at all, and the keys of those that come
    here."""
    seen: set[str] = set()
    for client in CLIENTS.values():
        for name, path in client.bases.items():
            if name in seen or name not in variables:
                continue
            seen.add(name)
            fault_here = base_fault(variables[name].value, base, path)
            if fault_here is None:
                yield ok(name, f"is {shown_url(variables[name].value)}.")
            else:
                elsewhere = not is_same(variables[name].value, base)
                kind = fault if fault_here[0] == "fault" and not elsewhere else warning
                yield kind(name, fault_here[1], f"krouter env {client.name}")
        if comes_here(client, variables, base):
            yield from _every_key(client, variables, wrong, needs_key, seen)


def _every_key(
    client: Client,
    variables: Variables,
    wrong: Callable[[str], str | None],
    needs_key: bool,
    seen: set[str],
) -> Iterator[Finding]:
    given = _given(client, variables)
    for name in given:
        if name in seen:
            continue
        seen.add(name)
        if why := wrong(variables[name].value):
            yield fault(name, why, f"krouter env {client.name} --key KEY")
        elif needs_key:
            yield ok(name, "krouter takes it.")
    alike = [each for each in CLIENTS.values() if each.bases.keys() == client.bases.keys()]
    is_keyed = HEADERS in variables or any(_given(each, variables) for each in alike)
    if needs_key and len(client.bases) == 1 and not is_keyed and client.keys[0] not in seen:
        seen.add(client.keys[0])
        message = "is not set: no key is sent, and this krouter asks for one."
        yield fault(client.keys[0], message, f"krouter env {client.name} --key KEY")


def examine_proxy(variables: Variables, host: str) -> Iterator[Finding]:
    """Whether a proxy is asked for krouter."""
    env = {name: variable.value for name, variable in variables.items()}
    if is_bypassed(env, host):
        return
    names = [n for each in PROXIES for n in (each.upper(), each) if n in env]
    message = f"{names[0]} is set, and NO_PROXY does not except {host}: the proxy is asked for it."
    excepted = env.get("no_proxy") or env.get("NO_PROXY")
    wanted = f"{excepted},{host}" if excepted else host
    yield fault("proxy", message, f"Set NO_PROXY and no_proxy to {wanted}")


def examine_reach(client: Client, base: str, needs_key: bool) -> Iterator[Finding]:
    """Whether the servers of a client's maker can reach krouter, and nobody else."""
    if base.startswith("https://"):
        yield ok("address", f"{base} may be public.")
    else:
        message = f"{client.title}'s own servers send the requests, and take only public https."
        yield fault("address", message, f"Name it with --url; krouter env {client.name} says more.")
    if not needs_key:
        message = "krouter asks for no key: through a public address anyone could use it."
        yield warning("address", message, f"krouter keys add {client.name}")
