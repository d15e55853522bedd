"""`POST /api/whatif`: what would become of a request now, if this or that failed.

The very code that answers requests is run, in virtual time and over scripted providers, with the
locks, rotations, health and quotas of this moment. Nothing is sent, and nothing comes of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from krouter.adapter import load_faults
from krouter.load import House
from krouter.naming import UnknownModel, resolve
from krouter.present import Present
from krouter.problems import did_you_mean
from krouter.rehearsal import Came, Rehearsal, Seen, failing, split_name
from krouter.route import Attempt, Route, Skipped
from krouter.router import Router
from krouter.script import UnknownFault
from krouter.serve.admin import read_json
from krouter.serve.touched import boxes
from krouter.world import World

LATE_SECONDS = 700.0
"""What calls that run on after the caller has its answer are given to end."""

Dialect = Literal["chat", "messages", "responses", "gemini"]
Need = Literal["image", "pdf", "audio", "video", "tools", "json"]

DIALECTS: dict[Dialect, str] = {
    "chat": "OpenAI chat",
    "messages": "Anthropic messages",
    "responses": "OpenAI responses",
    "gemini": "Google Gemini",
}
NEEDS: dict[Need, str] = {
    "image": "an image",
    "pdf": "a PDF",
    "audio": "audio",
    "video": "a video",
    "tools": "tools",
    "json": "a JSON schema",
}
OFTEN = "529 429 quota 402 401 timeout reset empty stall cut 404 image too-large".split()
"""The faults that are met most, which are told first."""


class Question(BaseModel):
    """A request and what fails: `body` is one as a caller would send it, or else one is made up
    that carries or asks for the `needs`. `fail` names entries, providers or `provider@account`,
    each with its fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    combo: Annotated[str, Field(min_length=1)]
    needs: list[Need] = Field(default_factory=list)
    body: dict[str, Any] | None = None
    dialect: Dialect = "chat"
    stream: bool = False
    fail: dict[str, str | int] = Field(default_factory=dict)

    @property
    def raw(self) -> bytes | None:
        """The body as it is sent, to this combo."""
        if self.body is None:
            return None
        own = {} if self.dialect == "gemini" else {"model": self.combo, "stream": self.stream}
        return json.dumps({**self.body, **own}).encode()


def add_whatif(app: FastAPI, house: House) -> None:
    """Rehearsals of single requests, and the faults there are for them."""
    alone = asyncio.Lock()

    @app.get("/api/faults")
    async def faults() -> list[dict[str, str]]:
        return told_faults()

    @app.get("/api/whatif")
    async def choices() -> dict[str, list[dict[str, str]]]:
        return {"needs": _named(NEEDS), "dialects": _named(DIALECTS), "faults": told_faults()}

    @app.post("/api/whatif")
    async def whatif(request: Request) -> dict[str, Any]:
        most = house.router.world.settings.server.body_limit << 20
        question = await read_json(request, Question, most)
        check(question, house.router.world)
        async with alone:
            world = house.router.world
            present = Present.of(world)
            return await asyncio.to_thread(answer, question, world, present)


def told_faults() -> list[dict[str, str]]:
    """The faults that there are, those that are met most first."""
    faults = {kind.name: kind.about for kind in load_faults().values()}
    often = {name: faults[name] for name in OFTEN}
    return _named({**often, **faults})


def _named(titles: Mapping[Any, str]) -> list[dict[str, str]]:
    return [{"name": name, "title": title} for name, title in titles.items()]


def check(question: Question, world: World) -> None:
    """Raises HTTPException for a name or a fault that is none."""
    try:
        resolve(question.combo, world)
    except UnknownModel as unknown:
        raise HTTPException(404, str(unknown)) from None
    for name in question.fail:
        alias = split_name(name)[0]
        if name != "*" and world.registry.find(alias) is None:
            hint = did_you_mean(alias, world.registry.names_with_aliases())
            raise _invalid(f"$.fail: no provider {alias[:100]!r} is known. {hint}".strip())
    try:
        failing(world, question.fail)
    except UnknownFault as unknown:
        raise _invalid(f"$.fail: {unknown} GET /api/faults lists them.") from None


def _invalid(message: str) -> HTTPException:
    return HTTPException(400, message)


def answer(question: Question, world: World, present: Present) -> dict[str, Any]:
    """What would become of it, as plain data; times are in seconds from its beginning."""

    def router_of(opened: World) -> Router:
        present.put_into(opened)
        return Router(opened)

    director = failing(world, question.fail)
    with Rehearsal(world, director, router_of=router_of) as rehearsal:
        seen = rehearsal.ask(
            question.combo,
            needs=question.needs,
            dialect=question.dialect,
            stream=question.stream,
            body=question.raw,
        )
        if seen.route is not None and seen.route.lingers:
            rehearsal.wait(LATE_SECONDS)
    return told(seen, world)


def told(seen: Seen, world: World) -> dict[str, Any]:
    route = seen.route
    reply = {
        "status": seen.status,
        "from": seen.served,
        "whole": seen.came is Came.WHOLE,
        "came": str(seen.came),
        "message": seen.message,
    }
    return {
        "moves": [_move(route, step) for step in route.steps] if route else [],
        "reply": reply,
        "waited": seen.seconds,
        "first": seen.first,
        "cost": seen.cost,
        "assumed": _assumed(route, world) if route else [],
        "route": route.as_json() if route else None,
    }


def _move(route: Route, step: Attempt | Skipped) -> dict[str, Any]:
    common = {
        "entry": step.entry,
        "account": step.account,
        "boxes": boxes(route, step.places),
        "role": route.voices[step.voice - 1].role if step.voice else "",
    }
    if isinstance(step, Skipped):
        why = f"{step.reason} ({step.detail})" if step.detail else str(step.reason)
        blank = {"status": None, "began": None, "ended": None}
        return {**common, "outcome": "skipped", "why": why, **blank}
    ended = None if step.ended is None else step.ended - route.began
    lock = f"{step.locked} locked for {step.lock:.0f} s" if step.lock else ""
    how = " ".join(filter(None, (str(step.status or ""), str(step.outcome))))
    why = "; ".join(filter(None, (how, step.detail, lock)))
    timed = {"status": step.status, "began": step.began - route.began, "ended": ended}
    return {**common, "outcome": str(step.outcome), "why": why, **timed}


def _assumed(route: Route, world: World) -> list[str]:
    """The providers that were taken to have an account, and have none."""
    asked = dict.fromkeys(attempt.provider for attempt in route.attempts)
    return [name for name in asked if not world.accounts.get(name)]
