"""Secrets taken out of what comes back from a provider."""

from __future__ import annotations

import json
from collections.abc import Iterable

BLOT = b"[credential]"


def blotted(raw: bytes, secrets: Iterable[str]) -> bytes:
    """`raw` without any of the secrets, as they are or as JSON has them."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in _forms(secret):
            raw = raw.replace(form, BLOT)
    return raw


def blotted_text(text: str, secrets: Iterable[str]) -> str:
    """The same of a text."""
    return blotted(text.encode("utf-8", "replace"), secrets).decode()


def _forms(secret: str) -> Iterable[bytes]:
    """Some encoders escape a slash."""
    quoted = json.dumps(secret)[1:-1]
    return dict.fromkeys(form.encode() for form in (secret, quoted, quoted.replace("/", "\\/")))
