"""`/v1/models`: every name that can be asked for, in OpenAI's list shape or in Anthropic's, and
`/v1beta/models`, in Google's.

Beside the fields of the first two shape stands what is known of a model: `context_window` and
`max_output_tokens`, in a combo the smallest of its entries, `largest_context_window`, and `reads`:
for each kind of attachment, whether any entry reads it. What is not known is null. `available` is
whether any entry has an account.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from krouter.catalog import MEDIA, Facts, Known, with_entry
from krouter.combos import LEVELS, Combo, reference
from krouter.dialects.gemini import STREAMED, WHOLE
from krouter.keys import Key
from krouter.naming import Destination, UnknownModel, entries, resolve
from krouter.router import Router
from krouter.serve.limits import check_model, is_allowed, named_models
from krouter.world import World

PAGE = 20
"""Names on a page of Anthropic's shape, unless `limit` says otherwise."""
GOOGLES_PAGE = 50
"""The same of Google's, for `pageSize`."""
MOST = 1000


KEY = "krouter.key"
"""Where the scope of a request has the caller's key."""

Shape = Callable[[str, Destination, World], dict[str, Any]]
"""What is told of a name, and of what it stands for."""


def add_models(app: FastAPI, router: Router) -> None:
    """The list, and each model by its name."""

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        build = anthropic_list if is_anthropic(request) else openai_list
        query, key = dict(request.query_params), request.scope.get(KEY)
        return await asyncio.to_thread(build, router.world, query, key)

    @app.get("/v1/models/{name:path}")
    async def model(name: str, request: Request) -> Response:
        shape = _anthropic if is_anthropic(request) else _openai
        return await one(name, shape, "/v1/models", request.scope.get(KEY))

    @app.get("/v1beta/models")
    async def googles(request: Request) -> dict[str, Any]:
        query = dict(request.query_params)
        return await asyncio.to_thread(google_list, router.world, query, request.scope.get(KEY))

    @app.get("/v1beta/models/{name:path}")
    async def google(name: str, request: Request) -> Response:
        return await one(name, _google, "/v1beta/models", request.scope.get(KEY))

    async def one(name: str, shape: Shape, listed: str, key: Key | None) -> Response:
        world = router.world
        if key is not None:
            check_model(key, name, world)
        try:
            destination = resolve(name, world)
        except UnknownModel as unknown:
            message = f"{unknown} GET {listed} lists combos, aliases and the models they name."
            raise HTTPException(404, message) from None
        return JSONResponse(await asyncio.to_thread(shape, name, destination, world))


def is_anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers


def openai_list(world: World, query: dict[str, str], key: Key | None = None) -> dict[str, Any]:
    """All names at once that `key` may ask for, combos first, then aliases and the models that
    combos name."""
    known = _resolved(_all(world, key), world, key)
    return {"object": "list", "data": [_openai(*each, world) for each in known]}


def google_list(world: World, query: dict[str, str], key: Key | None = None) -> dict[str, Any]:
    """A page of the same names. `pageToken` is the last name of the page before. Raises
    HTTPException for a page that cannot be."""
    names = [name for name, _ in _resolved(dict.fromkeys(_all(world, key)), world, key)]
    size, after = query.get("pageSize") or "0", query.get("pageToken")
    if not (size.isascii() and size.isdecimal()):
        raise HTTPException(400, "pageSize must be a whole number.")
    most = min(int(size[:9]), MOST) or GOOGLES_PAGE
    rest = names[_place(after, names) + 1 :] if after else names
    page = {"models": [_google(*each, world) for each in _resolved(rest[:most], world)]}
    return page | ({"nextPageToken": rest[most - 1]} if len(rest) > most else {})


def _all(world: World, key: Key | None) -> list[str]:
    listed = [*world.combos, *_aliases(world), *entries(world.combos)]
    return [*listed, *(name for name in named_models(key) if name not in listed)]


def anthropic_list(world: World, query: dict[str, str], key: Key | None = None) -> dict[str, Any]:
    """A page of combos and aliases, each combo as `claude-NAME` too, since Claude Code lists no
    other names. Raises HTTPException for a page that cannot be."""
    names = [*world.combos, *_aliases(world), *(f"claude-{name}" for name in world.combos)]
    known = [name for name, _ in _resolved(dict.fromkeys(names), world, key)]
    page = paged(known, query)
    data = [_anthropic(*each, world) for each in _resolved(page.names, world)]
    ends = (page.names[0], page.names[-1]) if page.names else (None, None)
    return {"data": data, "has_more": page.has_more, "first_id": ends[0], "last_id": ends[1]}


class Page(NamedTuple):
    names: list[str]
    has_more: bool
    """Whether others follow, in the direction that was asked for."""


def paged(names: list[str], query: dict[str, str]) -> Page:
    """Those that `limit`, `after_id` and `before_id` ask for. Raises HTTPException."""
    limit = _limit(query.get("limit"))
    if before := query.get("before_id"):
        ahead = names[: _place(before, names)]
        return Page(ahead[-limit:], len(ahead) > limit)
    after = query.get("after_id")
    rest = names[_place(after, names) + 1 :] if after else names
    return Page(rest[:limit], len(rest) > limit)


def _limit(given: str | None) -> int:
    if given is None:
        return PAGE
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= MOST):
        raise HTTPException(400, f"limit must be a whole number from 1 to {MOST}.")
    return int(given[:9])


def _place(name: str, names: list[str]) -> int:
    if name not in names:
        raise HTTPException(400, f"No model {name[:100]!r} is on this list.")
    return names.index(name)


def _aliases(world: World) -> Iterator[str]:
    return (name for name in world.settings.aliases if not set(name) & set("*?["))


def _resolved(
    names: Iterable[str], world: World, key: Key | None = None
) -> Iterator[tuple[str, Destination]]:
    """What the names stand for, of those that `key` may ask for."""
    for name in names:
        try:
            destination = resolve(name, world)
        except UnknownModel:  # an alias of nothing, or an entry of no known provider
            continue
        if key is None or is_allowed(key, name, destination, world):
            yield name, destination


def _openai(name: str, destination: Destination, world: World) -> dict[str, Any]:
    owner = destination.combo.models[0].model.partition("/")[0] if destination.direct else "combo"
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": owner,
        **known(destination.combo, world),
    }


def _anthropic(name: str, destination: Destination, world: World) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **known(destination.combo, world),
    }


def _google(name: str, destination: Destination, world: World) -> dict[str, Any]:
    """A limit that is not known is left out: Google's clients take only numbers."""
    facts = known(destination.combo, world)
    limits = {"inputTokenLimit": "context_window", "outputTokenLimit": "max_output_tokens"}
    return {
        "name": f"models/{name}",
        "version": "krouter",
        "displayName": name,
        **{limit: facts[told] for limit, told in limits.items() if facts[told] is not None},
        "supportedGenerationMethods": [WHOLE, STREAMED],
    }


def known(combo: Combo, world: World) -> dict[str, Any]:
    """What is known of a combo, nested ones included."""
    facts = list(_facts(combo, world, 1))
    windows = [each.window for each in facts if each.window]
    outputs = [each.output for each in facts if each.output]
    return {
        "context_window": min(windows, default=None),
        "largest_context_window": max(windows, default=None),
        "max_output_tokens": min(outputs, default=None),
        "reads": {medium: _reads(each.reads[medium] for each in facts) for medium in MEDIA},
        "available": _available(combo, world, 1),
    }


def _available(combo: Combo, world: World, level: int) -> bool:
    """Whether any entry has an account whose credential is there."""
    for entry in combo.models:
        name = reference(entry.model)
        provider, _ = world.registry.split(entry.model)
        if name is not None and name in world.combos:
            if level < LEVELS and _available(world.combos[name], world, level + 1):
                return True
        elif name is None and provider is not None:
            for account in world.accounts.get(provider.name, ()):
                if account.key is None or world.secrets.present(account.key) is None:
                    return True
    return False


def _facts(combo: Combo, world: World, level: int) -> Iterator[Facts]:
    for entry in combo.models:
        name = reference(entry.model)
        provider, model = world.registry.split(entry.model)
        if name is not None and name in world.combos and level < LEVELS:
            yield from _facts(world.combos[name], world, level + 1)
        elif name is None and provider is not None:
            yield with_entry(world.catalog.facts(provider, model), entry)


def _reads(answers: Iterable[Known]) -> bool | None:
    found = set(answers)
    if Known.YES in found:
        return True
    return False if found == {Known.NO} else None
