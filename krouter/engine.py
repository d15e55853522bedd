"""A krouter inside a Python program: one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeVar

from krouter.accounts import Account
from krouter.answer import Answer
from krouter.arguments import SettingError
from krouter.asking import Asked
from krouter.flow import Flow
from krouter.load import WATCH_SECONDS, House
from krouter.naming import UnknownModel, resolve
from krouter.providers import Provider
from krouter.secrets import Secrets
from krouter.settings import Dialect
from krouter.world import World

with suppress(RuntimeError):
    import_module("concurrent.futures.thread")  # LiteLLM needs it, and not at a program's end

T = TypeVar("T")


_GIVEN_KEY = "API_KEY"
_OWN_THREAD = "krouter cannot be waited for in its own thread, as in a handler of its log."


class Closed(RuntimeError):
    """A call to a Router that has been closed."""

    def __init__(self) -> None:
        super().__init__("This Router is closed.")


class Line:
    """A stream under way, held by its reader alone: whoever drops it closes it.

    It is made where the answer is, so a reply that nobody comes to take is closed too. In a
    process forked since, there is nothing of it to read and nothing to close.
    """

    def __init__(self, engine: Engine, answer: Answer, flow: Flow) -> None:
        self.answer = answer
        self._engine = engine
        self._flow = flow
        self._open = True

    def take(self) -> bytes:
        """The next events; empty at the end. Waits in this thread."""
        self._engine.check()
        return self._come(self._flow.take())

    async def taken(self) -> bytes:
        """The same in an event loop."""
        self._engine.check()
        return self._come(await self._flow.taken())

    def _come(self, piece: bytes) -> bytes:
        self._open = bool(piece)
        return piece

    def close(self) -> None:
        """Its route is booked when this returns."""
        ending = self.leave()
        if ending is not None and not self._engine.is_own_thread:
            concurrent.futures.wait([ending])

    async def aclose(self) -> None:
        """The same from an event loop."""
        ending = self.leave()
        if ending is not None:
            await asyncio.wait([asyncio.wrap_future(ending)])

    def leave(self) -> Future[None] | None:
        """Closes it; gives what can be waited for, if anything."""
        was_open, self._open = self._open, False
        if was_open and self._engine.runs_here:
            with suppress(Closed):
                return self._engine.submit(self._engine.end(self.answer))
        return None

    def __del__(self) -> None:
        self.leave()


class Engine:
    """Runs a House in a thread that starts with the first call.

    One loop serves every caller, so that board, rotation and connections are shared by threads
    and by event loops that come and go.
    """

    def __init__(self, house: House) -> None:
        self.house = house
        self.pid = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event
        self._pumps: dict[int, asyncio.Task[None]] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._looked = 0.0

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, step: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins `step` on the loop. Raises Closed."""
        with self._lock:
            if self._closed:
                step.close()
                raise Closed
            return asyncio.run_coroutine_threadsafe(step, self._loop or self._start())

    @property
    def runs_here(self) -> bool:
        """Whether this is the process that it was made in, not one forked from that."""
        return self.pid == os.getpid()

    @property
    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def check(self) -> None:
        """Raises RuntimeError where no piece of a stream would ever come."""
        if not self.runs_here:
            raise RuntimeError("This stream is open in the process that this one was forked from.")
        if self.is_own_thread:
            raise RuntimeError(_OWN_THREAD)

    def wait(self, step: Coroutine[Any, Any, T]) -> T:
        """Runs `step` to its end. Raises Closed, and RuntimeError in the loop's own thread."""
        if self.is_own_thread:
            step.close()
            raise RuntimeError(_OWN_THREAD)
        running = self.submit(step)
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise Closed from None
        except BaseException:
            self._leave(running)
            del running  # the traceback may be kept, and what came must not be
            raise

    async def awaited(self, step: Coroutine[Any, Any, T]) -> T:
        """The same from an event loop, which runs on; cancelling cancels `step`."""
        running = self.submit(step)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise Closed from None
            self._leave(running)
            del running
            raise

    def _leave(self, running: Future[Any]) -> None:
        """Nobody waits any more. A stream that has come all the same is closed."""

        def discard(done: Future[Any]) -> None:
            if not done.cancelled() and not done.exception() and isinstance(done.result(), Line):
                done.result().leave()

        running.cancel()
        running.add_done_callback(discard)

    async def answer(self, asked: Asked) -> Answer | Line:
        """The answer, which is closed already, or the line of its stream. Raises SettingError."""
        await self._follow_files()
        answer = await self._answer(asked)
        found_nobody = answer.status == 503 and answer.route and not answer.route.attempts
        if found_nobody and await aside(self.house.recollect):
            await answer.close()
            answer = await self._answer(asked)
        if answer.relay is None:
            await answer.close()
            return answer
        flow = Flow(answer.relay, lambda: self._ending(answer))
        pump = asyncio.get_running_loop().create_task(flow.pump())
        pump.add_done_callback(flow.ended)
        self._pumps[id(answer)] = pump
        return Line(self, answer, flow)

    async def _answer(self, asked: Asked) -> Answer:
        router = self.house.router
        if asked.api_key is None and asked.api_base is None:
            return await router.answer(asked.call)
        return await router.answer(asked.call, _redirected(router.world, asked))

    async def end(self, answer: Answer) -> None:
        """Closes a stream; its route is booked when this returns."""
        pump = self._pumps.get(id(answer))
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])

    def _ending(self, answer: Answer) -> None:
        """Books the route, and closes the connection, which may take a moment longer."""
        del self._pumps[id(answer)]
        task = asyncio.get_running_loop().create_task(answer.close())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _follow_files(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked >= WATCH_SECONDS:
            self._looked = now
            await aside(self.house.refresh)

    def close(self) -> None:
        """Cancels what is under way, closes every connection and ends the thread."""
        if not self.runs_here:
            self._closed = True
            return
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stopping.set)
        if thread is not threading.current_thread():
            thread.join()

    def _start(self) -> asyncio.AbstractEventLoop:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="krouter", daemon=True
        )
        self._thread.start()
        self._loop = started.result()
        return self._loop

    def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(self._serve(started))

    def _warm_up(self) -> None:
        """Reads the model table beside the first call. No thread begins when the program ends."""
        if threading.main_thread().is_alive():
            catalog = self.house.router.world.catalog
            threading.Thread(target=catalog.warm_up, name="krouter-models", daemon=True).start()

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._stopping = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        self._warm_up()
        beside = [self.house.poller.run(), self.house.mend()]
        tasks = [asyncio.create_task(each) for each in beside]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()} - self._endings
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(*self._endings, return_exceptions=True)
        await self.house.close()


async def aside(work: Callable[[], T]) -> T:
    """Does `work` in another thread; in this one when the program is about to end, since no thread
    of the pool can be had then."""
    ending = not threading.main_thread().is_alive()
    return work() if ending else await asyncio.to_thread(work)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # it is not made for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _redirected(world: World, asked: Asked) -> World:
    """`world` in which the one provider that is asked for has the credential and the address of
    the call, and no other credential. Raises SettingError for what is no single model."""
    try:
        destination = resolve(asked.call.model, world)
    except UnknownModel:
        return world
    provider, _ = world.registry.split(destination.combo.models[0].model)
    if not destination.direct or provider is None or provider.builtin:
        what = "api_key" if asked.api_key else "api_base"
        raise SettingError(
            f"{what} goes with a provider/model; {asked.call.model!r} has the accounts and"
            " addresses of krouter.toml or of the Router's settings."
        )
    registry = world.registry
    if asked.api_base:
        moved = _moved(provider, asked.api_base)
        registry = replace(registry, providers={**registry.providers, provider.name: moved})
    account = _account(provider, asked)
    return replace(
        world,
        registry=registry,
        accounts={**world.accounts, provider.name: (account,)},
        secrets=Secrets({_GIVEN_KEY: asked.api_key or ""}),
    )


_SPOKEN: Mapping[str, Dialect] = {"anthropic": "messages", "gemini": "gemini"}
"""The dialect in which LiteLLM calls a provider, where it is not chat."""


def _moved(provider: Provider, base: str) -> Provider:
    """An address in LiteLLM's sense, of the dialect in which it calls the provider."""
    spoken = _SPOKEN.get(provider.litellm, "chat")
    dialects = [spoken] if spoken in provider.base_urls else provider.base_urls
    return replace(
        provider,
        base_urls=dict.fromkeys(dialects, base),
        litellm_base=base if provider.known_by_litellm else None,
    )


def _account(provider: Provider, asked: Asked) -> Account:
    """Named after a digest, so that each key and address has its own locks."""
    digest = hashlib.sha256(f"{asked.api_key}\n{asked.api_base}".encode()).hexdigest()[:12]
    key = f"env:{_GIVEN_KEY}" if asked.api_key else None
    return Account(provider.name, f"call-{digest}", key, 1, "key" if key else "none")
