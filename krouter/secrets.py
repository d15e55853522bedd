"""References (`env:NAME`, `file:PATH`, `command:…`) turned into the secrets that they name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from krouter.settings import SecretKind, reference_parts
from krouter.tokens import Token, read_token

COMMAND_LIMIT = 10.0
COMMAND_FRESH = 300.0
EXPIRY_LEAD = 300.0
"""A token that expires within so many seconds is had anew before it is used."""
COMMAND_PAUSE = 10.0
"""A command that keeps printing such a token is not run more often than this."""

Run = Callable[[str, Mapping[str, str]], Awaitable[tuple[int, bytes]]]


class SecretError(Exception):
    """A secret that cannot be had; the text names the reference, never the secret."""


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A parsed reference; `target` is the variable, the path or the command line."""

    kind: SecretKind
    target: str

    @classmethod
    def parse(cls, ref: str) -> SecretRef:
        """Raises SecretError, without `ref`, for what is no reference."""
        try:
            return cls(*reference_parts(ref))
        except ValueError as error:
            raise SecretError(str(error)) from None


async def run_command(command: str, env: Mapping[str, str]) -> tuple[int, bytes]:
    """Exit status and standard output of a shell command; TimeoutError after 10 s."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=dict(env), start_new_session=True
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), COMMAND_LIMIT)
    finally:
        if process.returncode is None:
            _kill(process)
            await process.wait()
    return process.returncode or 0, output


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


class Secrets:
    """Reveals references. Files are read again when they change, commands run after 5 minutes, and
    both when the token that they hold is about to expire.

    `env` is the environment of variables and commands; relative files are looked for in `folder`.
    `now` gives epoch seconds, by which tokens expire.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        run: Run = run_command,
        *,
        folder: Path = Path(),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._env = env
        self._run = run
        self._folder = folder
        self._clock = clock
        self._now = now
        self._files: dict[Path, tuple[tuple[int, int], Token]] = {}
        self._outputs: dict[str, tuple[float, Token]] = {}
        self._running: dict[str, asyncio.Lock] = {}

    async def reveal(self, ref: str) -> str:
        """The secret itself, stripped. Raises SecretError."""
        parsed = SecretRef.parse(ref)
        if parsed.kind == "command":
            return await self._output(parsed.target)
        return self._variable(parsed.target) if parsed.kind == "env" else self._file(parsed.target)

    def present(self, ref: str) -> str | None:
        """What is wrong with `ref`, or None. Commands are not run."""
        try:
            parsed = SecretRef.parse(ref)
            if parsed.kind == "env":
                self._variable(parsed.target)
            elif parsed.kind == "file":
                self._file(parsed.target)
        except SecretError as error:
            return str(error)
        return None

    def forget(self, ref: str) -> None:
        """Run the command of `ref` again at its next use: its secret has been refused."""
        self._outputs.pop(SecretRef.parse(ref).target, None)

    def _variable(self, name: str) -> str:
        if name not in self._env:
            raise SecretError(f"the environment variable {name} is not set")
        return _clean(self._env[name], f"the environment variable {name}")

    def _file(self, target: str) -> str:
        path = self._folder / self._expanded(target)
        try:
            stat = path.stat()
            stamp = stat.st_mtime_ns, stat.st_size
            known = self._files.get(path)
            if known is None or known[0] != stamp or self._ends_soon(known[1]):
                known = stamp, _token(path.read_text("utf-8"), f"the file {path}")
                self._files[path] = known
        except OSError as error:
            raise SecretError(f"the file {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecretError(f"the file {path} is not text") from None
        return self._valid(known[1], f"the file {path}")

    def _ends_soon(self, token: Token) -> bool:
        return token.expires is not None and token.expires - self._now() < EXPIRY_LEAD

    def _valid(self, token: Token, what: str) -> str:
        if token.expires is not None and token.expires <= self._now():
            at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(token.expires))
            raise SecretError(f"the token of {what} expired at {at}: sign in again")
        return token.secret

    def _expanded(self, target: str) -> Path:
        home = self._env.get("HOME")
        if home and target.startswith("~/"):
            return Path(home) / target[2:]
        return Path(target).expanduser()

    async def _output(self, command: str) -> str:
        async with self._running.setdefault(command, asyncio.Lock()):
            known = self._outputs.get(command)
            if known is None or self._is_old(*known):
                known = self._clock(), await self._run_once(command)
                self._outputs[command] = known
            return self._valid(known[1], f"the command {_program(command)!r}")

    def _is_old(self, at: float, token: Token) -> bool:
        age = self._clock() - at
        return age >= (COMMAND_PAUSE if self._ends_soon(token) else COMMAND_FRESH)

    async def _run_once(self, command: str) -> Token:
        what = f"the command {_program(command)!r}"
        try:
            status, output = await self._run(command, self._env)
        except TimeoutError:
            raise SecretError(f"{what} took more than {COMMAND_LIMIT:g} s") from None
        except OSError as error:
            raise SecretError(f"{what} cannot be run: {error.strerror}") from None
        if status:
            raise SecretError(f"{what} failed with status {status}")
        return _token(output.decode("utf-8", "replace"), what)


def _program(command: str) -> str:
    """The program alone: the rest of a command line may hold a secret of its own."""
    return next((word for word in command.split() if "=" not in word), "…")


def _token(text: str, what: str) -> Token:
    """A secret of a file or a command, which may be JSON around it."""
    token = read_token(text)
    if token is None:
        raise SecretError(f"{what} is JSON without an access token")
    return token._replace(secret=_clean(token.secret, what))


def _clean(text: str, what: str) -> str:
    """`text` fit for a header: stripped, one line, printable ASCII."""
    secret = text.strip()
    if not secret:
        raise SecretError(f"{what} is empty")
    if not (secret.isascii() and secret.isprintable()):
        raise SecretError(f"{what} holds more than one line of plain characters")
    return secret
