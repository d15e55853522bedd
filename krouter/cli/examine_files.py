"""What krouter doctor looks at on the client's side: its files."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from krouter.cli.clients import Client
from krouter.cli.examine_client import CLAUDE_MODEL, Variable, base_fault, is_same, shown_url
from krouter.cli.findings import Asked, Finding, Own, fault, ok, warning
from krouter.cli.places import Places
from krouter.cli.yaml_lines import entries

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
_FILE = re.compile(r"\{file:([^{}]+)\}")


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
        for name, value in _table(settings, "env").items():
            given[name] = Variable(str(value), shown)
        model = settings.get("model") if isinstance(settings, dict) else None
        if isinstance(model, str):
            given[CLAUDE_MODEL] = Variable(model, shown)
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
    shown = ""
    for path in places.opencodes:
        try:
            settings = _filled(read(path, parse_jsonc), places, path.parent)
        except Unreadable as why:
            yield fault("file", f"{places.shown(path)} {why}")
            continue
        if isinstance(settings, dict):
            shown = places.shown(path)
            merged = _merged(merged, settings)
    if not shown:
        message = f"there is no {places.shown(places.opencode)}: opencode does not ask krouter."
        yield fault("file", message, "krouter env opencode")
        return
    providers = _table(merged, "provider")
    options = {name: _table(each, "options") for name, each in providers.items()}
    urls = {name: _text(each.get("baseURL")) for name, each in options.items()}
    ours = {name: url for name, url in urls.items() if is_same(url, base)}
    if not ours:
        message = f"{shown}: none of its providers has a baseURL of this krouter: {base}/v1"
        yield fault("file", message, "krouter env opencode")
        return
    for name, url in ours.items():
        yield _address(shown, f"baseURL of {name}", url, base, "opencode")
        if key := _text(options[name].get("apiKey")):
            yield Own(f"apiKey of {name}", key)
    for field in ("model", "small_model"):
        asked = _text(merged.get(field))
        name, _, model = asked.partition("/")
        if name in ours:
            renamed = _table(providers[name], "models", model).get("id")
            yield Asked(field, renamed if isinstance(renamed, str) else model, shown)
        elif asked:
            message = f"{shown}: {asked!r} is of another provider than {', '.join(ours)}."
            yield warning(field, message)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


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


@dataclass(frozen=True, slots=True)
class _Yaml:
    """A client with a file of YAML: the field of an address there, and those of models, each with
    the variable that wins over it. `base` is a variable that may hold the address instead."""

    client: str
    paths: Callable[[Places], Sequence[Path]]
    field: str
    models: Mapping[str, str]
    base: str = ""

    def examine(self, places: Places, base: str) -> Iterator[Told]:
        """Addresses are looked for in every line, models in the entries that krouter is to
        answer."""
        line = re.compile(rf"(?m)^[-\t ]*+{re.escape(self.field)}[\t ]*+:[\t ]*+[\"']?([^\s\"'#]+)")
        seen = False
        for path in self.paths(places):
            shown = places.shown(path)
            try:
                text = read(path, str) or ""
            except Unreadable as why:
                yield fault("file", f"{shown} {why}")
                continue
            urls = line.findall(text)
            ours = [url for url in urls if is_same(url, base)]
            for url in ours or urls[:1]:
                seen = True
                yield _address(shown, self.field, url, base, self.client)
            for entry in entries(text):
                if is_same(entry.get(self.field) or places.env.get(self.base, ""), base):
                    yield from self._asked(entry, shown, places)
        if not self.base and not seen:
            shown = places.shown(self.paths(places)[0])
            yield fault(
                "file", f"there is no {self.field} in {shown}.", f"krouter env {self.client}"
            )

    def _asked(self, entry: Mapping[str, str], shown: str, places: Places) -> Iterator[Asked]:
        for name, variable in self.models.items():
            if name in entry and not places.env.get(variable):
                yield Asked(name, entry[name].removeprefix("openai/"), shown)


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
        "aider": _Yaml(
            "aider",
            lambda places: places.aiders,
            "openai-api-base",
            {
                "model": "AIDER_MODEL",
                "weak-model": "AIDER_WEAK_MODEL",
                "editor-model": "AIDER_EDITOR_MODEL",
            },
            base="OPENAI_API_BASE",
        ).examine,
        "llm": _Yaml("llm", lambda places: [places.llm], "api_base", {"model_name": ""}).examine,
        "continue": _Yaml(
            "continue", lambda places: [places.continue_], "apiBase", {"model": ""}
        ).examine,
    }
)
