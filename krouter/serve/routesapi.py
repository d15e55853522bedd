"""`/api/routes`: what happened to requests, from memory and from the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from krouter.ledger_filter import Filter, LedgerError, condition
from krouter.ledger_reader import LedgerReader
from krouter.ledger_records import newest
from krouter.load import House
from krouter.route import Attempt, End, Route

MOST = 1000


def add_routes(app: FastAPI, house: House) -> None:
    """The last requests, and each by its id."""

    @app.get("/api/routes")
    async def routes(
        limit: int = 50,
        before: str | None = None,
        combo: str | None = None,
        outcome: str | None = None,
        asked: str | None = None,
        account: str | None = None,
    ) -> list[dict[str, Any]]:
        wanted = Filter(
            combo=combo, status=outcome, asked=asked, account=account, before=before or None
        )
        _check(wanted)
        found = await _newest(house, wanted, max(1, min(limit, MOST)))
        return [route.as_json() for route in found]

    @app.get("/api/routes/{route_id}")
    async def route(route_id: str) -> dict[str, Any]:
        for candidate in reversed(house.router.routes):
            if candidate.id == route_id:
                return candidate.as_json()
        kept = await asyncio.to_thread(_kept, house, route_id)
        if kept is None:
            raise HTTPException(404, f"No route {route_id!r} is remembered.")
        return kept.as_json()


def _check(wanted: Filter) -> None:
    """Raises HTTPException for what no request can be."""
    try:
        condition(wanted)
    except LedgerError as error:
        raise HTTPException(400, f"outcome: {error}") from None


async def _newest(house: House, wanted: Filter, limit: int) -> list[Route]:
    """Newest first. One that is in memory is as it is now; the ledger has it a moment later."""
    found = {route.id: route for route in _remembered(house, wanted, limit)}
    if len(found) < limit:
        for route in await asyncio.to_thread(_recorded, house, wanted, limit):
            found.setdefault(route.id, route)
    return [found[each] for each in sorted(found, reverse=True)[:limit]]


def _remembered(house: House, wanted: Filter, limit: int) -> Iterator[Route]:
    for route in reversed(house.router.routes):
        if limit and is_meant(route, wanted):
            limit -= 1
            yield route


def _recorded(house: House, wanted: Filter, limit: int) -> list[Route]:
    """Of a ledger that cannot be read nothing; `/health` says why."""
    if house.ledger is None:
        return []
    try:
        return newest(LedgerReader(house.paths.ledger), wanted, limit)
    except LedgerError:
        return []


def _kept(house: House, route_id: str) -> Route | None:
    if house.ledger is None:
        return None
    try:
        return LedgerReader(house.paths.ledger).route(route_id)
    except LedgerError:
        return None


def is_meant(route: Route, wanted: Filter) -> bool:
    """Whether a route in memory passes, as one in the ledger would."""
    return (
        wanted.combo in (None, route.combo)
        and wanted.asked in (None, route.asked)
        and (wanted.before is None or route.id < wanted.before)
        and (wanted.account is None or any(_is_by(each, wanted) for each in route.attempts))
        and (wanted.status is None or _has_come_to(route, wanted.status))
    )


def _is_by(attempt: Attempt, wanted: Filter) -> bool:
    return wanted.account in (attempt.account, f"{attempt.provider}/{attempt.account}")


def _has_come_to(route: Route, status: str) -> bool:
    if status == "ok":
        return route.outcome == End.ANSWERED
    if status == "failed":
        return route.outcome not in (End.ANSWERED, End.UNDER_WAY)
    if status.isdigit():
        return int(status) in (route.status, *(each.status for each in route.attempts))
    ends = (*(each.outcome for each in route.attempts), *(each.reason for each in route.skips))
    return status in (route.outcome, *ends, *(voice.outcome for voice in route.voices))
