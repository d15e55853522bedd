"""Secrets taken out of what comes back from a provider."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, quote_plus

Pairs = list[tuple[str, str]]
BLOT = b"[credential]"
_ESCAPED = re.compile(
    rb"""\\{1,8}(?:u00(?P<json>[2-7][0-9a-fA-F])|(?P<itself>["/]))"""
    rb"""|%(?P<percent>[2-7][0-9a-fA-F])"""
    rb"""|&\#0{0,8}(?:(?P<decimal>3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6])|[xX]0{0,8}(?P<hex>[2-7][0-9a-fA-F]));?"""
)
"""One printable character of ASCII, however often JSON has been put into JSON."""
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
        whole = secret.encode("utf-8", "replace")
        if whole in _plain(raw):
            raw = _without(raw, whole)
    return raw


def blotted_text(text: str, secrets: Iterable[str]) -> str:
    """The same of a text."""
    return blotted(text.encode("utf-8", "replace"), secrets).decode("utf-8", "replace")


def quotes(text: str, secrets: Iterable[str | None]) -> bool:
    """Whether any of the secrets stands there, in whatever way it is written."""
    raw = text.encode("utf-8", "replace")
    plain = _plain(raw)
    for secret in filter(None, secrets):
        for form in _forms(secret):
            if form in raw:
                return True
        if plain and secret.encode("utf-8", "replace") in plain:
            return True
    return False


def unquoting(headers: Pairs, secrets: Iterable[str | None]) -> Pairs:
    """The headers that hold none of the secrets: neither in the value, nor in the name, whose case
    says nothing."""
    given = [secret for secret in secrets if secret]
    if not given:
        return headers
    lowered = [secret.lower() for secret in given]
    shortest = min(map(len, given))  # which no way to write it makes shorter
    values = [value for _, value in headers if len(value) >= shortest]
    names = [name.lower() for name, _ in headers if len(name) >= shortest]
    if values and quotes("\n".join(values), given):
        headers = [pair for pair in headers if not quotes(pair[1], given)]
    if names and quotes("\n".join(names), lowered):
        headers = [pair for pair in headers if not quotes(pair[0].lower(), lowered)]
    return headers


def _plain(raw: bytes) -> bytes:
    """`raw` as it reads where single characters are escaped that need not be."""
    if b"\\" in raw or b"%" in raw or b"&#" in raw:
        return _ESCAPED.sub(_read, raw)
    return b""  # it reads as it stands


def _read(found: re.Match[bytes]) -> bytes:
    if found["itself"]:
        return found["itself"]
    if found["decimal"]:
        return bytes([int(found["decimal"])])
    return bytes([int(found["json"] or found["percent"] or found["hex"], 16)])


def _without(raw: bytes, secret: bytes) -> bytes:
    """`raw` less what reads as the secret."""
    plain, reads, stands, at = bytearray(), [0], [0], 0
    for found in _ESCAPED.finditer(raw):
        plain += raw[at : found.start()]
        reads.append(len(plain))
        stands.append(found.start())
        plain += _read(found)
        reads.append(len(plain))
        stands.append(at := found.end())
    plain += raw[at:]

    def place(position: int) -> int:
        nearest = bisect_right(reads, position) - 1
        return stands[nearest] + position - reads[nearest]

    kept, end, begin = [], 0, plain.find(secret)
    while begin >= 0:
        kept.append(raw[end : place(begin)])
        end = place(begin + len(secret))
        begin = plain.find(secret, begin + len(secret))
    return BLOT.join([*kept, raw[end:]])


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
    forms.add("\0".join(secret).encode("utf-8", "replace"))  # UTF-16, read as bytes
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
