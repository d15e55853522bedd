"""References (`env:NAME`, `file:PATH`, `command:…`) turned into the secrets that they name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from krouter.settings import SecretKind, reference_parts
from krouter.tokens import Token, read_token

LARGEST = 1 << 20
"""Bytes of a file or an output that may hold a secret."""
COMMAND_LIMIT = 10.0
COMMAND_FRESH = 300.0
EXPIRY_LEAD = 300.0
"""A token that expires within so many seconds is had anew before it is used."""
COMMAND_PAUSE = 10.0
"""A command that keeps printing such a token is not run more often than this."""
COMMAND_PATIENCE = 2.0
"""A command that a caller who has left waited for so long counts as one that hangs."""
BACKOFF_BASE = 2.0
BACKOFF_MOST = 300.0

_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=[^$`(]*", re.A)
_NAMES = re.compile(r"[\w./~+-]{1,100}")
"""What is a program and nothing else of the shell's."""

Run = Callable[[str, Mapping[str, str]], Awaitable[tuple[int, bytes]]]


class SecretError(Exception):
    """A secret that cannot be had; the text names the reference, never the secret. `wait` is in
    how many seconds it is tried again, where that is known."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A parsed reference; `target` is the variable, the path or the command line."""

    kind: SecretKind
    target: str

    @classmethod
    def parse(cls, ref: str) -> SecretRef:
        """Raises SecretError, without `ref`, for what is no reference."""
        return _parsed(ref)


@lru_cache(maxsize=1024)
def _parsed(ref: str) -> SecretRef:
    try:
        return SecretRef(*reference_parts(ref))
    except ValueError as error:
        raise SecretError(str(error)) from None


async def run_command(command: str, env: Mapping[str, str]) -> tuple[int, bytes]:
    """Exit status and standard output of a shell command; TimeoutError after 10 s. One that prints
    more than is taken is ended."""
    process = await _started(command, env)
    try:
        output = await asyncio.wait_for(_printed(process), COMMAND_LIMIT)
    finally:
        if process.returncode is None:
            _kill(process)
            await process.communicate()  # until its pipes are closed as well
    was_ended = len(output) > LARGEST
    return 0 if was_ended else process.returncode or 0, output


async def _printed(process: Process) -> bytes:
    """All of it once the process has ended, or more than is taken."""
    assert process.stdout is not None
    output = b""
    while part := await process.stdout.read(LARGEST):
        output += part
        if len(output) > LARGEST:
            return output
    await process.wait()
    return output


async def _started(command: str, env: Mapping[str, str]) -> Process:
    """Cancelled while the process begins, it is ended all the same."""
    beginning = asyncio.ensure_future(
        asyncio.create_subprocess_shell(
            command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            env=dict(env),
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        process = await beginning
        _kill(process)
        await process.communicate()
        raise


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


@dataclass(slots=True, eq=False)
class _Output:
    """What a command last printed, at `at`, and how it fails since. `wanted` says that somebody has
    asked for it since it last ran."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    token: Token | None = None
    at: float = 0.0
    problem: str = ""
    failures: int = 0
    retry_at: float = 0.0
    wanted: bool = False

    def fail(self, problem: str, now: float) -> None:
        self.problem = problem
        self.retry_at = now + min(BACKOFF_BASE * 2.0 ** min(self.failures, 10), BACKOFF_MOST)
        self.failures += 1

    def succeed(self, token: Token, now: float) -> None:
        self.token, self.at, self.problem, self.failures = token, now, "", 0


class Secrets:
    """Reveals references. Files are read again when they change, commands run after 5 minutes, and
    both when the token that they hold is about to expire.

    Only the first use of a command waits for it. Later runs, and the next tries of one that failed,
    are `mend`'s, so that no request waits for them.

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
        self._files: dict[Path, tuple[tuple[int, int, int], Token]] = {}
        self._outputs: dict[str, _Output] = {}

    async def reveal(self, ref: str) -> str:
        """The secret itself, stripped. Raises SecretError."""
        found = self.at_hand(ref)
        return await self._output(SecretRef.parse(ref).target) if found is None else found

    def at_hand(self, ref: str) -> str | None:
        """The same where nothing is to be waited for; None for a command. Raises SecretError."""
        parsed = SecretRef.parse(ref)
        if parsed.kind == "command":
            return None
        return self._variable(parsed.target) if parsed.kind == "env" else self._file(parsed.target)

    def present(self, ref: str) -> str | None:
        """What is wrong with `ref`, or None. Commands are not run: it is how they last went."""
        try:
            parsed = SecretRef.parse(ref)
            if parsed.kind == "env":
                self._variable(parsed.target)
            elif parsed.kind == "file":
                self._file(parsed.target)
            elif output := self._outputs.get(parsed.target):
                return output.problem or None
        except SecretError as error:
            return str(error)
        return None

    def forget(self, ref: str) -> None:
        """Run the command of `ref` again at its next use: its secret has been refused."""
        if output := self._outputs.get(SecretRef.parse(ref).target):
            output.token = None

    def has_changed(self, ref: str) -> bool:
        """Whether the file of `ref` is another one than when it was last used."""
        parsed = SecretRef.parse(ref)
        if parsed.kind != "file":
            return False
        try:
            path = self._path(parsed.target)
            known = self._files.get(path)
            return known is not None and known[0] != _stamp(path)
        except (OSError, SecretError):
            return False

    async def mend(self) -> None:
        """Runs the commands that somebody has wanted since they failed or grew old."""
        due = [(each, output) for each, output in self._outputs.items() if self._is_due(output)]
        runs = (self._renew(command, output) for command, output in due)
        await asyncio.gather(*runs, return_exceptions=True)

    def _variable(self, name: str) -> str:
        value = self._env.get(name)
        if value is None:
            raise SecretError(f"the environment variable {name} is not set")
        return _clean(value, f"the environment variable {name}")

    def _file(self, target: str) -> str:
        path = self._path(target)
        try:
            stamp = _stamp(path)
            known = self._files.get(path)
            if known is None or known[0] != stamp or self._ends_soon(known[1]):
                known = stamp, _token(_content(path), f"the file {path}")
                self._files[path] = known
        except OSError as error:
            raise SecretError(f"the file {path} cannot be read: {error.strerror}") from None
        return self._valid(known[1], f"the file {path}")

    def _ends_soon(self, token: Token) -> bool:
        return token.expires is not None and token.expires - self._now() < EXPIRY_LEAD

    def _valid(self, token: Token, what: str) -> str:
        if token.expires is not None and token.expires <= self._now():
            at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(token.expires))
            raise SecretError(f"the token of {what} expired at {at}: sign in again")
        return token.secret

    def file_of(self, ref: str) -> Path | None:
        """Where the file of a `file:` reference is; None for all else."""
        try:
            found = SecretRef.parse(ref)
            return self._path(found.target) if found.kind == "file" else None
        except SecretError:
            return None

    def _path(self, target: str) -> Path:
        home = self._env.get("HOME")
        if home and target.startswith("~/"):
            return Path(home) / target[2:]
        try:
            return self._folder / Path(target).expanduser()
        except RuntimeError:  # of ~name where nobody is called so
            raise SecretError(f"the file {target} is in nobody's folder") from None

    async def _output(self, command: str) -> str:
        output = self._outputs.setdefault(command, _Output())
        output.wanted = True
        if (token := self._kept(output)) is None:
            self._refuse_failing(output)
            async with output.lock:
                if (token := self._kept(output)) is None:
                    self._refuse_failing(output)
                    token = await self._run_anew(command, output)
        return token.secret

    def _kept(self, output: _Output) -> Token | None:
        """The token at hand, while it may be sent: the older one while a new one cannot be had."""
        token = output.token
        if token is None or (token.expires is not None and token.expires <= self._now()):
            return None
        age = self._clock() - output.at
        return token if age < 2 * COMMAND_FRESH or output.failures else None

    def _refuse_failing(self, output: _Output) -> None:
        """Nobody waits for a command that has failed: `mend` tries it again."""
        if output.failures:
            raise SecretError(output.problem, max(0.0, output.retry_at - self._clock()))

    async def _renew(self, command: str, output: _Output) -> None:
        async with output.lock:
            if output.wanted:
                await self._run_anew(command, output)

    def _is_due(self, output: _Output) -> bool:
        now = self._clock()
        if not output.wanted or output.lock.locked():
            return False
        if output.failures:
            return now >= output.retry_at
        if output.token is None:
            return False
        soon = self._ends_soon(output.token)
        return now - output.at >= (COMMAND_PAUSE if soon else COMMAND_FRESH)

    async def _run_anew(self, command: str, output: _Output) -> Token:
        """Runs a command and notes how it went. Raises SecretError."""
        began, what = self._clock(), _command(command)
        output.wanted = False
        try:
            token = await self._run_once(command)
            self._valid(token, what)
        except SecretError as error:
            output.wanted = output.wanted or not output.failures  # who waited first got nothing
            output.fail(str(error), self._clock())
            raise SecretError(str(error), output.retry_at - self._clock()) from None
        except asyncio.CancelledError:
            waited = self._clock() - began
            if waited >= COMMAND_PATIENCE:
                output.fail(f"{what} had not ended after {waited:.0f} s", self._clock())
                output.wanted = True
            raise
        output.succeed(token, self._clock())
        return token

    async def _run_once(self, command: str) -> Token:
        what = _command(command)
        try:
            status, output = await self._run(command, self._env)
        except TimeoutError:
            raise SecretError(f"{what} took more than {COMMAND_LIMIT:g} s") from None
        except OSError as error:
            raise SecretError(f"{what} cannot be run: {error.strerror}") from None
        if status:
            raise SecretError(f"{what} failed with status {status}")
        return _token(output, what)


def _content(path: Path) -> bytes:
    """A pipe or a device may never end, so only a file is read. Raises OSError, SecretError."""
    if not path.is_file() and path.exists():
        raise SecretError(f"the file {path} cannot be read: it is no regular file")
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _command(line: str) -> str:
    """With the program's name alone: the rest of a command line may hold a secret of its own."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that does not end
        words = []
    program = next((word for word in words if not _ASSIGNS.fullmatch(word)), "")
    return f"the command {program!r}" if _NAMES.fullmatch(program) else "the command"


def _token(raw: bytes, what: str) -> Token:
    """A secret of a file or a command, which may be JSON around it."""
    if len(raw) > LARGEST:
        raise SecretError(f"{what} holds more than {LARGEST >> 20} MiB")
    try:
        token = read_token(raw.decode())
    except UnicodeDecodeError:
        raise SecretError(f"{what} is not text") from None
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
