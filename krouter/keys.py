"""krouter's own keys, with which callers are let in.

Keys are random, with 256 bits of entropy, so one round of SHA-256 is enough to store them: there
is nothing to guess, which is what slow password hashes defend against, and it costs each request a
microsecond instead of a tenth of a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from krouter.problems import ConfigError, Problem, did_you_mean, problems_of
from krouter.settings import Name, check_name

PREFIX = "kr-"
LOOK_AGAIN = 1.0


class Key(BaseModel):
    """One key: its SHA-256 in hex, and when it was made (ISO 8601, UTC)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    created: str


def _distinct(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    if len({key.name for key in keys}) < len(keys):
        raise ValueError("two keys have the same name")
    return keys


class _KeyFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: Annotated[tuple[Key, ...], AfterValidator(_distinct)]


def list_keys(path: Path) -> tuple[Key, ...]:
    """The keys in `path`, none without the file. Raises ConfigError if it cannot be understood."""
    try:
        return _KeyFile.model_validate(json.loads(path.read_bytes())).keys
    except FileNotFoundError:
        return ()
    except OSError as error:
        problems = [Problem(str(path), "", f"cannot be read: {error.strerror}.")]
    except ValidationError as error:
        problems = problems_of(error, str(path), _KeyFile)
    except (ValueError, RecursionError):
        problems = [Problem(str(path), "", "not JSON.", "Remove it to start with no keys.")]
    raise ConfigError(problems)


def add_key(
    path: Path, name: str, now: float, token: Callable[[int], str] = secrets.token_urlsafe
) -> str:
    """Store a new key under `name` and return it; it cannot be shown again.

    `now` is in seconds since 1970, `token` makes text from that many random bytes. Raises
    ConfigError for a name that is bad or taken, or a file that cannot be understood or written.
    """
    keys = list_keys(path)
    _refuse_name(path, name, keys)
    key = PREFIX + token(32)
    created = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    _write(path, (*keys, Key(name=name, hash=_digest(key), created=created)))
    return key


def remove_key(path: Path, name: str) -> None:
    """Forget the key called `name`. Raises ConfigError if there is none."""
    keys = list_keys(path)
    kept = tuple(key for key in keys if key.name != name)
    if len(kept) == len(keys):
        hint = did_you_mean(name, (key.name for key in keys))
        raise ConfigError([Problem(str(path), "", f"there is no key {name!r}.", hint)])
    _write(path, kept)


class KeyRing:
    """The keys of a file, read again when it changes (looked at once a second at most).

    A file that cannot be understood, or that is gone after it held keys, lets nobody in.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._problem: str | None = None
        self._stamp: tuple[int, ...] | None = None
        self._looked = -LOOK_AGAIN
        self._load(_stamp(path))

    @property
    def required(self) -> bool:
        """Whether callers need a key: there is one, or the file is unusable."""
        self._refresh()
        return bool(self._keys) or self._problem is not None

    @property
    def problem(self) -> str | None:
        """Why nobody gets in, or None."""
        self._refresh()
        return self._problem

    def match(self, token: str) -> str | None:
        """The name of the key that `token` is. Takes the same time for every key and for none."""
        self._refresh()
        digest = _digest(token)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.hash, digest):
                found = key.name
        return found

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._looked < LOOK_AGAIN:
            return
        self._looked = now
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._load(stamp)

    def _load(self, stamp: tuple[int, ...] | None) -> None:
        vanished = stamp is None and (self._keys or self._problem)
        try:
            self._keys = list_keys(self._path)
            self._problem = f"{self._path}: the file is gone." if vanished else None
        except ConfigError as error:
            self._keys, self._problem = (), str(error)
        self._stamp = stamp


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return (-1, error.errno or 0)
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _refuse_name(path: Path, name: str, keys: tuple[Key, ...]) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise ConfigError([Problem(str(path), "", f"{name!r} is no name: {error}.")]) from None
    if any(key.name == name for key in keys):
        message = f"there is a key {name!r} already."
        raise ConfigError([Problem(str(path), "", message, "Remove it, or take another name.")])


def _write(path: Path, keys: tuple[Key, ...]) -> None:
    text = json.dumps(_KeyFile(keys=keys).model_dump(mode="json"), indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text.encode())
    except OSError as error:
        message = f"cannot be written: {error.strerror}."
        raise ConfigError([Problem(str(path), "", message)]) from None


def _replace(path: Path, content: bytes) -> None:
    """Write `path` whole or not at all, for the owner's eyes only (mkstemp makes it 0600)."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
