"""`POST /api/providers/NAME/test`: whether an account works, found out with one small request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict

from krouter.accounts import Account
from krouter.adapter import Call
from krouter.board import Board
from krouter.body import Body
from krouter.dialects import DIALECTS
from krouter.naming import entries
from krouter.providers import Provider
from krouter.router import Router
from krouter.serve.admin import Exact, read_json
from krouter.serve.models import KEY
from krouter.serve.settingsapi import provider_named
from krouter.world import World

SECONDS = 30.0
"""How long the provider has."""
QUESTION = "Reply with the word OK."
TOKENS = 16


class Tested(BaseModel):
    """Which account is asked, and which of the provider's models, by its own name for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    account: Exact
    model: Exact | None = None


def add_tests(app: FastAPI, router: Router) -> None:
    """Small real requests, which are booked as any other."""

    @app.post("/api/providers/{name}/test")
    async def test(name: str, request: Request) -> dict[str, Any]:
        told, world = await read_json(request, Tested), router.world
        provider = provider_named(name, world)
        account = _account(told.account, provider, world)
        await asyncio.to_thread(world.catalog.warm_up)
        model = told.model or cheapest(provider, world)
        if model is None:
            message = f"$.model: required field is missing: no model of {provider.name} is known."
            raise HTTPException(400, message)
        key = request.scope.get(KEY)
        call = small_call(provider, model, key.name if key else "")
        return await asked(call, provider, account, router)


def _account(name: str, provider: Provider, world: World) -> Account:
    """Raises HTTPException."""
    known = world.accounts.get(provider.name, ())
    found = next((account for account in known if account.name == name), None)
    if found is None:
        listed = ", ".join(account.name for account in known) or "none"
        message = f"unknown account {name[:100]!r}: {provider.name} has {listed}."
        raise HTTPException(400, f"$.account: {message}")
    return found


def cheapest(provider: Provider, world: World) -> str | None:
    """The cheapest model of a provider that combos name, else that is known at all."""
    split = (world.registry.split(name) for name in entries(world.combos))
    named = [model for found, model in split if found is provider]
    return _cheapest(named or world.catalog.names(provider), provider, world)


def _cheapest(models: Iterable[str], provider: Provider, world: World) -> str | None:
    def price(model: str) -> tuple[bool, float]:
        known = world.catalog.facts(provider, model).prices
        if known.input is None or known.output is None:
            return True, 0.0
        return False, known.input + known.output

    return min(models, key=price, default=None)


def small_call(provider: Provider, model: str, caller: str) -> Call:
    """The least that there is to ask, in a dialect that the provider speaks if possible."""
    spoken = provider.speaks
    dialect = "messages" if "messages" in spoken and "chat" not in spoken else "chat"
    name = f"{provider.name}/{model}"
    turn = {"role": "user", "content": QUESTION}
    body = {"model": name, "messages": [turn], "max_tokens": TOKENS, "stream": False}
    raw = json.dumps(body).encode()
    parsed = Body.parse(raw)
    return Call(DIALECTS[dialect], parsed, [], name, False, total=SECONDS, caller=caller)


async def asked(call: Call, provider: Provider, account: Account, router: Router) -> dict[str, Any]:
    """What came of it. Locks neither stop it nor come of it, but one of a refused credential ends
    where it is taken now."""
    world, loop = router.world, asyncio.get_running_loop()
    began = loop.time()
    answer = await router.answer(call, _alone(account, world))
    seconds = loop.time() - began
    await answer.close()
    ok = 200 <= answer.status < 300
    if ok:
        world.board.signed_in(provider.name, account.name)
    route = answer.route
    return {
        "ok": ok,
        "status": answer.status,
        "message": "" if ok else _message(answer.body),
        "seconds": round(seconds, 3),
        "model": call.model,
        "cost": route.as_json()["cost"] if route else None,
        "route": route.id if route else None,
    }


def _alone(account: Account, world: World) -> World:
    """A world in which there is no other account, no alias and no lock."""
    return replace(
        world,
        settings=world.settings.model_copy(update={"aliases": {}}),
        accounts={**world.accounts, account.provider: (account,)},
        board=Board(world.board.now),
    )


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
