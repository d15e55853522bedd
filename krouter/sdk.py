"""krouter as a library: `completion` and `embedding` in LiteLLM's manner, and `Router`."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from pydantic import ValidationError

from krouter import arguments as named
from krouter.answer import Answer
from krouter.arguments import Arguments, SettingError, check, takes
from krouter.asking import Asked, ask, ask_embedding
from krouter.combostore import ComboStore, GivenCombos
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.engine import Engine, Line, aside
from krouter.errors import Failure
from krouter.load import House
from krouter.paths import Paths, resolve_paths, shipped_combos
from krouter.problems import ConfigError, Problem, problems_of
from krouter.providers import Provider, Registry
from krouter.route import Route
from krouter.sdk_stream import Stream, failure_of, message_of
from krouter.settings import Settings
from krouter.shapes import Shapes, Source, Trouble, Unreadable
from krouter.wire import HttpWire

__all__ = [
    "Router",
    "SettingError",
    "Stream",
    "acompletion",
    "aembedding",
    "completion",
    "embedding",
]

Folder = str | os.PathLike[str]
GivenSettings = Mapping[str, Any] | Folder | None

_log = logging.getLogger("krouter")
_shapes: Shapes | None = None


def _load_shapes() -> Shapes:
    """LiteLLM's objects; the first call takes seconds."""
    global _shapes
    if _shapes is None:
        try:
            _shapes = cast(Shapes, import_module("krouter_adapters.sdk"))
        except RuntimeError as error:
            if threading.main_thread().is_alive():
                raise
            raise RuntimeError("The program is ending, LiteLLM can be loaded no more.") from error
    return _shapes


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

    @takes(named.completion)
    def completion(self, arguments: Arguments) -> Any:
        """LiteLLM's `completion`: a `ModelResponse`, or a `Stream` with `stream=True`.

        `model` is a combo, an alias, a `provider/model` or a name that LiteLLM knows. Raises
        LiteLLM's exceptions, and SettingError for arguments that krouter does not take.
        """
        check(arguments)
        shapes = _load_shapes()
        asked = ask(arguments, shapes)
        engine = self._alive()
        return self._made(engine.wait(engine.answer(asked)), asked, shapes)

    @takes(named.acompletion)
    async def acompletion(self, arguments: Arguments) -> Any:
        """The same for an event loop. Cancelling it cancels the call to the provider."""
        check(arguments)
        shapes = await aside(_load_shapes) if _shapes is None else _shapes
        asked = ask(arguments, shapes)
        engine = self._alive()
        return self._made(await engine.awaited(engine.answer(asked)), asked, shapes)

    @takes(named.embedding)
    def embedding(self, arguments: Arguments) -> Any:
        """LiteLLM's `embedding`: an `EmbeddingResponse`. Of a combo, no two entries give vectors of
        different sizes. Raises what `completion` raises."""
        check(arguments)
        shapes = _load_shapes()
        asked = ask_embedding(arguments, shapes)
        engine = self._alive()
        return self._made(engine.wait(engine.answer(asked)), asked, shapes)

    @takes(named.embedding)
    async def aembedding(self, arguments: Arguments) -> Any:
        """The same for an event loop. Cancelling it cancels the call to the provider."""
        check(arguments)
        shapes = await aside(_load_shapes) if _shapes is None else _shapes
        asked = ask_embedding(arguments, shapes)
        engine = self._alive()
        return self._made(await engine.awaited(engine.answer(asked)), asked, shapes)

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
        if not (self._engine.runs_here or self._engine.closed):
            with self._lock:
                if not self._engine.runs_here:
                    self._finalizer.detach()
                    self._start()
        return self._engine

    def _made(self, came: Answer | Line, asked: Asked, shapes: Shapes) -> Any:
        answer = came.answer if isinstance(came, Line) else came
        source = self._source(answer, asked)
        if answer.status >= 400:
            route = answer.route
            cut = not (route and route.final and route.final.first_byte)
            message = message_of(shapes.decode(answer.body), answer.status)
            raise self._error(answer, failure_of(route), answer.status, message, cut)
        if isinstance(came, Line):
            return Stream(came, shapes, shapes.pieces(source), self._error)
        read = shapes.embeddings if asked.call.dialect is EMBEDDINGS else shapes.reply
        try:
            return read(answer.body, source)
        except Unreadable as error:
            raise self._error(answer, None, 502, str(error), False) from None

    def _source(self, answer: Answer, asked: Asked) -> Source:
        route = answer.route
        last = route.final if route else None
        entry = last.entry if last else ""
        provider = self._registry.find(entry.partition("/")[0])
        return Source(
            provider=self._litellms_name(route),
            model=last.model if last else "",
            entry=entry,
            api_base=asked.api_base or _base(provider),
            headers=answer.headers,
            route=route,
        )

    def _error(
        self, answer: Answer, failure: Failure | None, status: int, message: str, cut: bool
    ) -> Exception:
        assert _shapes is not None, "it was needed to ask"
        route = answer.route
        trouble = Trouble(
            failure=failure,
            status=status,
            message=message,
            provider=self._litellms_name(route),
            model=route.final.model if route and route.final else _asked_for(route),
            headers=answer.headers,
            body=answer.body,
            cut=cut,
        )
        return _shapes.error(trouble, route)

    @property
    def _registry(self) -> Registry:
        return self._engine.house.router.world.registry

    def _litellms_name(self, route: Route | None) -> str:
        """LiteLLM's name for the provider of the last attempt; one of the user's own keeps its."""
        final = route.final if route else None
        if final is None:
            return ""
        name = final.entry.partition("/")[0]
        provider = self._registry.find(name)
        return name if provider is None or provider.own else provider.litellm


def _base(provider: Provider | None) -> str | None:
    """Where a provider answers chat; where it does not, its first address."""
    if provider is None:
        return None
    others = iter(provider.base_urls.values())
    return provider.base_urls.get("chat") or next(others, provider.litellm_base)


def _asked_for(route: Route | None) -> str:
    return route.asked if route else ""


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
    given = _settings(settings) if settings is not None and file is None else None
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
    if not os.path.isdir(folder):
        raise ConfigError([Problem(str(folder), "", "no such folder.")])
    return folder


def _settings(given: object) -> Settings:
    if not isinstance(given, Mapping):
        message = f"should be a path or a mapping, not {type(given).__name__}."
        raise ConfigError([Problem("settings", "", message)])
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
    if _default is None:
        with _default_lock:
            _default = _default or Router()
    return _default


@takes(named.completion)
def completion(arguments: Arguments) -> Any:
    """`Router.completion` of the default Router."""
    return default_router().completion(**arguments)


@takes(named.acompletion)
async def acompletion(arguments: Arguments) -> Any:
    """`Router.acompletion` of the default Router."""
    return await default_router().acompletion(**arguments)


@takes(named.embedding)
def embedding(arguments: Arguments) -> Any:
    """`Router.embedding` of the default Router."""
    return default_router().embedding(**arguments)


@takes(named.embedding)
async def aembedding(arguments: Arguments) -> Any:
    """`Router.aembedding` of the default Router."""
    return await default_router().aembedding(**arguments)
