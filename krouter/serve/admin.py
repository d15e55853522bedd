"""The admin calls under `/api/`: who may make them, and those about quota."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from krouter.combos import Combo
from krouter.pool import Pool
from krouter.problems import did_you_mean, problems_of
from krouter.quota import Note, Poll, is_spent
from krouter.reporter import Balance, Figure, Report, Window
from krouter.resets import moment
from krouter.router import Router
from krouter.serve.intake import (
    CallerGone,
    Refusal,
    is_own_page,
    media_type,
    read_body,
    request_headers,
)
from krouter.settings import Text
from krouter.wire import Headers
from krouter.world import World

PREFIX = "/api/"
MOST_BYTES = 1 << 20


def check_site(headers: Headers) -> None:
    """Admin calls come from programs and from krouter's own pages: no page of another site makes
    one, even where no key is needed. Raises Refusal."""
    if not is_own_page(headers):
        raise Refusal(403, "A page of another site may not call krouter's admin API.")


def check_type(method: str, headers: Headers) -> None:
    """A form, which any page may send, is none. Raises Refusal."""
    kind = media_type(dict(headers))
    if method in ("POST", "PUT", "PATCH") and kind != "application/json":
        shown = f"not {kind}" if kind else "which Content-Type must say"
        raise Refusal(415, f"The body must be application/json, {shown}.")


def _text(value: str) -> str:
    if value.strip() != value:
        raise ValueError("must not begin or end with a blank")
    return value


Exact = Annotated[Text, AfterValidator(_text)]


class Reported(BaseModel):
    """What somebody tells of the quota of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    provider: Exact
    account: Exact | None = None
    model: Exact
    remaining: float = Field(ge=0, le=1)
    resets_at: int | float | str | None = None


def add_quota(app: FastAPI, router: Router, pool: Pool) -> None:
    """What is left of every account, and the way to tell krouter of it."""

    @app.get("/api/quota")
    async def quota() -> dict[str, Any]:
        return shown(pool)

    @app.post("/api/quota")
    async def report(request: Request) -> dict[str, Any]:
        told = await read_json(request, Reported)
        now = pool.now()
        provider, account = _account(told, router.world)
        resets_at = None if told.resets_at is None else moment(told.resets_at, now)
        if told.resets_at is not None and resets_at is None:
            at = "must be a time to come, at most 32 days ahead"
            raise _invalid(f"$.resets_at: {at} (value {json.dumps(told.resets_at)}).")
        world = router.world
        figure = Figure(_model(told.model, provider, world), told.remaining, resets_at)
        pool.quota.note(provider, account, Report(figures=(figure,)), "reported")
        shown = _figure_json(Note(provider, account, figure, "reported", now), figure, now)
        return {**shown, "combos": _naming(provider, figure.model, world)}


M = TypeVar("M", bound=BaseModel)


async def read_json(request: Request, model: type[M], most: int = MOST_BYTES) -> M:
    """The body of an admin call, of `most` bytes. Raises HTTPException that says what of it is
    wrong."""
    return _parsed(await _body(request, most), model)


async def _body(request: Request, most: int) -> bytes:
    try:
        return await read_body(request.receive, request_headers(request.scope), most)
    except Refusal as refusal:
        larger = f"The body of this call has at most {most:,} bytes."
        message = larger if refusal.status == 413 else refusal.message
        raise HTTPException(refusal.status, message) from None
    except CallerGone:
        raise HTTPException(400, "The request did not come whole.") from None


def _parsed(raw: bytes, model: type[M]) -> M:
    try:
        return model.model_validate(json.loads(raw))
    except ValidationError as error:
        problems = problems_of(error, "", model)
        raise _invalid(" ".join(str(each).removeprefix(": ") for each in problems)) from None
    except (ValueError, RecursionError):
        raise _invalid("The body is not JSON.") from None


def _account(told: Reported, world: World) -> tuple[str, str]:
    """Provider and account by their names; one account need not be named."""
    provider = world.registry.find(told.provider)
    if provider is None:
        near = did_you_mean(told.provider, world.registry.names_with_aliases())
        raise _invalid(f"$.provider: unknown provider {told.provider!r}. {near}")
    names = [account.name for account in world.accounts.get(provider.name, ())]
    if told.account in names or (told.account is None and len(names) == 1):
        return provider.name, told.account or names[0]
    known = f"{provider.name} has {_listed(names)}"
    if told.account is not None:
        raise _invalid(f"$.account: unknown account {told.account!r}: {known}.")
    raise _invalid(f"$.account: required field is missing: {known}.")


def _model(told: str, provider: str, world: World) -> str:
    """The model by the provider's own name for it: who writes `glm/glm-5.1` means `glm-5.1`, unless
    an entry names a model of the provider that is really called so."""
    prefix, _, model = told.partition("/")
    found = world.registry.find(prefix) if model else None
    if found is None or found.name != provider or _naming(provider, told, world):
        return told
    return model


def _naming(provider: str, model: str, world: World) -> list[str]:
    """The combos of which an entry names the model: those that its figure orders."""
    return [name for name, combo in world.combos.items() if _names(combo, provider, model, world)]


def _names(combo: Combo, provider: str, model: str, world: World) -> bool:
    for entry in combo.models:
        found, named = world.registry.split(entry.model)
        if found is not None and (found.name, named) == (provider, model):
            return True
    return False


def _listed(names: list[str]) -> str:
    return f"the accounts {', '.join(names)}" if names else "no account"


def _invalid(message: str) -> HTTPException:
    return HTTPException(400, message.strip())


def shown(pool: Pool) -> dict[str, Any]:
    """All that is known, as plain data; times are epoch seconds, ages seconds."""
    now = pool.now()
    notes = sorted(pool.quota.notes(), key=lambda note: (note.provider, note.account))
    return {
        "now": now,
        "figures": [_figure_json(n, n.item, now) for n in notes if isinstance(n.item, Figure)],
        "windows": [_window_json(n, n.item, now) for n in notes if isinstance(n.item, Window)],
        "balances": [_balance_json(n, n.item, now) for n in notes if isinstance(n.item, Balance)],
        "failing": [
            _poll_json(provider, account, poll)
            for (provider, account), poll in sorted(pool.quota.polls.items())
            if poll.failures
        ],
    }


def _named(note: Note) -> dict[str, Any]:
    return {"provider": note.provider, "account": note.account}


def _told(note: Note, now: float) -> dict[str, Any]:
    return {"source": note.source, "age": max(0.0, round(now - note.at, 3))}


def _figure_json(note: Note, figure: Figure, now: float) -> dict[str, Any]:
    left = {"remaining": figure.remaining, "resets_at": figure.resets_at}
    spent = {"spent": is_spent(figure)}
    return {**_named(note), "model": figure.model, **left, **spent, **_told(note, now)}


def _window_json(note: Note, window: Window, now: float) -> dict[str, Any]:
    left = {"remaining": window.remaining, "resets_at": window.resets_at}
    names = {"window": window.name, "model": window.model or None}
    return {**_named(note), **names, **left, **_told(note, now)}


def _balance_json(note: Note, balance: Balance, now: float) -> dict[str, Any]:
    money = {"amount": balance.amount, "of": balance.of, "currency": balance.currency}
    return {**_named(note), "balance": balance.name, **money, **_told(note, now)}


def _poll_json(provider: str, account: str, poll: Poll) -> dict[str, Any]:
    told = {"problem": poll.problem, "failures": poll.failures, "next_at": poll.next_at}
    return {"provider": provider, "account": account, **told}
