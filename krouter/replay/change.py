"""Combos as they are to be, beside those that a record was made with."""

from __future__ import annotations

from collections.abc import Mapping

from krouter.combos import LEVELS, Combo, reference
from krouter.records import ordering


class Change:
    """`new` are the combos as they are to be: all of them (`whole`), or those in which they differ
    from what a record has. Of a combo that no record has, `today` tells what it was."""

    def __init__(
        self, new: Mapping[str, Combo], today: Mapping[str, Combo], *, whole: bool
    ) -> None:
        self.new, self.today, self.whole = new, today, whole
        self._alike: dict[tuple[int, int], tuple[Combo, Combo, bool]] = {}

    def nothing(self) -> Change:
        """No change at all."""
        return Change({}, self.today, whole=False)

    def now(self, name: str, then: Combo | None = None) -> Combo | None:
        """The combo of that name as it is to be; None where there will be none."""
        if name in self.new:
            return self.new[name]
        if self.whole:
            return None
        today = self.today.get(name)
        if then is None or today is None:
            return then or today
        return today if self._are_alike(then, today) else then

    def differs(self, name: str, then: Combo | None = None) -> bool:
        """Whether it is to be another one than it was, as far as a record can tell."""
        was, now = then or self.today.get(name), self.now(name, then)
        if was is None or now is None:
            return was is not now
        return was is not now and not self._are_alike(was, now)

    def differs_within(self, name: str, then: Combo | None = None, level: int = 1) -> bool:
        """The same, of it or of a combo inside it."""
        if self.differs(name, then):
            return True
        now = self.now(name, then)
        inner = [reference(entry.model) for entry in now.models] if now else []
        if now is not None and now.strategy == "fusion" and now.judge_name:
            inner.append(reference(now.judge_name))
        return level < LEVELS and any(
            self.differs_within(each, None, level + 1) for each in inner if each is not None
        )

    def _are_alike(self, was: Combo, now: Combo) -> bool:
        key = id(was), id(now)
        known = self._alike.get(key)
        if known is None or known[0] is not was or known[1] is not now:
            known = self._alike[key] = was, now, _are_alike(was, now)
        return known[2]


def _are_alike(was: Combo, now: Combo) -> bool:
    """A judge under its second spelling stands in no record of a combo, but in what it has said."""
    hidden = now.strategy == "fusion" and now.judge is None and now.judge_name is not None
    return not hidden and ordering(was) == ordering(now)
