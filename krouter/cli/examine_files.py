"""What krouter doctor looks at on the client's side: its files."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from krouter.cli.clients import Client
from krouter.cli.examine_client import Variable, base_fault, is_same, shown_url
from krouter.cli.findings import Asked, Finding, Own, fault, ok, warning
from krouter.cli.places import Places

MOST_BYTES = 2**22
"""What a file of settings may hold."""


class Unreadable(Exception):
    """A file that its client cannot read either; the text says why."""


def read(path: Path, parse: Callable[[str], Any]) -> Any:
    """What a file holds; None without one. Raises Unreadable."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe may be waited for without an end
            raise Unreadable("is no regular file.")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise Unreadable("is too long for settings.")
        return parse(data.decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is broken: {error}.") from None


# What is not closed reaches to the end: it is not looked for again from every place.
_STRING = r'("(?:\\.|[^"\\])*+"?)'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING = re.compile(rf"{_STRING}|,(?=\s*+[}}\]])", re.DOTALL)
_VARIABLE = re.compile(r"\{env:([^{}]+)\}")


def parse_jsonc(text: str) -> Any:
    """JSON with comments, and commas at the ends of lists. Raises ValueError."""
    bare = _COMMENT.sub(lambda found: found[1] or " ", text)
    return json.loads(_TRAILING.sub(lambda found: found[1] or "", bare))


def _table(value: Any, *names: str) -> dict[str, Any]:
    """The table under these names; an empty one where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def claude_settings(places: Places) -> tuple[dict[str, Variable], list[Finding]]:
    """The variables that Claude Code's settings put over the shell's."""
    given: dict[str, Variable] = {}
    found: list[Finding] = []
    for path in places.claude:
        shown = places.shown(path)
        try:
            settings = read(path, json.loads)
        except Unreadable as why:
            found.append(fault("file", f"{shown} {why}"))
            continue
        for name, value in _table(settings, "env").items():
            given[name] = Variable(str(value), shown)
        helper = settings.get("apiKeyHelper") if isinstance(settings, dict) else None
        if helper:
            message = f"{shown} has an apiKeyHelper, whose key may be sent to krouter."
            found.append(warning("file", message))
    return given, found


Told = Finding | Asked | Own


def examine_files(client: Client, places: Places, base: str) -> list[Told]:
    """What stands in the files of a client, the models and keys among it; nothing where it has none
    of them."""
    examine = _EXAMINERS.get(client.name)
    return list(examine(places, base)) if examine else []


def _codex(places: Places, base: str) -> Iterator[Told]:
    shown = places.shown(places.codex)
    try:
        settings = read(places.codex, tomllib.loads)
    except Unreadable as why:
        yield fault("file", f"{shown} {why}")
        return
    if settings is None:
        yield fault(
            "file", f"there is no {shown}: Codex does not ask krouter.", "krouter env codex"
        )
        return
    profile = settings.get("profile")
    if profile is not None:
        chosen = _table(settings, "profiles", str(profile))
        if not chosen:
            yield fault("file", f"{shown}: profile is {profile!r}, and there is no such profile.")
            return
        settings |= chosen
    name = settings.get("model_provider", "openai")
    if not isinstance(name, str):
        yield fault("file", f"{shown}: model_provider must be a name.", "krouter env codex")
        return
    provider = _table(settings, "model_providers", name)
    url = provider.get("base_url")
    if not provider and name == "openai":
        url = settings.get("openai_base_url") or places.env.get("OPENAI_BASE_URL")
    if not isinstance(url, str):
        message = f"{shown}: model_provider is {name!r}, which has no base_url there."
        yield fault("file", message, "krouter env codex")
        return
    yield _address(shown, "base_url", url, base, "codex")
    if provider.get("wire_api", "responses") != "responses":
        yield fault("wire_api", f'{shown}: must be "responses": Codex speaks nothing else.')
    variable = provider.get("env_key")
    if variable and not places.env.get(str(variable)):
        message = f"{shown} names the variable {variable}, which is not set: Codex does not start."
        yield fault("env_key", message, "Set it to the key, or leave env_key out.")
    if is_same(url, base):
        if variable and places.env.get(str(variable)):
            yield Own(str(variable), places.env[str(variable)])
        if isinstance(model := settings.get("model"), str):
            yield Asked("model", model, shown)


def _opencode(places: Places, base: str) -> Iterator[Told]:
    merged: dict[str, Any] = {}
    providers: dict[str, Any] = {}
    shown = ""
    for path in places.opencodes:
        try:
            settings = read(path, parse_jsonc)
        except Unreadable as why:
            yield fault("file", f"{places.shown(path)} {why}")
            continue
        if isinstance(settings, dict):
            shown = places.shown(path)
            merged |= settings
            providers |= _table(settings, "provider")
    if not shown:
        message = f"there is no {places.shown(places.opencode)}: opencode does not ask krouter."
        yield fault("file", message, "krouter env opencode")
        return
    options = {name: _table(each, "options") for name, each in providers.items()}
    urls = {name: _filled(each.get("baseURL"), places) for name, each in options.items()}
    ours = {name: url for name, url in urls.items() if is_same(url, base)}
    if not ours:
        message = f"{shown}: none of its providers has a baseURL of this krouter: {base}/v1"
        yield fault("file", message, "krouter env opencode")
        return
    for name, url in ours.items():
        yield _address(shown, f"baseURL of {name}", url, base, "opencode")
        key = _filled(options[name].get("apiKey"), places)
        if key and not key.startswith("{file:"):
            yield Own(f"apiKey of {name}", key)
    for field in ("model", "small_model"):
        asked = _filled(merged.get(field), places)
        name, _, model = asked.partition("/")
        if name in ours:
            renamed = _table(providers[name], "models", model).get("id")
            yield Asked(field, renamed if isinstance(renamed, str) else model, shown)
        elif asked:
            message = f"{shown}: {asked!r} is of another provider than {', '.join(ours)}."
            yield warning(field, message)


def _filled(value: Any, places: Places) -> str:
    """A value with the variables that opencode puts into it; nothing for what is no text."""
    if not isinstance(value, str):
        return ""
    return _VARIABLE.sub(lambda found: places.env.get(found[1].strip(), ""), value)


def _by_line(
    client: str, paths: Callable[[Places], Sequence[Path]], field: str, is_needed: bool
) -> Callable[[Places, str], Iterator[Told]]:
    """Of YAML, of which krouter has no reader, only the lines that hold an address."""
    line = re.compile(rf"(?m)^[-\t ]*+{re.escape(field)}[\t ]*+:[\t ]*+[\"']?([^\s\"'#]+)")

    def examine(places: Places, base: str) -> Iterator[Told]:
        seen = False
        for path in paths(places):
            shown = places.shown(path)
            try:
                urls = read(path, line.findall)
            except Unreadable as why:
                yield fault("file", f"{shown} {why}")
                continue
            ours = [url for url in urls or () if is_same(url, base)]
            for url in ours or (urls or ())[:1]:
                seen = True
                yield _address(shown, field, url, base, client)
        if is_needed and not seen:
            shown = places.shown(paths(places)[0])
            yield fault("file", f"there is no {field} in {shown}.", f"krouter env {client}")

    return examine


def _address(shown: str, field: str, url: str, base: str, client: str) -> Finding:
    wrong = base_fault(url, base, "/v1")
    if wrong is None:
        return ok("file", f"{shown}: {field} is {shown_url(url)}.")
    kind = fault if wrong[0] == "fault" else warning
    return kind("file", f"{shown}: {field} {wrong[1]}", f"krouter env {client}")


_EXAMINERS: Mapping[str, Callable[[Places, str], Iterator[Told]]] = MappingProxyType(
    {
        "codex": _codex,
        "opencode": _opencode,
        "aider": _by_line("aider", lambda places: places.aiders, "openai-api-base", False),
        "llm": _by_line("llm", lambda places: [places.llm], "api_base", True),
        "continue": _by_line("continue", lambda places: [places.continue_], "apiBase", True),
    }
)
