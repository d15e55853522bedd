"""The ASGI app: hot endpoints by path, everything else through FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match

from krouter._version import __version__
from krouter.answer import error_answer
from krouter.counting import TokenCounts
from krouter.dialects import DIALECTS, ENDPOINTS
from krouter.dialects.base import Dialect
from krouter.dialects.gemini import names_method
from krouter.dialects.messages import MESSAGES
from krouter.dialects.responses import RESPONSES
from krouter.load import House
from krouter.metrics import Metrics
from krouter.serve.admin import PREFIX, add_quota, check_site, check_type
from krouter.serve.combosapi import add_combos
from krouter.serve.console import Console, add_log
from krouter.serve.guard import Guard
from krouter.serve.hot import Endpoint, send_refusal, send_whole
from krouter.serve.intake import (
    Receive,
    Refusal,
    Scope,
    Send,
    request_headers,
    with_key_of,
)
from krouter.serve.live import HEAD, Live, add_live
from krouter.serve.models import KEY, add_models
from krouter.serve.pages import INDEX, add_files, answer, is_page, read_pages, wants_pages
from krouter.serve.refused import failed, final, refused
from krouter.serve.routesapi import add_routes
from krouter.serve.settingsapi import add_settings
from krouter.serve.testapi import add_tests
from krouter.serve.view import add_view
from krouter.serve.whole import WHOLE, RawHeaders
from krouter.wire import Headers

COUNTS: dict[str, Dialect] = {
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/responses/input_tokens": RESPONSES,
}
GOOGLES = "/v1beta/"
"""Where Google's clients ask, who may put the key into the query."""
OPEN_PATHS = ("/health",)
"""Paths that, with those of the pages, never ask for a key."""


More = Callable[[FastAPI, House], None]
"""Adds endpoints of a room that stands above this one."""


class App:
    """Routes by path before FastAPI sees a request, for the endpoints where time counts."""

    def __init__(
        self,
        house: House,
        guard: Guard,
        problems: Callable[[], list[str]],
        metrics: Metrics,
        console: Console,
        more: Iterable[More] = (),
    ) -> None:
        router = house.router
        self.router = router
        self.guard = guard
        self.live = Live(house, console, problems)
        self.rest = build_rest(house, guard, problems, metrics, console, self.live)
        for add in more:
            add(self.rest, house)
        self._hot = {
            path: Endpoint(dialect, router, guard, self._limit)
            for dialect in ENDPOINTS
            for path in (*dialect.paths, *filter(None, [dialect.prefix]))
        }
        counts = TokenCounts(router)
        for path, dialect in COUNTS.items():
            self._hot[path] = Endpoint(dialect, counts, guard, self._limit, free=True)
        self._prefixes = tuple(each.prefix for each in DIALECTS.values() if each.prefix)
        origins = router.world.settings.server.cors_origins
        self._has_cors = bool(origins)
        if origins:
            self._serve: Any = CORSMiddleware(
                self._dispatch, list(origins), allow_methods=["*"], allow_headers=["*"]
            )
        else:
            self._serve = self._dispatch

    def _endpoint(self, path: str) -> Endpoint | None:
        """Who takes a POST to `path`."""
        found = self._hot.get(path)
        if found is None and ":" in path and path.startswith(self._prefixes):
            return next(self._hot[each] for each in self._prefixes if path.startswith(each))
        return found

    def _methods(self, path: str) -> set[str]:
        """What a path takes; nothing where there is none."""
        if self._endpoint(path) is not None and (path in self._hot or names_method(path)):
            return {"POST"}
        scope = {"type": "http", "path": path, "method": "", "root_path": ""}
        routes = [each for each in self.rest.routes if each.matches(scope)[0] is not Match.NONE]
        found = {method for each in routes for method in getattr(each, "methods", ())}
        return found | ({"HEAD"} if "GET" in found else set())

    def refused(self, path: str, headers: RawHeaders, status: int, why: str) -> bytes:
        """The body of an error for a request that did not come whole."""
        given = request_headers({"headers": headers})
        return error_answer(dialect_of(path, given), status, why).body

    def _limit(self) -> int:
        return self.router.world.settings.server.body_limit << 20

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._has_cors and scope["type"] == "http":
            scope.pop(WHOLE, None)  # what is sent is given headers on its way
            headers = request_headers(scope)
            try:
                self.guard.check_host(headers)  # a rebound name is given no leave to ask
            except Refusal as refusal:
                await send_refusal(send, dialect_of(scope["path"], headers), refusal)
                return
        try:
            await self._serve(scope, receive, send)
        except (Exception, asyncio.CancelledError) as error:
            told = failed(dialect_of(scope["path"], request_headers(scope)), error)
            with suppress(OSError, RuntimeError):  # the reply has begun, and can only break off
                await send_whole(send, told)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.rest(scope, receive, send)
            return
        path: str = scope["path"]
        endpoint = self._hot.get(path)
        if endpoint is None:  # perhaps at a path that clients get wrong
            if path.startswith(("/v1/v1/", "/v1/v1beta/")):
                path = scope["path"] = path[3:]
            if path.startswith("/v1/models") and (names_method(path) or is_google(scope)):
                path = scope["path"] = f"/v1beta{path[3:]}"
            endpoint = self._endpoint(path)
        if endpoint is not None and scope["method"] == "POST":
            await endpoint(scope, receive, send)
            return
        await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.pop(WHOLE, None)
        headers = request_headers(scope)
        try:
            if ("upgrade", "websocket") in [(name, value.lower()) for name, value in headers]:
                raise Refusal(426, "krouter does not speak WebSocket: send a POST.")
            self._check(scope, headers)
        except Refusal as refusal:
            await send_refusal(send, dialect_of(scope["path"], headers), refusal)
            return
        if scope["method"] == "HEAD":  # the server keeps the body back
            scope = {**scope, "method": "GET", HEAD: True}
        await self.rest(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Who asks, from where, and how. Raises Refusal."""
        path, method = scope["path"], scope["method"]
        query = scope["query_string"].decode("latin-1") if path.startswith(GOOGLES) else ""
        if path in OPEN_PATHS or is_page(path, headers):
            self.guard.check_host(headers)
        else:
            key = scope[KEY] = self.guard.authorize(with_key_of(query, headers), scope)
            if key is not None and key.is_limited and not _is_for_callers(path):
                raise Refusal(
                    403,
                    f"The key {key.name!r} has limits, and so is for asking models alone: {path}"
                    " takes a key without limits.",
                    code="key_has_limits",
                )
        is_admin = path.startswith(PREFIX)
        if is_admin:
            check_site(headers)
        if "\n" in path:  # a pattern's end would match before it
            raise Refusal(404, "There is nothing at a path with a line break in it.")
        takes = self._methods(path)
        if takes and method not in takes:
            allow = ", ".join(sorted(takes))
            raise Refusal(405, f"{path} takes {allow}, not {method}.", [("allow", allow)])
        if takes and is_admin:
            check_type(method, headers)


def _is_for_callers(path: str) -> bool:
    """Whether a path has to do with models, and tells nothing of other callers."""
    return path == "/" or path.startswith(("/v1/", GOOGLES))


VERSIONED = frozenset((*(path for each in ENDPOINTS for path in each.paths), *COUNTS, "/v1/models"))


def is_versioned(path: str) -> bool:
    """Whether something is at `path`, which a client finds only with /v1 in its base URL."""
    return path in VERSIONED or path.startswith("/v1/models/")


def is_google(scope: Scope) -> bool:
    """Whether a client of Google's asks, which may name the version `v1` too."""
    return any(name in (b"x-goog-api-client", b"x-goog-api-key") for name, _ in scope["headers"])


def dialect_of(path: str, headers: Headers) -> Dialect:
    """In which dialect an error is told where no call has been read."""
    if path.startswith(GOOGLES):
        return DIALECTS["gemini"]
    anthropic = path.startswith("/v1/messages") or any(n == "anthropic-version" for n, _ in headers)
    return DIALECTS["messages" if anthropic else "chat"]


def build_rest(
    house: House,
    guard: Guard,
    problems: Callable[[], list[str]],
    metrics: Metrics,
    console: Console,
    live: Live,
) -> FastAPI:
    """Everything but the hot endpoints."""
    app = FastAPI(
        title="krouter",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    router = house.router
    add_errors(app)
    add_pages(app, house, guard, problems)
    add_models(app, router)
    add_routes(app, house)
    add_quota(app, router, house.pool)
    add_metrics(app, metrics)
    add_view(app, house, problems)
    add_live(app, live, guard)
    add_combos(app, house)
    add_settings(app, house)
    add_tests(app, router)
    add_log(app, console, router)
    return app


def add_errors(app: FastAPI) -> None:
    """Errors in the dialect of whoever asks."""

    @app.exception_handler(Refusal)
    async def refuse_model(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        dialect = dialect_of(request.url.path, request_headers(request.scope))
        told = refused(dialect, error)
        return Response(told.body, told.status, dict(told.headers))

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, message = request.url.path, str(error.detail)
        if message == HTTPStatus.NOT_FOUND.phrase:  # of no route of ours
            stored = " krouter stores no responses." if path.startswith("/v1/responses/") else ""
            message = f"There is nothing at {path}.{stored} GET / lists what there is."
            if is_versioned(f"/v1{path}"):
                message = f"There is nothing at {path}: the base URL lacks /v1."
        headers = [(n.lower(), v) for n, v in request.headers.items()]
        dialect = dialect_of(path, headers)
        # Only under /v1/models/ is what was not found a model, which is what OpenAI's code says.
        is_model = path.startswith("/v1/models/")
        told = None if is_model or error.status_code != 404 else _not_found(dialect, message)
        body = dialect.error_body(error.status_code, message, {}, told)
        given = final(error.status_code, (error.headers or {}).items())
        return Response(body, error.status_code, dict(given), "application/json")

    @app.exception_handler(Exception)
    async def pass_on(request: Request, error: Exception) -> Response:
        raise error  # for App to tell

    @app.exception_handler(RequestValidationError)
    async def refuse_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        told = (f"{each['loc'][-1]}: {each['msg']}." for each in error.errors())
        return await refuse(request, HTTPException(400, " ".join(told)))


def _not_found(dialect: Dialect, message: str) -> dict[str, Any] | None:
    if dialect.name != "chat":
        return None
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": "not_found"}}


def add_pages(app: FastAPI, house: House, guard: Guard, problems: Callable[[], list[str]]) -> None:
    """What is here, and how it is."""

    pages = read_pages()
    add_files(app, pages)

    @app.get("/", response_class=PlainTextResponse, response_model=None)
    async def index(request: Request) -> Response | str:
        if wants_pages(request_headers(request.scope)):
            return answer(pages, INDEX, request)
        return (
            f"krouter {__version__}\n\n"
            "GET  /                      in a browser: pages that show what krouter does\n"
            "POST /v1/chat/completions   OpenAI chat\n"
            "POST /v1/messages           Anthropic messages\n"
            "POST /v1/responses          OpenAI responses\n"
            "POST /v1beta/models/{model}:generateContent, :streamGenerateContent   Google Gemini\n"
            "POST /v1/messages/count_tokens\n"
            "POST /v1/embeddings         OpenAI embeddings\n"
            "POST /v1/responses/input_tokens\n"
            "GET  /v1/models, /v1beta/models   combos and models\n"
            "GET  /health\n"
            "GET  /metrics               numbers for Prometheus\n"
            "GET  /api/routes            what happened to requests\n"
            "GET  /api/quota             what is left of each account; POST tells of it\n"
            "GET  /api/view, /api/live   combos and accounts as they are now, and what happens\n"
            "GET  /api/combos/NAME       the file of a combo; PUT saves it, DELETE removes it\n"
            "PUT  /api/settings, /api/providers/NAME   change krouter.toml\n"
            "POST /api/providers/NAME/test   whether an account works\n"
            "POST /api/whatif            what would become of a request now; GET /api/faults\n"
            "GET  /api/log               the last lines of the live log\n"
        )

    @app.get("/health")
    async def health(request: Request) -> dict[str, Any]:
        """Anyone may ask whether krouter is well; what is wrong is told to those with a key that
        has no limits."""
        found = problems()
        status = "degraded" if found else "ok"
        shown = {"name": "krouter", "status": status, "version": __version__}
        if not guard.lets_in(request_headers(request.scope)):
            return shown
        world = house.router.world
        combos, in_flight = len(world.combos), world.board.in_flight
        more = {"home": str(house.paths.home), "combos": combos, "in_flight": in_flight}
        return {**shown, **more, "problems": found}


def add_metrics(app: FastAPI, metrics: Metrics) -> None:
    """Numbers for Prometheus."""

    @app.get("/metrics", response_class=PlainTextResponse)
    async def scrape(request: Request) -> Response:
        """Written out beside the event loop: many series take longer than a stream may stall."""
        accept = request.headers.get("accept", "")
        text, kind = await asyncio.to_thread(metrics.snapshot().text, accept)
        return Response(text, headers={"content-type": kind})
