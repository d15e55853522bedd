"""LiteLLM, imported once, beside the event loop, in its quiet and offline form."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Generic, TypeVar

_AT_IMPORT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
"""Without these it fetches its model data from the network and reads a `.env` file."""
_ALWAYS = {"LITELLM_OFFLINE_MODE": "true"}
"""Read whenever LiteLLM would look something up."""

_lock = threading.Lock()
_thread = threading.local()


@contextmanager
def without_warnings() -> Iterator[None]:
    """Around what LiteLLM does once, when it is imported or a class of its is first used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _with(variables: Mapping[str, str]) -> Iterator[None]:
    """The environment is the program's own, which may use LiteLLM in other ways too."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_wanted(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or not getattr(_thread, "hushed", False)


def load_litellm() -> Any:
    """The module. The first call takes seconds; whoever asks meanwhile waits for it."""
    with _lock:
        os.environ.update(_ALWAYS)
        with _with(_AT_IMPORT), without_warnings():
            litellm = import_module("litellm")
        litellm.suppress_debug_info = True  # type: ignore[attr-defined]
        logging.getLogger("LiteLLM").addFilter(_is_wanted)
        return litellm


def hush() -> None:
    """Keeps LiteLLM's advice to its own users out of the log, for this thread alone."""
    _thread.hushed = True


T = TypeVar("T")


class Loader(Generic[T]):
    """Gives what `make` makes. Whoever asks while it is being made waits for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Future[T] | None = None

    def start(self) -> Future[T]:
        """Begins, unless it has begun; after a failure it begins anew."""
        with self._lock:
            made = self._made
            if made is not None and not (made.done() and made.exception()):
                return made
            made = self._made = Future()
            made.set_running_or_notify_cancel()  # a waiting task that is cancelled leaves it be
        threading.Thread(target=self._run, args=(made,), name="litellm", daemon=True).start()
        return made

    async def ready(self) -> T:
        """Without waiting once it is there."""
        made = self.start()
        return made.result() if made.done() else await asyncio.wrap_future(made)

    def get(self) -> T:
        """The same for callers without an event loop."""
        return self.start().result()

    def _run(self, made: Future[T]) -> None:
        try:
            made.set_result(self._make())
        except BaseException as error:
            made.set_exception(error)
