from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote

import pytest

from krouter.blot import blotted, blotted_text, quotes
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
