"""What krouter doctor looks at on the client's side: files of YAML, and the keys beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from krouter.cli.examine_client import is_same
from krouter.cli.findings import Asked, Own, Told, fault
from krouter.cli.places import Places
from krouter.cli.reading import Unreadable, address, dotenv, read, unkeyed
from krouter.cli.yaml_lines import entries

Entry = Mapping[str, str]
Keys = Callable[[Entry, str, Places, bool], Iterator[Told]]
"""What there is to say of the key of an entry that krouter is to answer; `shown` is its file."""


@dataclass(frozen=True, slots=True)
class Yaml:
    """A client with a file of YAML: the field of an address there, and those of models, each with
    the variable that wins over it. `base` is a variable that may hold the address instead."""

    client: str
    title: str
    paths: Callable[[Places], Sequence[Path]]
    field: str
    models: Mapping[str, str]
    keys: Keys
    base: str = ""

    def examine(self, places: Places, base: str, needs_key: bool) -> Iterator[Told]:
        """Addresses are looked for in every line, models and keys in the entries that krouter is to
        answer."""
        line = re.compile(rf"(?m)^[-\t ]*+{re.escape(self.field)}[\t ]*+:[\t ]*+[\"']?([^\s\"'#]+)")
        seen = found = False
        for path in self.paths(places):
            shown = places.shown(path)
            try:
                text = read(path, str)
            except Unreadable as why:
                yield fault("file", f"{shown} {why}")
                seen = True
                continue
            found = found or text is not None
            urls = line.findall(text or "")
            ours = [url for url in urls if is_same(url, base)]
            for url in ours or urls[:1]:
                seen = True
                yield address(shown, self.field, url, base, self.client)
            for entry in entries(text or ""):
                if is_same(entry.get(self.field) or places.env.get(self.base, ""), base):
                    yield from self._asked(entry, shown, places)
                if self.field in entry and is_same(entry[self.field], base):
                    yield from self.keys(entry, shown, places, needs_key)
        if not self.base and not seen:
            shown = places.shown(self.paths(places)[0])
            what = f"no {self.field} in {shown}" if found else f"no {shown}"
            message = f"there is {what}: {self.title} does not ask krouter."
            yield fault("file", message, f"krouter env {self.client}")

    def _asked(self, entry: Entry, shown: str, places: Places) -> Iterator[Asked]:
        for name, variable in self.models.items():
            if name in entry and not places.env.get(variable):
                yield Asked(name, entry[name].removeprefix("openai/"), shown)


def _aiders(entry: Entry, shown: str, places: Places, needs_key: bool) -> Iterator[Told]:
    """The variable's is looked at with the other variables."""
    if places.env.get("OPENAI_API_BASE"):
        return
    if key := places.env.get("OPENAI_API_KEY"):
        yield Own("OPENAI_API_KEY", key)
    elif key := entry.get("openai-api-key"):
        yield Own("openai-api-key", key, f"Change it in {shown}.")
    else:
        message = (
            f'is not set: aider wants one, if only "none", with the openai-api-base of {shown}.'
        )
        yield fault("OPENAI_API_KEY", message, "krouter env aider")


def _llms(entry: Entry, shown: str, places: Places, needs_key: bool) -> Iterator[Told]:
    name = entry.get("api_key_name")
    if not name:
        if needs_key:
            hint = "Add api_key_name: krouter to the entry, and store the key: llm keys set krouter"
            yield unkeyed("api_key_name", shown, "llm", hint)
        return
    store, hint = places.llm.with_name("keys.json"), f"llm keys set {name}"
    try:
        stored = read(store, json.loads)
    except Unreadable as why:
        yield fault("file", f"{places.shown(store)} {why}")
        return
    key = stored.get(name) if isinstance(stored, dict) else None
    if isinstance(key, str) and key:
        yield Own(f"{name} in {places.shown(store)}", key, hint)
    elif key := places.env.get("OPENAI_API_KEY"):
        yield Own("OPENAI_API_KEY", key, hint)
    else:
        message = f"{places.shown(store)} holds no key {name!r}, without which llm does not ask."
        yield fault("api_key_name", message, hint)


_SECRET = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([\w.-]+)\s*\}\}")


def _continues(entry: Entry, shown: str, places: Places, needs_key: bool) -> Iterator[Told]:
    given = entry.get("apiKey", "")
    if not given:
        if needs_key:
            hint = "Add apiKey to the entry: krouter env continue"
            yield unkeyed("apiKey", shown, "Continue", hint)
        return
    found = _SECRET.search(given)
    if found is None:
        yield Own("apiKey", given, f"Change it in {shown}.")
        return
    own = places.continue_.with_name(".env")
    known = dict(places.env)
    for path in (places.cwd / ".env", places.cwd / ".continue" / ".env", own):
        known |= dotenv(path)
    if key := known.get(found[1]):
        yield Own(found[1], key, f"Change it in {places.shown(own)}.")
    elif needs_key:
        message = f"{shown} reads the key from {found[1]}, which is not in {places.shown(own)}."
        yield fault("apiKey", message, "krouter env continue")


YAMLS = (
    Yaml(
        "aider",
        "aider",
        lambda places: places.aiders,
        "openai-api-base",
        {
            "model": "AIDER_MODEL",
            "weak-model": "AIDER_WEAK_MODEL",
            "editor-model": "AIDER_EDITOR_MODEL",
        },
        _aiders,
        base="OPENAI_API_BASE",
    ),
    Yaml("llm", "llm", lambda places: [places.llm], "api_base", {"model_name": ""}, _llms),
    Yaml(
        "continue",
        "Continue",
        lambda places: [places.continue_],
        "apiBase",
        {"model": ""},
        _continues,
    ),
)
