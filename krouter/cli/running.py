"""Asking the krouter that is running, over its own API."""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import click

from krouter.cli.common import Unreachable
from krouter.cli.output import inert
from krouter.paths import Paths
from krouter.settings import load_settings

KEY = "KROUTER_KEY"
SECONDS = 10.0
LOOK_SECONDS = 2.0
"""How long to wait where an answer is only good to have."""
MOST_BYTES = 64 * 2**20
"""What an answer may hold."""
LONGEST_PATH = 4096
NAME_ONE = "name one with --url."
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104

url_option = click.option(
    "--url",
    metavar="URL",
    help=f"The running krouter. Default: the host and port of krouter.toml. Where it asks for a"
    f" key, the variable {KEY} holds one.",
)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key goes nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Refused(click.ClickException):
    """The running krouter's own error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(inert(message))
        self.status = status


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whatever its status; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Raises ValueError."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    @property
    def told(self) -> str | None:
        """The message of an error in any dialect."""
        try:
            return str(self.json["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return None


def ask_health(paths: Paths) -> tuple[str, dict[str, Any]]:
    """Where the krouter of these settings would be, and what it says of itself. Raises
    ClickException, ConfigError."""
    base = base_of(paths, None)
    return base, health_of(base, os.environ.get(KEY))


def health_of(base: str, key: str | None) -> dict[str, Any]:
    """What the krouter at `base` says of itself to one who has `key`, which is sent to nothing but
    a krouter. Raises ClickException."""
    if key:
        health_of(base, None)
    told = health_in(ask_at(base, "/health", key=key, seconds=LOOK_SECONDS))
    if told is None:
        raise no_krouter(base)
    return told


def lets_in(base: str, key: str | None) -> bool:
    """Whether the krouter at `base` lets those in who come with `key`. Raises ClickException."""
    return "home" in health_of(base, key) or (key is not None and is_key(base, key))


def is_key(base: str, key: str) -> bool:
    """Whether the krouter at `base` knows `key`, by its list of models: of a key with limits
    /health tells no more than of none. Raises ClickException."""
    try:
        ask_at(base, "/v1/models", key=key, seconds=LOOK_SECONDS)
    except Refused as error:
        if error.status != 401:
            raise
        return False
    return True


def health_in(told: Any) -> dict[str, Any] | None:
    """What a krouter says of itself; None for what none would say."""
    if not isinstance(told, dict) or told.get("name") != "krouter":
        return None
    if not isinstance(told.get("version"), str) or not _is_path(told.get("home", "/")):
        return None
    problems = told.get("problems", [])
    if not isinstance(problems, list) or not all(isinstance(each, str) for each in problems):
        return None
    return told


def _is_path(told: Any) -> bool:
    if not isinstance(told, str) or "\0" in told:
        return False
    try:
        return 0 < len(os.fsencode(told)) < LONGEST_PATH
    except UnicodeEncodeError:
        return False


def ask(
    paths: Paths, url: str | None, path: str, body: Any = None, *, seconds: float = SECONDS
) -> Any:
    """The JSON at `path`; `body` makes it a POST. Raises ClickException for whatever is no
    answer."""
    base, key = base_of(paths, url), os.environ.get(KEY)
    if key:
        health_of(base, None)
    return ask_at(base, path, body, key=key, seconds=seconds)


def ask_at(
    base: str, path: str, body: Any = None, *, key: str | None, seconds: float = SECONDS
) -> Any:
    """The JSON at `path` of the krouter at `base`. Raises ClickException for whatever is no
    answer."""
    headers = {"x-krouter-key": key} if key else {}
    try:
        reply = fetch(f"{base}{path}", body, headers, seconds)
        if reply.status >= 300:
            raise Refused(reply.status, _refusal(base, reply))
        return reply.json
    except OSError as error:
        message, hint = silence(base, error)
        raise Unreachable(f"{message} {hint}") from None
    except (ValueError, HTTPException):
        raise no_krouter(base) from None


def fetch(url: str, body: Any, headers: Mapping[str, str], seconds: float) -> Reply:
    """What `url` answers; through no proxy, in twice `seconds` at most. Raises OSError,
    HTTPException for what is no HTTP or has no end."""
    came: list[Reply | Exception] = []

    def work() -> None:
        try:
            came.append(_fetch(url, body, headers, seconds))
        except (OSError, HTTPException) as error:
            came.append(error)
        except ValueError:  # its text could hold the key
            why = "the address or the key holds what cannot be sent"
            came.append(OSError(errno.EINVAL, why))

    # A socket's timeout starts again with every byte, so the whole is waited for elsewhere.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(2 * seconds)
    if not came:
        raise TimeoutError("timed out")
    if isinstance(came[0], Exception):
        raise came[0]
    return came[0]


def _fetch(url: str, body: Any, headers: Mapping[str, str], seconds: float) -> Reply:
    data = None if body is None else json.dumps(body).encode()
    kind = {"content-type": "application/json"} if body is not None else {}
    request = urllib.request.Request(url, data, {**kind, **headers})  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        with opener.open(request, timeout=seconds) as reply:
            return Reply(reply.status, _lower(reply.headers), _read(reply))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, _lower(error.headers), _read(error))


def _read(reply: Any) -> bytes:
    body: bytes = reply.read(MOST_BYTES + 1)
    if len(body) > MOST_BYTES:
        raise HTTPException("the answer has no end")
    return body


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def why_unreachable(error: OSError) -> str:
    """The reason in a few words."""
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def silence(base: str, error: OSError) -> tuple[str, str]:
    """Why no krouter answers at `base`, and what to do about it."""
    why, reason = why_unreachable(error), getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLError):
        message = f"no krouter answers at {base}: what listens there speaks no https ({why})."
        return message, f"krouter itself speaks http: give --url http://{base.partition('://')[2]}"
    if isinstance(reason, TimeoutError):
        message = f"no krouter answers at {base}: what listens there does not answer."
        return message, "Restart it, or look at what else uses that port."
    hint = "Start one with krouter serve, or name another with --url."
    if isinstance(reason, socket.gaierror):
        hint = "Name another with --url."
    return f"no krouter answers at {base} ({why}).", hint


def no_krouter(base: str) -> Unreachable:
    """For what answers as no krouter does."""
    return Unreachable(f"another program answers at {base}, which is no krouter: {NAME_ONE}")


def base_of(paths: Paths, url: str | None) -> str:
    """Where the krouter is that `url` names, else the one of the settings. Raises BadParameter,
    ConfigError."""
    if url:
        if not _is_url(url):
            message = "must be an http:// URL with a host, without a user name or a query."
            if "://" not in url and _is_url(f"http://{url}"):
                message = f"must be an http:// URL with a host: http://{url}"
            raise click.BadParameter(message, param_hint="--url")
        return url.rstrip("/")
    server = load_settings(paths.config).server
    host = _EVERYWHERE.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        is_bare = not (parts.query or parts.fragment or "@" in parts.netloc)
        is_plain = parts.path.isascii() and url.isprintable() and " " not in url
        return bool(parts.scheme in ("http", "https") and host and parts.port != 0) and (
            is_bare and is_plain
        )
    except ValueError:  # of a port that is none, half an IPv6 address, or a label that is too long
        return False


def _refusal(base: str, reply: Reply) -> str:
    if reply.told is None:
        return f"{base} answers {reply.status}: is it a krouter of this version?"
    hint = f" Put one into the variable {KEY}." if reply.status == 401 else ""
    return f"{reply.told}{hint}"
