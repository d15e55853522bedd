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

COMMAND_LIMIT = 10.0
COMMAND_FRESH = 300.0

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
    """Reveals references. Files are read again when they change, commands after 5 minutes.

    `env` is the environment of variables and commands; relative files are looked for in `folder`.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        run: Run = run_command,
        *,
        folder: Path = Path(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._env = env
        self._run = run
        self._folder = folder
        self._clock = clock
        self._files: dict[Path, tuple[tuple[int, int], str]] = {}
        self._outputs: dict[str, tuple[float, str]] = {}
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
            if path not in self._files or self._files[path][0] != stamp:
                self._files[path] = stamp, _clean(path.read_text("utf-8"), f"the file {path}")
        except OSError as error:
            raise SecretError(f"the file {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecretError(f"the file {path} is not text") from None
        return self._files[path][1]

    def _expanded(self, target: str) -> Path:
        home = self._env.get("HOME")
        if home and target.startswith("~/"):
            return Path(home) / target[2:]
        return Path(target).expanduser()

    async def _output(self, command: str) -> str:
        async with self._running.setdefault(command, asyncio.Lock()):
            at, output = self._outputs.get(command, (-COMMAND_FRESH, ""))
            if not output or self._clock() - at >= COMMAND_FRESH:
                output = await self._run_once(command)
                self._outputs[command] = self._clock(), output
            return output

    async def _run_once(self, command: str) -> str:
        what = f"the command {_program(command)!r}"
        try:
            status, output = await self._run(command, self._env)
        except TimeoutError:
            raise SecretError(f"{what} took more than {COMMAND_LIMIT:g} s") from None
        except OSError as error:
            raise SecretError(f"{what} cannot be run: {error.strerror}") from None
        if status:
            raise SecretError(f"{what} failed with status {status}")
        return _clean(output.decode("utf-8", "replace"), what)


def _program(command: str) -> str:
    """The program alone: the rest of a command line may hold a secret of its own."""
    return next((word for word in command.split() if "=" not in word), "…")


def _clean(text: str, what: str) -> str:
    """`text` fit for a header: stripped, one line, printable ASCII."""
    secret = text.strip()
    if not secret:
        raise SecretError(f"{what} is empty")
    if not (secret.isascii() and secret.isprintable()):
        raise SecretError(f"{what} holds more than one line of plain characters")
    return secret
