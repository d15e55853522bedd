"""`/api/routes`: what happened to requests, from memory and from the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from krouter.ledger_filter import Filter, LedgerError, NotRecorded, condition
from krouter.ledger_reader import LedgerReader
from krouter.ledger_records import newest
from krouter.load import House
from krouter.route import Attempt, End, Route, plain

MOST = 1000
KNOWN = frozenset(
    ("limit", "before", "combo", "asked", "account", "outcome", "caller", "model", "since", "until")
)
KEY_PARAMETER = "key"
"""Where Google's clients put a key, whatever they ask for."""
BROKEN = "x-krouter-ledger"
"""The header that says why the ledger could not be read, where that is so."""


def add_routes(app: FastAPI, house: House) -> None:
    """The last requests, and each by its id."""

    @app.get("/api/routes")
    async def routes(
        request: Request,
        response: Response,
        limit: int = 50,
        before: str | None = None,
        combo: str | None = None,
        outcome: str | None = None,
        asked: str | None = None,
        account: str | None = None,
        caller: str | None = None,
        model: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[dict[str, Any]]:
        _check_query(request.query_params)
        wanted = Filter(
            combo=combo,
            caller=caller,
            model=model,
            status=outcome,
            since=since,
            until=until,
            asked=asked,
            account=account,
            before=before or None,
        )
        _check(wanted)
        found, trouble = await _newest(house, wanted, max(1, min(limit, MOST)))
        if trouble:
            response.headers[BROKEN] = plain(trouble)
        return [route.as_json() for route in found]

    @app.get("/api/routes/{route_id}")
    async def route(route_id: str) -> dict[str, Any]:
        for candidate in reversed(house.router.routes):
            if candidate.id == route_id:
                return candidate.as_json()
        try:
            kept = await asyncio.to_thread(_kept, house, route_id)
        except LedgerError as error:
            message = f"No route {route_id!r} is in memory, and the ledger cannot be read: {error}"
            raise HTTPException(503, message) from None
        if kept is None:
            raise HTTPException(404, f"No route {route_id!r} is remembered.")
        return kept.as_json()


def _check_query(given: Iterable[str]) -> None:
    """Raises HTTPException for a filter that would pass unheard."""
    unknown = sorted({name[:100] for name in given if name not in (*KNOWN, KEY_PARAMETER)})
    if unknown:
        message = f"Unknown in the query: {', '.join(unknown)}. Known: {', '.join(sorted(KNOWN))}."
        raise HTTPException(400, message)


def _check(wanted: Filter) -> None:
    """Raises HTTPException for what no request can be."""
    try:
        condition(wanted)
    except LedgerError as error:
        raise HTTPException(400, f"outcome: {error}") from None


async def _newest(house: House, wanted: Filter, limit: int) -> tuple[list[Route], str]:
    """Newest first, and why those of the ledger are missing, where it cannot be read. One that is
    in memory is as it is now; the ledger has it a moment later."""
    found = {route.id: route for route in _remembered(house, wanted, limit)}
    trouble = ""
    if len(found) < limit:
        try:
            for route in await asyncio.to_thread(_recorded, house, wanted, limit):
                found.setdefault(route.id, route)
        except LedgerError as error:
            trouble = str(error)
    return [found[each] for each in sorted(found, reverse=True)[:limit]], trouble


def _remembered(house: House, wanted: Filter, limit: int) -> Iterator[Route]:
    for route in reversed(house.router.routes):
        if limit and is_meant(route, wanted):
            limit -= 1
            yield route


def _recorded(house: House, wanted: Filter, limit: int) -> list[Route]:
    """Raises LedgerError."""
    if house.ledger is None:
        return []
    with suppress(NotRecorded):
        return newest(LedgerReader(house.paths.ledger), wanted, limit)
    return []


def _kept(house: House, route_id: str) -> Route | None:
    """Raises LedgerError."""
    if house.ledger is None:
        return None
    with suppress(NotRecorded):
        return LedgerReader(house.paths.ledger).route(route_id)
    return None


def is_meant(route: Route, wanted: Filter) -> bool:
    """Whether a route in memory passes, as one in the ledger would."""
    return (
        wanted.combo in (None, route.combo)
        and wanted.asked in (None, route.asked)
        and wanted.caller in (None, route.caller)
        and (wanted.before is None or route.id < wanted.before)
        and (wanted.since is None or route.began >= wanted.since)
        and (wanted.until is None or route.began < wanted.until)
        and (wanted.model is None or _has_tried(route, wanted.model))
        and (wanted.account is None or any(_is_by(each, wanted) for each in route.attempts))
        and (wanted.status is None or _has_come_to(route, wanted.status))
    )


def _has_tried(route: Route, pattern: str) -> bool:
    """As SQLite's GLOB has it."""
    names = (route.served, *(attempt.entry for attempt in route.attempts))
    return any(fnmatchcase(name, pattern.replace("[^", "[!")) for name in names)


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
