"""What krouter doctor looks at on the server's side."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from krouter._version import __version__
from krouter.cli.aim import default_model, is_sendable, listed_models, unlisted
from krouter.cli.findings import Asked, Finding, Own, fault, ok, warning
from krouter.cli.running import (
    KEY,
    LOOK_SECONDS,
    SECONDS,
    Reply,
    fetch,
    health_in,
    health_of,
    is_key,
    lets_in,
    silence,
)
from krouter.cli.shells import quoted
from krouter.paths import Paths

ASK_SECONDS = 300.0
FEW_TOKENS = 16
"""The least that the Responses API takes."""
WORDS = "Say hello."
ASKED = {
    "messages": ("/v1/messages", "max_tokens"),
    "chat": ("/v1/chat/completions", "max_tokens"),
    "responses": ("/v1/responses", "max_output_tokens"),
}


@dataclass(frozen=True, slots=True)
class Server:
    """A krouter that answers. `health` is what it tells one who has `key`; `needs_key` is whether
    it tells others less; `lets_in` whether it takes `key`; `holder` is the variable or file of the
    client's that `key` is from, where it is the client's own."""

    base: str
    health: Mapping[str, Any]
    needs_key: bool
    lets_in: bool
    key: str | None = None
    holder: str = ""

    def send(self, path: str, body: Any = None, seconds: float = SECONDS, **headers: str) -> Reply:
        """Raises OSError, HTTPException."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        keyed = {"authorization": f"Bearer {self.key}"} if self.needs_key and self.key else {}
        return fetch(f"{self.base}{path}", body, {**keyed, **named}, seconds)


def find_server(base: str, key: str | None, found: list[Finding]) -> Server | None:
    """The krouter at `base`; what is found on the way goes into `found`."""
    try:
        reply = fetch(f"{base}/health", None, {}, LOOK_SECONDS)
    except OSError as error:
        found.append(_silence(base, error))
        return None
    except HTTPException:
        found.append(fault("server", f"what answers at {base} does not speak HTTP.", _OTHER))
        return None
    health = _health(reply)
    if health is None:
        found.append(_stranger(base, reply))
        return None
    found.append(ok("server", f"krouter {health['version']} answers at {base}."))
    needs_key = "home" not in health
    is_let_in = not needs_key
    if needs_key and key:
        try:
            reply = fetch(f"{base}/health", None, {"x-krouter-key": key}, LOOK_SECONDS)
        except (OSError, HTTPException) as error:
            found.append(fault("server", f"{base} no longer answers: {error}."))
            return None
        health = _health(reply) or health
        try:
            is_let_in = "home" in health or is_key(base, key)
        except click.ClickException as error:
            found.append(fault("key", f"the one given could not be tried: {error.message}"))
            return None
    return Server(base, health, needs_key, is_let_in, key)


def with_own_key(server: Server, keys: Iterable[Own]) -> Server:
    """The same, asked with the first of a client's keys that it takes. Raises ClickException."""
    for own in keys:
        if own.key and is_sendable(own.key) and lets_in(server.base, own.key):
            health = health_of(server.base, own.key)
            return Server(server.base, health, True, True, own.key, own.about)
    return server


def key_trouble(server: Server | None, key: str) -> str | None:
    """What is wrong with a client's key; None where nothing is."""
    if not is_sendable(key):
        return "holds a line break or other characters that no header can carry."
    if server is None or not server.needs_key:
        return None
    try:
        is_good = lets_in(server.base, key)
    except click.ClickException as error:
        return f"could not be tried: {error.message}"
    return None if is_good else "is no key of this krouter's."


_OTHER = "Stop that program, or give krouter another port: [server] port in krouter.toml."


def _health(reply: Reply) -> dict[str, Any] | None:
    try:
        told = reply.json
    except ValueError:
        return None
    return health_in(told) if reply.status == 200 else None


def _silence(base: str, error: OSError) -> Finding:
    message, hint = silence(base, error)
    is_refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
    return fault("server", message, f"{hint}{_other_side() if is_refused else ''}")


def _other_side() -> str:
    """A hint for those to whom 127.0.0.1 is not the machine that they mean."""
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            " This is a container: its 127.0.0.1 is not the host's. Serve with a key on an address"
            " that it reaches, and use that one."
        )
    try:
        is_wsl = "microsoft" in Path("/proc/version").read_text().lower()
    except OSError:
        return ""
    return " This is WSL: a krouter under Windows may need its host's address." if is_wsl else ""


def _stranger(base: str, reply: Reply) -> Finding:
    told = reply.told or ""
    if reply.status == 403 and "Host header" in told:
        hint = "Use 127.0.0.1 or localhost, or add the name to allowed_hosts in [server]."
        return fault("server", f"krouter refuses the host of {base}: {told}", hint)
    server = reply.headers.get("server")
    known = f", {server}" if server else ""
    message = f"another program answers at {base} ({reply.status}{known}), and no krouter."
    return fault("server", message, _OTHER)


def examine_server(server: Server, paths: Paths, elsewhere: str) -> Iterator[Finding]:
    """Its state, its version, its keys. `elsewhere` is the client whose key was not tried, since it
    asks another server."""
    health = server.health
    yield from (warning("health", str(problem)) for problem in health.get("problems", ()))
    if health.get("status") == "ok":
        yield ok("health", "all is well.")
    elif not health.get("problems"):
        yield warning("health", "krouter says that it is not well.", "Its key holders see more.")
    if health["version"] != __version__:
        message = f"the server is version {health['version']}, this command {__version__}."
        yield warning("version", message, "Restart krouter serve.")
    if "home" in health:
        yield _home(str(health["home"]), paths)
    yield _keys(server, elsewhere)


def _home(served: str, paths: Paths) -> Finding:
    if Path(served).resolve() == paths.home.resolve():
        return ok("home", f"{served}.")
    message = f"{served}, while commands that are run here take {paths.home}."
    return warning(
        "home", message, f"To look at the same settings and combos: --home {quoted(served)}"
    )


def _keys(server: Server, elsewhere: str) -> Finding:
    if not server.needs_key:
        return ok("key", "none is needed.")
    if server.lets_in:
        which = f"that of {server.holder}" if server.holder else "the one given"
        limits = "" if "home" in server.health else "; it has limits"
        return ok("key", f"one is needed, and {which} is good{limits}.")
    make = "krouter keys add NAME makes one."
    if server.key is None and elsewhere:
        message = f"one is needed, and none was tried: {elsewhere} does not come here."
        return warning("key", message, f"Or give one with --key or the variable {KEY}.")
    if server.key is None:
        hint = f"Give it with --key or the variable {KEY}. {make}"
        return fault("key", "one is needed, and none is given.", hint)
    return fault("key", "the one given is none of this krouter's.", f"krouter keys list. {make}")


def examine_models(
    server: Server, asked: str | None, found: list[Finding]
) -> dict[str, Any] | None:
    """The model that a client would ask for, as krouter tells it; what is found on the way goes
    into `found`."""
    try:
        if asked is not None:
            finding, told = _named(server, asked)
            found.append(finding)
            return told
        listed = listed_models(server.base, server.key if server.needs_key else None)
    except (OSError, HTTPException) as error:
        found.append(fault("model", f"no answer: {error}."))
        return None
    except click.ClickException as error:
        found.append(fault("model", error.message))
        return None
    model = default_model(listed)
    if model is None:
        hint = "Put one into combos/, or name a provider/model with --model."
        found.append(fault("model", "no combo is served.", hint))
        return None
    combos = [each["id"] for each in listed if each.get("owned_by") == "combo"]
    found.append(
        ok("model", f"{len(combos)} combos and aliases are served; this is {model['id']}.")
    )
    return model


def _named(
    server: Server, model: str, about: str = "model"
) -> tuple[Finding, dict[str, Any] | None]:
    reply = server.send(f"/v1/models/{quote(model, errors='replace')}")
    if reply.status != 200:
        return fault(about, unlisted(reply.told or f"{model} is answered {reply.status}.")), None
    try:
        told = reply.json
    except ValueError:
        told = None
    known = told if isinstance(told, dict) and isinstance(told.get("id"), str) else {"id": model}
    return ok(about, f"krouter knows the name {model}."), known


def examine_asked(
    server: Server, asked: Iterable[Asked], known: dict[str, dict[str, Any]]
) -> Iterator[Finding]:
    """Whether krouter knows the models that a client is set to; what it tells of each goes into
    `known`."""
    for each in asked:
        try:
            found, told = _named(server, each.model, each.about)
        except (OSError, HTTPException) as error:
            yield fault(each.about, f"no answer: {error}.")
            continue
        if told is not None:
            known.setdefault(each.model, told)
        where = f"{each.source}: " if each.source else ""
        yield Finding(found.level, found.about, f"{where}{found.message}")


def takes_claudes(server: Server) -> bool:
    """Whether krouter knows any name that Claude Code asks for of itself. Raises OSError,
    HTTPException."""
    names = [f"claude-{tier}-{version}" for tier in ("opus", "sonnet") for version in ("5", "4-6")]
    found = (_named(server, name)[1] for name in names)
    return any(told is not None and told.get("available", True) for told in found)


def outlook_of(model: str, is_available: bool | None, paths: Paths | None) -> Finding:
    """Whether `model` can be answered: as the running krouter says, if it does, else one started
    here, which may have been given other variables. Raises ConfigError."""
    if is_available:
        return ok("outlook", f"{model} can be answered: krouter has an account for it.")
    hint = f"krouter explain {model}, or --ask to be sure."
    if paths is None:
        message = f"{model} cannot be answered: no entry has an account."
        return warning("outlook", message, hint)
    from krouter.cli.outlook import outlook
    from krouter.cli.view import open_view
    from krouter.naming import UnknownModel, resolve

    world = open_view(paths, required=False).world
    try:
        expected = outlook(resolve(model, world).combo, world)
    except UnknownModel as unknown:
        return warning("outlook", str(unknown), "krouter check")
    if expected.usable and is_available is None:
        return ok("outlook", f"{model} can be answered, as files and this shell's variables say.")
    if expected.usable:
        message = (
            f"{model} cannot be answered: the running krouter has no account for it, but one"
            " started in this shell would have."
        )
        return warning("outlook", message, "Restart krouter serve with this shell's variables.")
    return warning("outlook", f"{model} cannot be answered: {expected.why}.", hint)


def probe(server: Server, model: str, dialects: Sequence[str]) -> Iterator[Finding]:
    """A small request of each dialect, which no model answers."""
    for dialect in dialects:
        try:
            reply = _probed(server, model, dialect)
        except (OSError, HTTPException) as error:
            yield fault(dialect, f"no answer: {error}.")
            continue
        if reply.status == 200:
            yield ok(dialect, f"{_PROBES[dialect]} for {model} is answered.")
        else:
            judged = warning if reply.status == 429 else fault  # a limit, of a key that is good
            yield judged(dialect, reply.told or f"{_PROBES[dialect]} is answered {reply.status}.")


_PROBES = {
    "chat": "GET /v1/models/NAME",
    "messages": "POST /v1/messages/count_tokens",
    "responses": "POST /v1/responses/input_tokens",
    "gemini": "GET /v1beta/models/NAME",
}


def _probed(server: Server, model: str, dialect: str) -> Reply:
    if dialect == "messages":
        body = {"model": model, "messages": [{"role": "user", "content": WORDS}]}
        path = "/v1/messages/count_tokens?beta=true"
        return server.send(path, body, anthropic_version="2023-06-01")
    if dialect == "responses":
        return server.send("/v1/responses/input_tokens", {"model": model, "input": WORDS})
    start = "/v1beta/models/" if dialect == "gemini" else "/v1/models/"
    return server.send(f"{start}{quote(model)}")


def ask_once(server: Server, model: str, dialect: str, place: str) -> Finding:
    """One real request, and what became of it. `place` is the option that commands need to find
    its route."""
    began = time.monotonic()
    try:
        reply = server.send(*_request(model, dialect), seconds=ASK_SECONDS)
    except (OSError, HTTPException) as error:
        return fault("ask", f"no answer: {error}.")
    told = reply.headers
    route = f"krouter route {told['x-krouter-route']}{place}" if "x-krouter-route" in told else ""
    tried = f"; tried {told['x-krouter-tried']}" if told.get("x-krouter-tried") else ""
    if reply.status == 200:
        by = told.get("x-krouter-model", "?")
        message = f"{by} answers for {model} in {time.monotonic() - began:.1f} s{tried}."
        return Finding("ok", "ask", message, route)
    why = reply.told or "no reason is given"
    return fault("ask", f"{model} is answered {reply.status}: {why}{tried}", route)


def _request(model: str, dialect: str) -> tuple[str, dict[str, Any]]:
    if dialect == "gemini":
        body: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": WORDS}]}]}
        body["generationConfig"] = {"maxOutputTokens": FEW_TOKENS}
        return f"/v1beta/models/{quote(model, safe='')}:generateContent", body
    path, limit = ASKED[dialect]
    words = (
        {"input": WORDS}
        if dialect == "responses"
        else {"messages": [{"role": "user", "content": WORDS}]}
    )
    return path, {"model": model, limit: FEW_TOKENS, **words}
