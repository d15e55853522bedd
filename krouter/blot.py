"""Secrets taken out of what comes back from a provider."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, quote_plus

BLOT = b"[credential]"
_SMALL = re.compile("%..")
_LEAST_IN_BASE64 = 12
"""Bytes of a secret that are looked for in base64, where few letters would stand anywhere."""


def blotted(raw: bytes, secrets: Iterable[str]) -> bytes:
    """`raw` without any of the secrets, in whatever way they are written: as they are, or as JSON,
    a URL, HTML or base64 has them."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in _forms(secret):
            if form in raw:
                raw = raw.replace(form, BLOT)
    return raw


def blotted_text(text: str, secrets: Iterable[str]) -> str:
    """The same of a text."""
    return blotted(text.encode("utf-8", "replace"), secrets).decode("utf-8", "replace")


def quotes(text: str, secrets: Iterable[str | None]) -> bool:
    """Whether any of the secrets stands there, in whatever way it is written."""
    raw = text.encode("utf-8", "replace")
    for secret in secrets:
        if secret:
            for form in _forms(secret):
                if form in raw:
                    return True
    return False


@lru_cache(maxsize=256)
def _forms(secret: str) -> tuple[bytes, ...]:
    """The longer ones first, so that none leaves its end behind."""
    quoted = json.dumps(secret)[1:-1]
    careful = quoted  # as encoders have it that think of HTML
    for character in "&<>='":
        careful = careful.replace(character, f"\\u{ord(character):04x}")
    percent = quote(secret, safe="")
    texts = [secret, quoted, quoted.replace("/", "\\/"), careful, careful.replace("/", "\\/")]
    texts += [
        percent,
        _SMALL.sub(_lowered, percent),
        quote(secret),
        quote_plus(secret),
        html.escape(secret),
    ]
    forms = {text.encode("utf-8", "replace") for text in texts} | _in_base64(secret)
    return tuple(sorted(forms, key=len, reverse=True))


def _lowered(found: re.Match[str]) -> str:
    return found[0].lower()


def _in_base64(secret: str) -> set[bytes]:
    """What of base64 is the secret's alone, wherever in the whole it stands."""
    raw, found = secret.encode("utf-8", "replace"), set[bytes]()
    if len(raw) < _LEAST_IN_BASE64:
        return found
    for before in range(3):
        whole = b64encode(b"\0" * before + raw)
        first = -(-before * 8 // 6)
        own = whole[first : (before + len(raw)) * 8 // 6]
        found |= {own, own.translate(bytes.maketrans(b"+/", b"-_"))}
    return found
