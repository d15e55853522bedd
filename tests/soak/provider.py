"""A provider that fails three times in ten, in every way it knows, and echoes each nonce."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence

from tests.upstream import Upstream
from tests.upstream.book import Request
from tests.upstream.script import Behaviour, parse

NONCE = re.compile(rb"nonce-[0-9a-f]{16}")
FAILING = 0.3

STATUSES = (400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529)
WAYS = (
    *(f"status={status}" for status in STATUSES),
    "status=429;retry-after=1",
    "status=429;retry-after=86400",
    "status=500;garbage=html",
    "error=0",
    "error=2",
    "error=json",
    "empty=missing",
    "empty=list",
    "empty=text",
    "empty=null",
    "empty=done",
    "empty=events",
    "empty=comments;chunks=40",
    "garbage=html",
    "garbage=text",
    "garbage=json",
    "garbage=none",
    "garbage=cut",
    "no=finish",
    "no=done",
    "no=usage",
    "reset",
    "close",
    "reset=0",
    "close=0",
    "reset=2",
    "close=2",
    "reset=2;half",
    "close=1;half",
    "end=0",
    "end=2",
    "end=2;half",
    "header-x-long=" + "a" * 70_000,
)
LOCKING = ("401", "402", "403", "404", "429")
PASSING = tuple(way for way in WAYS if not any(status in way for status in LOCKING))
"""Ways that keep nobody else from the account."""
LASTING = ("status=401", "status=402", "status=403", "status=404", "status=429;retry-after=86400")
"""Ways after which an account or a model is left alone for minutes or hours. They befall only two
accounts and one model, so that all others go on to serve."""
FATED = ("one-c", "two-z", "m3")
INSTEAD = "status=529"
SILENT = ("stall", "stall=0", "stall=2", "stall=2;half")
"""Ways that take as long as the limits on silence."""
SOUND = ("", "split=7", "gzip", "chunks=20", "slow-each=0", "sse=crlf,tight", "slow-headers=0.01")

WAITS = re.compile(r"\A(?:|split|chunks|slow|sse|error=2|(?:reset|close|end)=2|no=)(?:[=;-]|\Z)")
"""Ways in which a first event comes, so that a stream may wait after it."""


def answer_to(nonce: str) -> str:
    """Long enough for several events, and with its nonce in each place where it may be cut."""
    return f"begin {nonce} middle {nonce} end {nonce}"


class Provider:
    """How each request is answered hangs on its nonce and on how often that has come, so that a
    seed gives the same again. `more` is what a stream does besides, such as to wait at a gate."""

    def __init__(self, upstream: Upstream, seed: int, ways: Sequence[str], more: str = "") -> None:
        self.met: dict[str, list[str]] = defaultdict(list)
        """What befell each nonce; a sound way is empty."""
        self._seed, self._ways, self._more = seed, ways, more
        upstream.clear()
        upstream.script("*", [self._behave])

    def _behave(self, request: Request) -> Behaviour:
        found = NONCE.search(request.body)
        assert found, "a question without its nonce"
        nonce = found[0].decode()
        met = self.met[nonce]
        dice = self._dice(f"{nonce} {len(met)}")
        if dice % 1000 < FAILING * 1000:
            way = self._ways[dice // 1000 % len(self._ways)]
            if way in LASTING and not _is_fated(request, way):
                way = INSTEAD
            met.append(way)
        else:
            way = SOUND[dice // 1000 % len(SOUND)]
            met.append("")
        more = self._more if WAITS.search(way) else ""
        words = (f"text={answer_to(nonce)}", "chunks=6" * ("chunks" not in way), way, more)
        return parse(";".join(filter(None, words)))

    def _dice(self, text: str) -> int:
        digest = hashlib.blake2b(f"{self._seed} {text}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")


def _is_fated(request: Request, way: str) -> bool:
    return (request.model if way == "status=404" else request.credential) in FATED
