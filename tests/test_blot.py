from __future__ import annotations

import json

import pytest

from krouter.blot import blotted, blotted_text
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


def test_what_a_request_carries() -> None:
    headers = [
        ("authorization", "Bearer a-long-credential"),
        ("x-api-key", "sk-12345"),
        ("x-goog-api-key", "lm-studio"),
        ("api-key", "not ascii é and long"),
        ("x-other", "another-long-value"),
    ]
    found = carried(headers, "alt=sse&key=in-the-query-string")
    assert found == {"a-long-credential", "sk-12345", "in-the-query-string"}
