"""What a request may need of a model, in words, and the dead ends that a combo accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from krouter.problems import did_you_mean

WORDS = ("image", "pdf", "audio", "video", "tools", "json")
"""In the order in which they are named. `json` is an answer that keeps to a JSON schema."""
_WORD = rf"(?:{'|'.join(WORDS)}|> ?\d{{1,12}}(?:\.\d{{1,6}})? ?[kM]?)"
PATTERN = rf"^ *{_WORD}(?: *\+ *{_WORD})* *$"
"""What an editor holds an `accept` against."""
_SIZE = re.compile(r"> ?(\d{1,12}(?:\.\d{1,6})?) ?([kM]?)")
_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000}


class Wants(NamedTuple):
    """What one request needs: some of `WORDS`, and room for `size` tokens, 0 where any model has
    it."""

    words: frozenset[str] = frozenset()
    size: int = 0

    def holds(self, other: Wants) -> bool:
        """Whether it needs all that `other` does."""
        return other.words <= self.words and other.size <= self.size

    @property
    def weight(self) -> tuple[int, int, list[int]]:
        """What there are fewer needs in comes first."""
        places = sorted(map(WORDS.index, self.words))
        return len(places) + (self.size > 0), self.size, places


class Accepted(NamedTuple):
    """One of a combo's `accept`: what needs all of `words` in a request of more than `over`
    tokens."""

    words: frozenset[str]
    over: int = 0

    def covers(self, words: Iterable[str], over: int) -> bool:
        """Whether it accepts that what needs `words` is a dead end above `over` tokens."""
        return self.words <= set(words) and self.over <= over


def read_accept(text: str) -> Accepted:
    """`"image+pdf"` or `"tools+>200k"`, taken apart. Raises ValueError for any other word."""
    words: set[str] = set()
    over = 0
    for part in map(str.strip, text.split("+")):
        if size := _SIZE.fullmatch(part):
            over = max(over, round(float(size[1]) * _FACTORS[size[2]]))
        elif part in WORDS:
            words.add(part)
        else:
            raise ValueError(_unknown(part))
    return Accepted(frozenset(words), over)


def _unknown(part: str) -> str:
    known = f"known: {', '.join(WORDS)}, and a size such as >200k, joined by +"
    guess = did_you_mean(part, WORDS)
    return f"{part!r} is nothing that a request needs; {known}" + (f". {guess}" if guess else "")


def named(words: Iterable[str], over: int = 0) -> str:
    """`image + pdf`, `tools over 200,000 tokens`; as people read it."""
    told = " + ".join(sorted(words, key=WORDS.index))
    size = f"over {over:,} tokens" if over else ""
    return " ".join(filter(None, (told, size))) or "any request"


def written(words: Iterable[str], over: int = 0) -> str:
    """The same as `accept` has it."""
    return "+".join((*sorted(words, key=WORDS.index), *([f">{over}"] if over else [])))
