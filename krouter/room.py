"""What is left for a judge: of its window, and of its accounts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from krouter.board import Pair
from krouter.body import Body
from krouter.bounds import Bounds
from krouter.dialects.base import as_count
from krouter.estimate import IMAGE
from krouter.lineup import Obstacle, Site, candidates, leaves
from krouter.progress import Progress

UNKNOWN_WINDOW = 128_000
"""Tokens, where none of the judge's models has a window that is known."""
UNKNOWN_OUTPUT = 8_192
"""Tokens that are kept free for the judge's own answer, where the request names no limit."""
LEAST_PART = 8
"""At least this part of the window is for the answers, however long the request is."""
SPARE_PART = 16
"""This part of the window stays free, since tokens are only estimated."""
OWN_WORDS = 6_000
"""Bytes of what krouter tells the judge around the answers, on the safe side."""
BYTES_PER_TOKEN = 3
"""Of UTF-8, on the safe side: English has about four, Chinese, Japanese and Korean three."""

_LIMITS: Mapping[str, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
}
_ATTACHED = re.compile(rb"[A-Za-z0-9+/]{4096,}")


def room_for_answers(site: Site, progress: Progress, instructions: str) -> int:
    """Bytes of UTF-8 that the answers of a panel may take together, so that they fit beside the
    request and the judge's `instructions` into the smallest window among its models."""
    bounds = Bounds(progress.world)
    found = (bounds.window(leaf) for leaf in leaves(site, progress.world, progress.ask))
    window = min(filter(None, found), default=UNKNOWN_WINDOW)
    body = progress.call.body
    output = min(_output(progress.call.dialect.name, body), window // 4)
    told = (len(instructions.encode("utf-8", "replace")) + OWN_WORDS) // BYTES_PER_TOKEN
    tokens = window - window // SPARE_PART - output - told - _tokens(body.raw, window)
    return max(tokens, window // LEAST_PART) * BYTES_PER_TOKEN


def full_accounts(site: Site, progress: Progress) -> frozenset[Pair]:
    """The accounts that whoever stands at `site` would have to wait for; none where one is free."""
    found: set[Pair] = set()
    for leaf in leaves(site, progress.world, progress.ask):
        accounts = leaf.obstacle or candidates(leaf, progress.world, progress.ask)
        for candidate in () if isinstance(accounts, Obstacle) else accounts:
            if not progress.has_room(candidate):
                found.add((candidate.account.provider, candidate.account.name))
            elif progress.blocked(candidate) is None:
                return frozenset()
    return frozenset(found)


def out_of_question(site: Site, progress: Progress) -> str:
    """Why nothing can be sent to anybody at `site`, whatever is locked; empty where it can."""
    reasons = []
    for leaf in leaves(site, progress.world, progress.ask):
        found = leaf.obstacle or candidates(leaf, progress.world, progress.ask)
        if not isinstance(found, Obstacle):
            return ""
        reasons.append(f"{leaf.name}: {found.reason}{f' ({found.detail})' if found.detail else ''}")
    return "; ".join(dict.fromkeys(reasons))


def _output(dialect: str, body: Body) -> int:
    if dialect == "gemini":
        config = body.value("generationConfig") or body.value("generation_config")
        given = [config.get("maxOutputTokens") if isinstance(config, dict) else None]
    else:
        given = [body.value(name) for name in _LIMITS.get(dialect, ())]
    return next(filter(None, map(as_count, given)), UNKNOWN_OUTPUT)


def _tokens(raw: bytes, window: int) -> int:
    """What a request takes. Attachments are looked for only where their bytes could matter."""
    if len(raw) <= window:
        return len(raw) // BYTES_PER_TOKEN
    attached = [len(match[0]) for match in _ATTACHED.finditer(raw)]
    return (len(raw) - sum(attached)) // BYTES_PER_TOKEN + len(attached) * IMAGE
