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
from krouter.cli.examine_client import Variable, base_fault, is_same
from krouter.cli.findings import Finding, fault, ok, warning
from krouter.cli.places import Places


class Unreadable(Exception):
    """A file that its client cannot read either; the text says why."""


def read(path: Path, parse: Callable[[str], Any]) -> Any:
    """What a file holds; None without one. Raises Unreadable."""
    try:
        return parse(path.read_text("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is broken: {error}.") from None


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


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


def examine_files(client: Client, places: Places, base: str) -> list[Finding]:
    """What stands in the files of a client; nothing where it has none of them."""
    examine = _EXAMINERS.get(client.name)
    return list(examine(places, base)) if examine else []


def _codex(places: Places, base: str) -> Iterator[Finding]:
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
    name = settings.get("model_provider", "openai")
    provider = _table(settings, "model_providers", str(name))
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


def _opencode(places: Places, base: str) -> Iterator[Finding]:
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
    urls = {name: _table(each, "options").get("baseURL") for name, each in providers.items()}
    ours = {name: url for name, url in urls.items() if isinstance(url, str) and is_same(url, base)}
    if not ours:
        message = f"{shown}: none of its providers has a baseURL of this krouter: {base}/v1"
        yield fault("file", message, "krouter env opencode")
        return
    for name, url in ours.items():
        yield _address(shown, f"baseURL of {name}", url, base, "opencode")
    for field in ("model", "small_model"):
        asked = merged.get(field)
        if isinstance(asked, str) and asked.partition("/")[0] not in ours:
            message = f"{shown}: {asked!r} is of another provider than {', '.join(ours)}."
            yield warning(field, message)


def _by_line(
    client: str, paths: Callable[[Places], Sequence[Path]], field: str, is_needed: bool
) -> Callable[[Places, str], Iterator[Finding]]:
    """Of YAML, of which krouter has no reader, only the lines that hold an address."""
    line = re.compile(rf"(?m)^[-\s]*{re.escape(field)}\s*:\s*[\"']?([^\s\"'#]+)")

    def examine(places: Places, base: str) -> Iterator[Finding]:
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
        return ok("file", f"{shown}: {field} is {url}.")
    kind = fault if wrong[0] == "fault" else warning
    return kind("file", f"{shown}: {field} {wrong[1]}", f"krouter env {client}")


_EXAMINERS: Mapping[str, Callable[[Places, str], Iterator[Finding]]] = MappingProxyType(
    {
        "codex": _codex,
        "opencode": _opencode,
        "aider": _by_line("aider", lambda places: places.aiders, "openai-api-base", False),
        "llm": _by_line("llm", lambda places: [places.llm], "api_base", True),
        "continue": _by_line("continue", lambda places: [places.continue_], "apiBase", True),
    }
)
