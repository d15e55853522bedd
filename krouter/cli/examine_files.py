"""What krouter doctor looks at on the client's side: its files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from krouter.cli.clients import Client
from krouter.cli.examine_client import CLAUDE_MODEL, Variable, is_same
from krouter.cli.examine_yaml import YAMLS
from krouter.cli.findings import Asked, Finding, Own, Told, fault, warning
from krouter.cli.places import Places
from krouter.cli.reading import (
    Unreadable,
    address,
    dotenv,
    parse_jsonc,
    read,
    table,
    text_of,
    unkeyed,
)
from krouter.cli.yaml_lines import entries

_VARIABLE = re.compile(r"\{env:([^{}]+)\}")
_FILE = re.compile(r"\{file:([^{}]+)\}")


def claude_settings(places: Places) -> tuple[dict[str, Variable], list[Finding]]:
    """The variables that Claude Code's settings put over the shell's, and the model they name."""
    given: dict[str, Variable] = {}
    found: list[Finding] = []
    for path in places.claude:
        shown = places.shown(path)
        try:
            settings = read(path, json.loads)
        except Unreadable as why:
            found.append(fault("file", f"{shown} {why}"))
            continue
        for name, value in table(settings, "env").items():
            given[name] = Variable(str(value), shown)
        model = settings.get("model") if isinstance(settings, dict) else None
        if isinstance(model, str):
            given[CLAUDE_MODEL] = Variable(model, shown)
        helper = settings.get("apiKeyHelper") if isinstance(settings, dict) else None
        if helper:
            message = f"{shown} has an apiKeyHelper, whose key may be sent to krouter."
            found.append(warning("file", message))
    return given, found


def aider_settings(places: Places) -> dict[str, Variable]:
    """The variables that aider's files put over the shell's, and the key that its settings hold
    where no variable does."""
    given: dict[str, Variable] = {}
    for path in places.aider_envs:
        given |= {name: Variable(value, places.shown(path)) for name, value in dotenv(path).items()}
    for path in places.aiders:
        try:
            top = entries(read(path, str) or "")[0]
        except Unreadable:
            continue
        if (key := top.get("openai-api-key")) and not places.env.get("OPENAI_API_KEY"):
            given["OPENAI_API_KEY"] = Variable(key, places.shown(path))
    return given


def examine_files(client: Client, places: Places, base: str, needs_key: bool) -> list[Told]:
    """What stands in the files of a client, the models and keys among it; nothing where it has none
    of them. `needs_key` is whether the krouter at `base` asks for a key."""
    examine = _EXAMINERS.get(client.name)
    return list(examine(places, base, needs_key)) if examine else []


def _codex(places: Places, base: str, needs_key: bool) -> Iterator[Told]:
    shown = places.shown(places.codex)
    try:
        settings = read(places.codex, tomllib.loads)
    except Unreadable as why:
        yield fault("file", f"{shown} {why}")
        return
    if settings is None:
        message = f"there is no {shown}: Codex does not ask krouter."
        yield fault("file", message, "krouter env codex")
        return
    profile = settings.get("profile")
    if profile is not None:
        chosen = table(settings, "profiles", str(profile))
        if not chosen:
            yield fault("file", f"{shown}: profile is {profile!r}, and there is no such profile.")
            return
        settings |= chosen
    name = settings.get("model_provider", "openai")
    if not isinstance(name, str):
        yield fault("file", f"{shown}: model_provider must be a name.", "krouter env codex")
        return
    provider = table(settings, "model_providers", name)
    source, field, url = shown, "base_url", provider.get("base_url")
    if not provider and name == "openai":
        field, url = "openai_base_url", settings.get("openai_base_url")
        if not url:
            source, field = "the environment", "OPENAI_BASE_URL"
            url = places.env.get(field)
    if not isinstance(url, str):
        message = f"{shown}: model_provider is {name!r}, which has no base_url there."
        yield fault("file", message, "krouter env codex")
        return
    yield address(source, field, url, base, "codex")
    if provider.get("wire_api", "responses") != "responses":
        yield fault("wire_api", f'{shown}: must be "responses": Codex speaks nothing else.')
    variable = provider.get("env_key")
    if variable and not places.env.get(str(variable)):
        message = f"{shown} names the variable {variable}, which is not set: Codex does not start."
        hint = "Set it to a key." if needs_key else "Set it to the key, or leave env_key out."
        yield fault("env_key", message, hint)
    if is_same(url, base):
        yield from _codex_key(provider, shown, places, needs_key)
        if isinstance(model := settings.get("model"), str):
            yield Asked("model", model, shown)


KEY_HEADERS = ("authorization", "x-api-key", "x-krouter-key")


def _codex_key(
    provider: dict[str, Any], shown: str, places: Places, needs_key: bool
) -> Iterator[Told]:
    if variable := text_of(provider.get("env_key")):
        if key := places.env.get(variable):
            yield Own(variable, key, f"Set {variable} to a key of this krouter's.")
        return
    mend = f"Change it in {shown}."
    fields = {"experimental_bearer_token": text_of(provider.get("experimental_bearer_token"))}
    for header, value in table(provider, "http_headers").items():
        fields[f"http_headers {header}"] = _in_header(header, text_of(value))
    for header, name in table(provider, "env_http_headers").items():
        fields[f"env_http_headers {header}"] = _in_header(header, places.env.get(str(name), ""))
    if not provider:  # OpenAI's own, led here
        path = places.codex.with_name("auth.json")
        try:
            login = read(path, json.loads)
        except Unreadable as why:
            yield fault("file", f"{places.shown(path)} {why}")
            return
        stored = login.get("OPENAI_API_KEY") if isinstance(login, dict) else None
        fields[f"OPENAI_API_KEY in {places.shown(path)}"] = text_of(stored)
    found = [Own(about, key, mend) for about, key in fields.items() if key]
    yield from found
    if needs_key and not found:
        hint = 'Add env_key = "KROUTER_KEY" below base_url, and set that variable to a key.'
        yield unkeyed("env_key", shown, "Codex", hint if provider else "krouter env codex")


def _in_header(name: str, value: str) -> str:
    """The key in a header; nothing in one that holds none."""
    if name.lower() not in KEY_HEADERS:
        return ""
    return re.sub("(?i)^bearer +", "", value).strip()


def _opencode(places: Places, base: str, needs_key: bool) -> Iterator[Told]:
    merged: dict[str, Any] = {}
    files: list[tuple[str, dict[str, Any]]] = []
    is_broken = False
    for path in places.opencodes:
        try:
            settings = _filled(read(path, parse_jsonc), places, path.parent)
        except Unreadable as why:
            yield fault("file", f"{places.shown(path)} {why}")
            is_broken = True
            continue
        if isinstance(settings, dict):
            files.append((places.shown(path), settings))
            merged = _merged(merged, settings)
    providers = table(merged, "provider")
    options = {name: table(each, "options") for name, each in providers.items()}
    urls = {name: text_of(each.get("baseURL")) for name, each in options.items()}
    ours = {name: url for name, url in urls.items() if is_same(url, base)}
    if not ours:
        if not files:
            message = f"there is no {places.shown(places.opencode)}: opencode does not ask krouter."
        else:
            shown = _source(files, "provider")
            message = f"{shown}: none of its providers has a baseURL of this krouter: {base}/v1"
        if not is_broken:  # which may hold it
            yield fault("file", message, "krouter env opencode")
        return
    for name, url in ours.items():
        shown = _source(files, "provider", name, "options", "baseURL")
        yield address(shown, f"baseURL of {name}", url, base, "opencode")
        yield from _opencode_key(name, providers[name], shown, places, needs_key)
    for field in ("model", "small_model"):
        asked, shown = text_of(merged.get(field)), _source(files, field)
        name, _, model = asked.partition("/")
        if name in ours:
            renamed = table(providers[name], "models", model).get("id")
            yield Asked(field, renamed if isinstance(renamed, str) else model, shown)
        elif asked:
            message = f"{shown}: {asked!r} is of another provider than {', '.join(ours)}."
            yield warning(field, message)


def _opencode_key(
    name: str, provider: dict[str, Any], shown: str, places: Places, needs_key: bool
) -> Iterator[Told]:
    mend = f"Change it in {shown}."
    options = table(provider, "options")
    found = [Own(f"apiKey of {name}", text_of(options.get("apiKey")), mend)]
    for header, value in table(options, "headers").items():
        found.append(Own(f"{header} of {name}", _in_header(header, text_of(value)), mend))
    try:
        stored = table(read(places.opencode_logins, json.loads), name).get("key")
    except Unreadable:
        stored = None
    found.append(Own(f"login of {name}", text_of(stored), "opencode auth login"))
    variables = provider.get("env")
    names = map(str, variables if isinstance(variables, list) else ())
    found += (Own(variable, places.env.get(variable, "")) for variable in names)
    sent = next((each for each in found if each.key), None)
    if sent is not None:
        yield sent
    elif needs_key:
        hint = f'Add "apiKey": "{{env:KROUTER_KEY}}" to the options of {name}.'
        yield unkeyed(f"apiKey of {name}", shown, "opencode", hint)


def _source(files: Sequence[tuple[str, dict[str, Any]]], *names: str) -> str:
    """The last file that holds a value under these names; else the last of all."""
    for shown, settings in files[::-1]:
        if names[-1] in table(settings, *names[:-1]):
            return shown
    return files[-1][0]


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """As opencode lays one file over another: tables field by field, all else as a whole."""
    both = {**old, **new}
    for name in old.keys() & new.keys():
        if isinstance(old[name], dict) and isinstance(new[name], dict):
            both[name] = _merged(old[name], new[name])
    return both


def _filled(value: Any, places: Places, folder: Path) -> Any:
    """Settings with the variables and the files that opencode puts into their texts. Raises
    Unreadable for a file that is not there: opencode does not start then."""
    if isinstance(value, dict):
        return {name: _filled(each, places, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, places, folder) for each in value]
    if not isinstance(value, str):
        return value
    text = _VARIABLE.sub(lambda found: places.env.get(found[1].strip(), ""), value)
    return _FILE.sub(lambda found: _inside(found[1].strip(), places, folder), text)


def _inside(name: str, places: Places, folder: Path) -> str:
    path = places.home / name[2:] if name.startswith("~/") else folder / name
    text = read(path, str)
    if text is None:
        raise Unreadable(f"names the file {places.shown(path)}, which is not there.")
    return str(text).strip()


Examine = Callable[[Places, str, bool], Iterator[Told]]
_EXAMINERS: Mapping[str, Examine] = MappingProxyType(
    {
        "codex": _codex,
        "opencode": _opencode,
        **{each.client: each.examine for each in YAMLS},
    }
)
