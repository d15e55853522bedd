"""The pages: files of the package, read once, for whoever opens krouter in a browser.

They hold nothing that is not public, so they need no key; what they show they ask the API for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

from krouter.wire import Headers

FOLDER = Path(__file__).parent.parent / "pages"
PREFIX = "/pages/"
INDEX = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SAFE = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
"""No script, style or picture but krouter's own, no other host, in nobody's frame."""


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it is sent."""

    body: bytes
    kind: str
    tag: str


def read_pages(folder: Path = FOLDER) -> dict[str, Page]:
    """The files by their names: what is not here is not served, whatever a path says."""
    return {
        file.name: _page(file.read_bytes(), TYPES[file.suffix])
        for file in sorted(folder.iterdir())
        if file.suffix in TYPES
    }


def _page(body: bytes, kind: str) -> Page:
    return Page(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')


def wants_pages(headers: Headers) -> bool:
    """Whether a browser asks, rather than a program that reads text."""
    return any(name == "accept" and "text/html" in value.lower() for name, value in headers)


def is_page(path: str, headers: Headers) -> bool:
    """Whether what is asked for are the pages, which anyone may have."""
    return path.startswith(PREFIX) or (path == "/" and wants_pages(headers))


def add_files(app: FastAPI, pages: dict[str, Page]) -> None:
    """The files of the pages."""

    @app.get(f"{PREFIX}{{name}}")
    async def file(name: str, request: Request) -> Response:
        return answer(pages, name, request)


def answer(pages: dict[str, Page], name: str, request: Request) -> Response:
    """The file, or that the browser's own is still the same."""
    page = pages.get(name)
    if page is None:
        return Response(f"There is no page {name!r}.\n", 404, SAFE, "text/plain; charset=utf-8")
    headers = {**SAFE, "etag": page.tag, "vary": "accept"}
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    return Response(page.body, headers=headers, media_type=page.kind)
