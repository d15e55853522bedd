from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.blot import blotted, blotted_text, quotes, unquoting
from krouter.callers import carried


@pytest.mark.parametrize("secret", ["sk-plain", "with/slash==", 'with"quote'])
def test_a_secret_goes_however_json_writes_it(secret: str) -> None:
    quoted = json.dumps({"a": secret})
    for said in (secret, quoted, quoted.replace("/", "\\/")):
        left = blotted(f"<{said}>".encode(), ["", "other", secret])
        assert b"[credential]" in left
        assert secret[-6:].encode() not in left


def test_a_secret_that_begins_like_another_leaves_nothing_behind() -> None:
    assert blotted_text("a-key-longer é", ["a-key", "a-key-longer"]) == "[credential] é"


HARD = "sk/9f86d081+884c&7d65='=="


@pytest.mark.parametrize("before", ["", "u:", "user:", "Bearer "])
def test_a_secret_goes_however_it_is_encoded(before: str) -> None:
    whole = before + HARD
    small = re.sub("%..", lambda found: found[0].lower(), quote(HARD, safe=""))
    careful = "".join(f"\\u{ord(c):04x}" if c in "&<>='" else c for c in HARD)
    encoded = [base64.b64encode(whole.encode()), base64.urlsafe_b64encode(whole.encode())]
    said = [quote(HARD), quote(HARD, safe=""), small, careful, html.escape(HARD)]
    for each in (*encoded, *(text.encode() for text in said)):
        left = blotted(b"x " + each + b" y", [HARD])
        assert b"[credential]" in left
        assert b"884c" not in left
        assert len(left) < len(each)
        assert quotes(each.decode(), [None, "", HARD])
    assert not quotes("x", [HARD])


def odd_forms(secret: str) -> list[str]:
    """As nobody has to write it, and some do."""
    escaped = "".join(f"\\u{ord(c):04x}" for c in secret)
    return [
        escaped,
        escaped.upper().replace("\\U", "\\u"),
        json.dumps(escaped)[1:-1],
        json.dumps(json.dumps(escaped)[1:-1])[1:-1],
        f"\\u{ord(secret[0]):04x}{secret[1:]}",
        secret[:-1] + f"\\u{ord(secret[-1]):04X}",
        secret[:5] + escaped[30:],
        "".join(f"%{ord(c):02X}" for c in secret),
        "".join(f"&#{ord(c)};" for c in secret),
        "".join(f"&#x{ord(c):x};" for c in secret),
        secret.encode("utf-16-le").decode(),
        secret.encode("utf-16-be").decode(),
    ]


@pytest.mark.parametrize("secret", ["sk-canary-ab12cd34", HARD])
@pytest.mark.parametrize("form", range(len(odd_forms(HARD))))
def test_a_secret_goes_whose_characters_are_escaped_without_need(secret: str, form: int) -> None:
    said = odd_forms(secret)[form]
    error = f'{{"a":"\\n\\u0041 {said} \\u00e4 {said}{said}\\u0042\\\\"}}'
    mark, end = "[credential]", said[len(said.rstrip("\0")) :]
    left = blotted_text(error, ["other", secret])
    start = said[: len(said) - len(said.lstrip("\0"))]
    gone = f"{start}{mark}{end}"
    assert left == f'{{"a":"\\n\\u0041 {gone} \\u00e4 {gone}{gone}\\u0042\\\\"}}'
    assert quotes(said, [secret])
    assert not quotes(error, ["sk-another"])


def test_many_backslashes_are_read_in_no_time() -> None:
    raw = b"\\" * (1 << 20) + b'"'
    assert blotted(raw, [HARD]) == raw


def test_a_header_goes_that_holds_a_secret_in_its_name() -> None:
    headers = [("x-a", "b"), ("x-sk-canary-ab12", "c"), ("X-SK-Canary-AB12", ""), ("d", "%41")]
    assert unquoting(headers, [None, "", "sk-CANARY-ab12"]) == [("x-a", "b"), ("d", "%41")]


def test_a_short_secret_is_not_looked_for_in_base64() -> None:
    assert blotted(base64.b64encode(b"a-key"), ["a-key"]) == base64.b64encode(b"a-key")


def test_what_a_request_carries() -> None:
    headers = [
        ("authorization", "Bearer a-long-credential"),
        ("x-api-key", "sk-12345"),
        ("x-goog-api-key", "lm-studio"),
        ("api-key", "not ascii é and long"),
        ("x-other", "another-long-value"),
    ]
    found = carried(headers, "alt=sse&key=in-the-query-string&access%5ftoken=so-is-this-one")
    assert found == {"a-long-credential", "sk-12345", "in-the-query-string", "so-is-this-one"}


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))
def test_no_way_to_write_a_secret_is_shorter_than_it_is(secret: str) -> None:
    ways = [secret, *odd_forms(secret), quote(secret), json.dumps(secret)[1:-1]]
    for said in (way for way in ways if quotes(way, [secret])):
        assert unquoting([("x-said", said)], [secret]) == []
        assert len(said) >= len(secret)
