"""krouter's own keys, with which callers are let in.

Keys are random, with 256 bits of entropy, so one round of SHA-256 is enough to store them: there
is nothing to guess, which is what slow password hashes defend against, and it costs microseconds
instead of a tenth of a second. The digests of the keys that came last are kept in memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from krouter.allowance import MOST_PER_MINUTE, Budget, check_models, parse_budget
from krouter.private import check_regular
from krouter.problems import ConfigError, Problem, did_you_mean, problems_of
from krouter.settings import Name, check_name
from krouter.written import replace_whole, target_of

try:
    import fcntl
except ImportError:  # a system without flock
    fcntl = None  # type: ignore[assignment]

PREFIX = "kr-"
LOOK_AGAIN = 1.0
LOCK_SECONDS, LOCK_LOOK = 10.0, 0.01
"""How long another process that changes the file is waited for, and how often that is looked at."""


def _budget(text: str) -> str:
    return str(parse_budget(text))


class _Known(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    created: str


class Limits(BaseModel):
    """What a key is limited to; None is no limit.

    `models` are names and globs of combos, aliases and models, `rpm` is requests a minute, and
    `budget` US dollars in a period, as `5/day`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Annotated[tuple[str, ...], AfterValidator(check_models)] | None = None
    rpm: int | None = Field(default=None, ge=1, le=MOST_PER_MINUTE, strict=True)
    budget: Annotated[str, AfterValidator(_budget)] | None = None

    @property
    def is_limited(self) -> bool:
        return self.models is not None or self.rpm is not None or self.budget is not None


class Key(Limits, _Known):
    """One key: its SHA-256 in hex, when it was made (ISO 8601, UTC), and its limits."""

    @property
    def id(self) -> str:
        """What tells it from every other, and from one that has its name later."""
        return self.hash[:16]

    @property
    def allowance(self) -> Budget | None:
        return None if self.budget is None else parse_budget(self.budget)


NO_LIMITS = Limits()


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
        check_regular(path)
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
    path: Path,
    name: str,
    now: float,
    token: Callable[[int], str] = secrets.token_urlsafe,
    limits: Limits = NO_LIMITS,
) -> str:
    """Store a new key under `name` and return it; it cannot be shown again.

    `now` is in seconds since 1970, `token` makes text from that many random bytes. Raises
    ConfigError for a name that is bad or taken, or a file that cannot be understood or written.
    """
    _check_name(path, name)
    key = PREFIX + token(32)
    created = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    made = Key(name=name, hash=_digest(key), created=created, **limits.model_dump())
    with _alone(path):
        keys = list_keys(path)
        if any(each.name == name for each in keys):
            message = f"there is a key {name!r} already."
            raise ConfigError([Problem(str(path), "", message, "Remove it, or take another name.")])
        _write(path, (*keys, made))
    return key


def change_key(path: Path, name: str, change: Callable[[Key], Limits]) -> Key:
    """Give the key called `name` other limits, which `change` makes of it. Raises ConfigError if
    there is none."""
    with _alone(path):
        keys = list_keys(path)
        found = next((key for key in keys if key.name == name), None)
        if found is None:
            raise ConfigError([_no_key(path, name, keys)])
        limits = {field: getattr(change(found), field) for field in Limits.model_fields}
        changed = found.model_copy(update=limits)
        _write(path, tuple(changed if key is found else key for key in keys))
    return changed


def remove_key(path: Path, name: str) -> None:
    """Forget the key called `name`. Raises ConfigError if there is none."""
    with _alone(path):
        keys = list_keys(path)
        kept = tuple(key for key in keys if key.name != name)
        if len(kept) == len(keys):
            raise ConfigError([_no_key(path, name, keys)])
        _write(path, kept)


def _no_key(path: Path, name: str, keys: tuple[Key, ...]) -> Problem:
    hint = did_you_mean(name, (key.name for key in keys))
    return Problem(str(path), "", f"there is no key {name!r}.", hint)


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
        """The name of the key that `token` is."""
        found = self.find(token)
        return None if found is None else found.name

    def find(self, token: str) -> Key | None:
        """The key that `token` is. Its digest is compared with those of all keys, each in constant
        time, so that it takes the same for every key and for none. Making the digest takes longer
        for a long token, and next to nothing for one that was presented lately, key or not."""
        self._refresh()
        digest = _digest(token)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.hash, digest):
                found = key
        return found

    def reload(self) -> None:
        """Reads the file now, whether it seems changed or not."""
        self._looked = self._clock()
        self._load(_stamp(self._path))

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


@lru_cache(maxsize=256)
def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _check_name(path: Path, name: str) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise ConfigError([Problem(str(path), "", f"{name!r} is no name: {error}.")]) from None


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lets one process at a time read the file and write it anew, so that none undoes what another
    has done. Raises ConfigError."""
    lock = target_of(path).with_name(f".{target_of(path).name}.lock")
    with _told(path):
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = _lock(lock)
    try:
        yield
    finally:
        if fcntl is None:
            os.close(held)  # nobody can remove an open file there
        with contextlib.suppress(OSError):
            lock.unlink()
        if fcntl is not None:
            os.close(held)


def _lock(lock: Path) -> int:
    """The lock, once no other process has it. One that ends lets go of it; where systems have no
    such locks, having made the file is having it."""
    ends = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            if fcntl is None:
                return os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            check_regular(lock)
            held = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, held):  # who had it before removes it
                    return held
            os.close(held)
        except FileExistsError:
            pass
        if time.monotonic() > ends:
            raise TimeoutError(errno.ETIMEDOUT, f"another process holds {lock.name}")
        time.sleep(LOCK_LOOK)


def _is_at(path: Path, held: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(held))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses, as a ConfigError."""
    try:
        yield
    except OSError as error:
        message = f"cannot be written: {error.strerror}."
        raise ConfigError([Problem(str(path), "", message)]) from None


def _write(path: Path, keys: tuple[Key, ...]) -> None:
    content = _KeyFile(keys=keys).model_dump(mode="json", exclude_none=True)
    text = json.dumps(content, indent=2) + "\n"
    with _told(path):
        replace_whole(target_of(path), text.encode())
