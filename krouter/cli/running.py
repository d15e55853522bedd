"""Asking the krouter that is running, over its own API."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import click

from krouter.cli.common import Unreachable
from krouter.paths import Paths
from krouter.settings import load_settings

KEY = "KROUTER_KEY"
SECONDS = 10.0
LOOK_SECONDS = 2.0
"""How long to wait where an answer is only good to have."""
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
        super().__init__(message)
        self.status = status


def ask_health(paths: Paths) -> tuple[str, dict[str, Any]]:
    """Where the krouter of these settings would be, and what it says of itself. Raises
    ClickException, ConfigError."""
    told = ask(paths, None, "/health", seconds=LOOK_SECONDS)
    base = _base(paths, None)
    if not isinstance(told, dict) or "version" not in told:
        raise _no_krouter(base)
    return base, told


def ask(
    paths: Paths, url: str | None, path: str, body: Any = None, *, seconds: float = SECONDS
) -> Any:
    """The JSON at `path`; `body` makes it a POST. Raises ClickException for whatever is no
    answer."""
    base = _base(paths, url)
    headers = {"content-type": "application/json"} if body is not None else {}
    if key := os.environ.get(KEY):
        headers["x-krouter-key"] = key
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{base}{path}", data, headers)  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        with opener.open(request, timeout=seconds) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(error.code, _refusal(base, error)) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or reason
        hint = "start one with krouter serve, or name it with --url."
        raise Unreachable(f"no krouter answers at {base} ({why}): {hint}") from None
    except ValueError:
        raise _no_krouter(base) from None


def _no_krouter(base: str) -> Unreachable:
    return Unreachable(f"what answers at {base} is no krouter: name one with --url.")


def _base(paths: Paths, url: str | None) -> str:
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter("must be an http:// URL with a host.", param_hint="--url")
        return url.rstrip("/")
    server = load_settings(paths.config).server
    host = _EVERYWHERE.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def _refusal(base: str, error: urllib.error.HTTPError) -> str:
    try:
        told = json.load(error)["error"]["message"]
    except (ValueError, KeyError, TypeError, OSError):
        return f"{base} answers {error.code}: is it a krouter of this version?"
    hint = f" Put one into the variable {KEY}." if error.code == 401 else ""
    return f"{told}{hint}"
