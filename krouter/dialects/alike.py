"""Events of a stream that differ from one before them in one text alone, as most of them do."""

from __future__ import annotations

import re

_INSIDE = rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
"""What may stand between the quotes of a text of JSON."""
_is_inside = re.compile(_INSIDE).fullmatch
_LONGEST_TAIL = 99
"""Bytes of what follows the text; to split at more is slow in CPython."""


def text_in(*names: str) -> re.Pattern[bytes]:
    """Finds the text that is not empty in one of the fields of `names`, as group 1.

    In JSON, a name in quotes with a colon and a quote behind it can only be a field and the begin
    of its text; so another text in its place makes JSON of the same form.
    """
    field = b"|".join(re.escape(name.encode()) for name in names)
    return re.compile(rb'"(?:%b)": ?"((?!")%b)"' % (field, _INSIDE))


class Alike:
    """Knows events by one of them that is known to be JSON, and finds those that are as this is,
    but for the text that `text` finds in it."""

    def __init__(self, text: re.Pattern[bytes]) -> None:
        self._find = text.search
        self._head = self._tail = b""

    def learn(self, event: bytes) -> None:
        """`event` is one line of JSON as its data, and nothing else."""
        found = self._find(event)
        if found is not None and len(event) - found.end(1) <= _LONGEST_TAIL:
            self._head, self._tail = event[: found.start(1)], event[found.end(1) :]

    def size(self, events: bytes) -> int:
        """How many bytes the first of some whole events have, as far as they are alike."""
        head, tail = self._head, self._tail
        if not head or not events.startswith(head):
            return 0
        begin = len(head)
        if events.endswith(tail) and _is_inside(events, begin, len(events) - len(tail)):
            return len(events)  # one event, as no text holds a tail
        texts = []
        for piece in events.split(tail)[:-1]:
            if not piece.startswith(head):
                break
            texts.append(piece[begin:])
        if not _is_inside(b" ".join(texts)):  # a blank, so that no escape is made of two of them
            texts = texts[: next(at for at, text in enumerate(texts) if not _is_inside(text))]
        return sum(map(len, texts)) + len(texts) * (begin + len(tail))
