"""krouter as a library: `completion` and `acompletion` in LiteLLM's manner, and `Router`."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from krouter.answer import Answer
from krouter.asking import Asked, SettingError, ask, check
from krouter.combostore import ComboStore, GivenCombos
from krouter.engine import Engine, Reply
from krouter.errors import Failure, Fault
from krouter.flow import Flow
from krouter.load import House
from krouter.paths import Paths, resolve_paths, shipped_combos
from krouter.problems import ConfigError, problems_of
from krouter.route import Route, Skip, Skipped
from krouter.settings import Settings
from krouter.sse import Splitter
from krouter.wire import HttpWire

__all__ = ["Router", "SettingError", "Stream", "acompletion", "completion"]

Folder = str | os.PathLike[str]
GivenSettings = Mapping[str, Any] | Folder | None

_log = logging.getLogger("krouter")
_shapes: Any = None


def _load_shapes() -> Any:
    """LiteLLM's objects; the first call takes seconds."""
    global _shapes
    if _shapes is None:
        _shapes = import_module("krouter_adapters.sdk")
    return _shapes


class Stream:
    """The chunks of one reply, for `for` or for `async for`; `route` says how it came about.

    Raises LiteLLM's exception where the reply breaks off. Closing it, dropping it, or cancelling
    who reads it closes the provider's connection.
    """

    def __init__(self, router: Router, answer: Answer, flow: Flow) -> None:
        self.route = answer.route
        self.response_headers = dict(answer.headers)
        self._router = router
        self._engine = router._engine
        self._answer = answer
        self._flow = flow
        self._splitter = Splitter()
        self._ready: deque[dict[str, Any]] = deque()
        self._over = False
        self._left = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        while not self._ready:
            if self._is_over():
                raise StopIteration
            try:
                self._take(self._flow.take())
            except BaseException:
                self._leave()
                raise
        told = self._ready.popleft()
        if not told.get("error"):
            return _shapes.chunk(told, self.route)
        self.close()
        raise self._broken(told)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._ready:
            if self._is_over():
                raise StopAsyncIteration
            try:
                self._take(await self._flow.taken())
            except BaseException:
                self._leave()
                raise
        told = self._ready.popleft()
        if not told.get("error"):
            return _shapes.chunk(told, self.route)
        await self.aclose()
        raise self._broken(told)

    def _is_over(self) -> bool:
        """Raises RuntimeError for a stream that was left in its middle, which has no end."""
        if self._left:
            raise RuntimeError("This stream was closed when its reader was interrupted.")
        return self._over

    def _take(self, piece: bytes) -> None:
        self._over = not piece
        for event in self._splitter.feed(piece) if piece else ():
            if event.data and event.data != b"[DONE]":
                self._ready.append(_shapes.decode(event.data))

    def _broken(self, told: Mapping[str, Any]) -> Exception:
        relay = self._answer.relay
        assert relay is not None
        fault, failure = relay.fault, _failure(self.route)
        status = relay.tracker.error_status or (504 if fault is Fault.TIMEOUT else 502)
        cut = not relay.tracker.error and fault is not Fault.GARBAGE
        return self._router._error(self._answer, failure, status, told, cut)

    def _leave(self) -> None:
        if not self._over:
            self._over = self._left = True
            self._engine.abandon(self._answer)

    def close(self) -> None:
        """Ends the stream; nothing more can be read from it."""
        if self._shut():
            self._engine.wait(self._engine.end(self._answer))

    async def aclose(self) -> None:
        """The same from an event loop."""
        if self._shut():
            await self._engine.awaited(self._engine.end(self._answer))

    def _shut(self) -> bool:
        """Whether there is something to close."""
        was_open, self._over = not self._over, True
        self._ready.clear()
        return was_open and not self._engine.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._over:
            self._engine.abandon(self._answer)


class Router:
    """A krouter in this process, with its own combos, accounts, locks and connections.

    `combos` is a folder of combo files, several, or a mapping of name to combo; without it, the
    home's `combos/`. `settings` is a `krouter.toml` or its content as a mapping. `home` and `env`
    stand for the home folder and the environment of the command line. Raises ConfigError.

    It may be used from any thread and any event loop, and is closed by `close`, `aclose` or
    `with`; one that is dropped closes itself.
    """

    def __init__(
        self,
        combos: Folder | Sequence[Folder] | Mapping[str, Mapping[str, Any]] | None = None,
        settings: GivenSettings = None,
        home: Folder | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._given = combos, settings, home, env
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._engine = Engine(_house(*self._given))
        self._finalizer = weakref.finalize(self, Engine.close, self._engine)

    def completion(self, model: str, messages: Sequence[Any] = (), **arguments: Any) -> Any:
        """LiteLLM's `completion`: a `ModelResponse`, or a `Stream` with `stream=True`.

        `model` is a combo, an alias, a `provider/model` or a name that LiteLLM knows. Raises
        LiteLLM's exceptions, and SettingError for arguments that krouter does not take.
        """
        arguments |= {"model": model, "messages": messages}
        check(arguments)
        asked = _asked(_load_shapes(), arguments)
        engine = self._alive()
        return self._made(engine.wait(engine.answer(asked)))

    async def acompletion(self, model: str, messages: Sequence[Any] = (), **arguments: Any) -> Any:
        """The same for an event loop. Cancelling it cancels the call to the provider."""
        arguments |= {"model": model, "messages": messages}
        check(arguments)
        asked = _asked(_shapes or await asyncio.to_thread(_load_shapes), arguments)
        engine = self._alive()
        return self._made(await engine.awaited(engine.answer(asked)))

    @property
    def routes(self) -> list[Route]:
        """The routes of the last calls, the oldest first."""
        return list(self._engine.house.router.routes)

    def close(self) -> None:
        """Cancels what is under way and closes every connection."""
        self._finalizer()

    async def aclose(self) -> None:
        """The same from an event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _alive(self) -> Engine:
        """The engine; a new one in a process forked from the one that made it."""
        with self._lock:
            if self._engine.pid != os.getpid():
                self._finalizer.detach()
                self._start()
            return self._engine

    def _made(self, reply: Reply) -> Any:
        answer, flow = reply
        if answer.status >= 400:
            route = answer.route
            cut = not (route and route.attempts and route.attempts[-1].first_byte)
            told = _shapes.decode(answer.body)
            raise self._error(answer, _failure(route), answer.status, told, cut)
        if flow is not None:
            return Stream(self, answer, flow)
        provider = self._provider(answer.route)
        return _shapes.reply(answer.body, answer.headers, provider, answer.route)

    def _error(
        self,
        answer: Answer,
        failure: Failure | None,
        status: int,
        told: Mapping[str, Any],
        cut: bool,
    ) -> Exception:
        route = answer.route
        trouble = _shapes.Trouble(
            failure=failure,
            status=status,
            message=_message(told, status),
            provider=self._provider(route),
            model=route.attempts[-1].model if route and route.attempts else _asked_for(route),
            headers=answer.headers,
            body=answer.body,
            cut=cut,
        )
        made: Exception = _shapes.error(trouble, route)
        return made

    def _provider(self, route: Route | None) -> str:
        """LiteLLM's name for the provider of the last attempt; one of the user's own keeps its."""
        if not route or not route.attempts:
            return ""
        name = route.attempts[-1].entry.partition("/")[0]
        provider = self._engine.house.router.world.registry.find(name)
        return name if provider is None or provider.own else provider.litellm


def _asked(shapes: Any, arguments: Mapping[str, Any]) -> Asked:
    return ask(arguments, shapes.OPTIONS, shapes.schema_of)


def _asked_for(route: Route | None) -> str:
    return route.asked if route else ""


def _failure(route: Route | None) -> Failure | None:
    """Why the last attempt failed; without one, whether a credential was all that was missing."""
    if route is None:
        return None
    if not route.attempts:
        reasons = {step.reason for step in route.steps if isinstance(step, Skipped)}
        return Failure.NOT_SIGNED_IN if reasons and reasons <= _NO_CREDENTIAL else None
    outcome = route.attempts[-1].outcome
    return Failure(outcome) if outcome in _FAILURES else None


_FAILURES = frozenset(Failure)
_NO_CREDENTIAL = {Skip.NO_ACCOUNT, Skip.NO_CREDENTIAL}


def _message(told: Mapping[str, Any], status: int) -> str:
    error = told.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else f"krouter answered with status {status}."


def _house(
    combos: Folder | Sequence[Folder] | Mapping[str, Mapping[str, Any]] | None,
    settings: GivenSettings,
    home: Folder | None,
    env: Mapping[str, str] | None,
) -> House:
    env = os.environ if env is None else env
    file = settings if isinstance(settings, str | os.PathLike) else None
    paths = resolve_paths(
        home=None if home is None else os.fspath(home),
        config=None if file is None else os.fspath(file),
        env=env,
        cwd=Path.cwd(),
    )
    given = _settings(settings) if isinstance(settings, Mapping) else None
    return House(
        paths,
        env,
        HttpWire(),
        _write,
        required=file is not None,
        settings=given,
        store=_store(combos, paths),
    )


def _store(
    combos: Folder | Sequence[Folder] | Mapping[str, Mapping[str, Any]] | None, paths: Paths
) -> ComboStore | GivenCombos:
    if isinstance(combos, Mapping):
        return GivenCombos(combos, ComboStore([shipped_combos()]))
    if combos is None:
        folders = [paths.combos]
    elif isinstance(combos, str | os.PathLike):
        folders = [_folder(combos)]
    else:
        folders = [_folder(folder) for folder in combos]
    return ComboStore([*folders, shipped_combos()])


def _folder(given: Folder) -> Path:
    folder = Path.cwd() / Path(given).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder of combos at {folder}.")
    return folder


def _settings(given: Mapping[str, Any]) -> Settings:
    try:
        return Settings.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(problems_of(error, "settings", Settings)) from None


def _write(tag: str, line: str) -> None:
    """krouter's log lines, in Python's logging."""
    _log.log(logging.WARNING if tag == "CONFIG" else logging.DEBUG, "%s %s", tag, line)


_default: Router | None = None
_default_lock = threading.Lock()


def default_router() -> Router:
    """The Router of `completion` and `acompletion`, made at their first use from the home folder
    that the command line would take."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Router()
        return _default


def completion(model: str, messages: Sequence[Any] = (), **arguments: Any) -> Any:
    """`Router.completion` of the default Router."""
    return default_router().completion(model, messages, **arguments)


async def acompletion(model: str, messages: Sequence[Any] = (), **arguments: Any) -> Any:
    """`Router.acompletion` of the default Router."""
    return await default_router().acompletion(model, messages, **arguments)
