"""A model's name may become part of a provider's address, and must lead nowhere else in it."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

import pytest
from krouter_adapters.native_lane import build
from krouter_adapters.rows import load_rows

from krouter.adapter import Target, Unsendable
from krouter.wire import Outgoing
from tests.adapters.lanes import FakeWire, ask, call, provider
from tests.adapters.test_litellm_ways import CALLED, OVER_HTTP, SIGNED

BASE = "https://api.example/base/v1"
TRICKS = [
    "../../../admin/keys",
    "..",
    "..;/..;/admin",
    "x/../../../admin",
    "models/../../../admin",
    "x/..",
    "%2e%2e/%2e%2e/admin",
    "..%2f..%2fadmin",
    "..\\..\\admin",
    "x?api-version=1&admin=1",
    "x#admin",
    "//evil.example/x",
    "@evil.example/x",
    ".evil.example",
    "x\0y",
    "x\r\nX-Evil: 1",
]


def leads_astray(url: str, base: str) -> bool:
    """Whether it is another address than one below `base` that a cautious server would take."""
    parts, own = urlsplit(url), urlsplit(base)
    steps = [step.partition(";")[0] for step in re.split(r"[/\\]", unquote(parts.path))]
    if (parts.scheme, parts.netloc) != (own.scheme, own.netloc) or parts.fragment:
        return True
    return ".." in steps or "." in steps or "admin=1" in parts.query or not url.isprintable()


def addresses(name: str, model: str, stream: bool) -> list[Outgoing]:
    wire = FakeWire(b"{}")
    try:
        ask(call("chat", stream), provider(name, BASE), model, "AKIAXXXXXXXXXXXX:secret", wire)
    except Unsendable:
        return []
    except Exception:
        return wire.sent
    return wire.sent


@pytest.mark.parametrize("name", sorted({*OVER_HTTP, *CALLED, *SIGNED}))
def test_no_name_of_a_model_leads_out_of_a_providers_address(name: str) -> None:
    for trick in TRICKS:
        for model in (trick, f"gemini-1/{trick}", f"chat/1/{trick}", f"a.b.{trick}"):
            for sent in addresses(name, model, False):
                assert not leads_astray(sent.url, BASE), (model, sent.url)


@pytest.mark.parametrize("row", [row for row in load_rows() if row.base_urls], ids=lambda r: r.name)
def test_a_native_address_holds_one_name(row: object) -> None:
    for trick in TRICKS:
        for dialect in row.base_urls:  # type: ignore[attr-defined]
            asked = call(dialect if dialect != "gemini" else "chat")
            sent = build(asked, Target(row, trick, "key"))  # type: ignore[arg-type]
            assert quote(trick, safe="") in sent.url or trick not in unquote(sent.url)
