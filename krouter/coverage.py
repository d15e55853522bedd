"""What a combo can answer: of every set of needs, whether some entry surely takes all of it, may
take it, or none does. Pure.

An entry takes a request where it gets the whole of it: one that reads no images is sent a request
without them, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations

from msgspec import Struct

from krouter.accepts import WORDS, Wants, read_accept
from krouter.accounts import Account
from krouter.adapter import lane_for
from krouter.catalog import MEDIA, Facts, Known, with_entry
from krouter.combos import LEVELS, Combo, Entry, FusionTuning, reference
from krouter.dialects import DIALECTS
from krouter.lineup import Site, leaves
from krouter.plan import Needs, rotates, strategy_of
from krouter.settings import DEFAULT_ACCOUNT
from krouter.standing import NO_ACCOUNT, plan_for, snapshot
from krouter.world import Ask, World

UNKNOWN_PROVIDER = "unknown provider"
DISPENSABLE = frozenset(("image", "tools"))
"""What a copy for a panel can be answered without: it has no tools, and where images are refused it
is sent again without them."""


class Model(Struct, frozen=True):
    """An entry that is no combo. `window` is in tokens; `missing` is why nothing can be sent to it
    at all."""

    name: str
    combos: tuple[str, ...]
    """Those that it stands in, the outermost first."""
    can: Mapping[str, Known]
    window: int | None = None
    missing: str = ""
    role: str = "entry"

    def takes(self, wants: Wants) -> Known:
        if self.missing:
            return Known.NO
        return weakest(chain((self.can[word] for word in wants.words), [self.fits(wants.size)]))

    def fits(self, size: int) -> Known:
        if not size:
            return Known.YES
        if self.window is None:
            return Known.UNKNOWN
        return Known.YES if self.window >= size else Known.NO


class Walk(Struct, frozen=True):
    """Entries one of which answers."""

    combo: str
    parts: tuple[Part, ...]

    def takes(self, wants: Wants) -> Known:
        return strongest(part.takes(wants) for part in self.parts)


class Panel(Struct, frozen=True):
    """Entries that are all asked, and who answers then; without a `judge` the first of them that
    has given an answer judges."""

    combo: str
    members: tuple[Part, ...]
    judge: Part | None
    tuning: FusionTuning

    def takes(self, wants: Wants) -> Known:
        """By who can give a usable answer, and what can become of each number of them."""
        if len(self.members) > self.tuning.max_panel:
            return Known.NO
        copy = Wants(wants.words - DISPENSABLE, wants.size)
        heard = [member.takes(copy) for member in self.members]
        sure, able = heard.count(Known.YES), len(heard) - heard.count(Known.NO)
        needed = min(self.tuning.min_panel, len(heard)) if self.tuning.require_quorum else 1
        ends: set[Known] = set()
        if sure < needed:
            ends.add(Known.NO)
        if able >= max(needed, 2):
            ends |= self._judged(wants, heard)
        if sure <= 1 <= able and needed == 1:
            ends |= {self._single(wants, place) for place in _lone(heard, sure)}
        return ends.pop() if len(ends) == 1 else Known.UNKNOWN

    def _judged(self, wants: Wants, heard: Sequence[Known]) -> set[Known]:
        """What can come of two answers or more."""
        judges = [self.judge] if self.judge else [self.members[place] for place in _first(heard)]
        best = self._best(wants, heard)
        return {self._answered(judge, wants, best) for judge in judges}

    def _best(self, wants: Wants, heard: Sequence[Known]) -> Known:
        """Whether the answer that stands in for the judge's is one to the whole request: which is
        the longest cannot be foreseen."""
        given = {self._returned(wants, n) for n, each in enumerate(heard) if each is not Known.NO}
        return given.pop() if len(given) == 1 else Known.UNKNOWN

    def _returned(self, wants: Wants, place: int) -> Known:
        """Its answer in the panel was one to the whole request if there were no tools in it."""
        return Known.NO if "tools" in wants.words else self.members[place].takes(wants)

    def _single(self, wants: Wants, place: int) -> Known:
        """What comes of one answer alone."""
        best = self._returned(wants, place)
        if self.tuning.on_single == "return":
            return best
        is_judged = self.judge is not None and self.tuning.on_single == "judge"
        asked = self.judge if is_judged and self.judge else self.members[place]
        return self._answered(asked, wants, best)

    def _answered(self, asked: Part, wants: Wants, best: Known) -> Known:
        """What comes of whoever is to answer the caller. Without the images it answers too, so that
        the `best` of the panel takes its place only where something else is refused."""
        found = asked.takes(wants)
        if self.tuning.on_judge_failure == "error":
            return found
        speaks = asked.takes(Wants(wants.words - {"image"}, wants.size))
        if speaks is not Known.UNKNOWN:
            return found if speaks is Known.YES else best
        return Known.NO if found is best is Known.NO else Known.UNKNOWN


Part = Model | Walk | Panel


def weakest(known: Iterable[Known]) -> Known:
    """Of what must all hold."""
    found = set(known)
    return next((each for each in (Known.NO, Known.UNKNOWN) if each in found), Known.YES)


def strongest(known: Iterable[Known]) -> Known:
    """Of what one is enough of."""
    found = set(known)
    return next((each for each in (Known.YES, Known.UNKNOWN) if each in found), Known.NO)


def _first(heard: Sequence[Known]) -> Iterator[int]:
    """Who may be the first of at least two that have answered."""
    for place, each in enumerate(heard):
        if each is Known.NO:
            continue
        if any(later is not Known.NO for later in heard[place + 1 :]):
            yield place
        if each is Known.YES:
            return


def _lone(heard: Sequence[Known], sure: int) -> Iterator[int]:
    """Who may be the only one that has answered."""
    wanted = Known.YES if sure else Known.UNKNOWN
    return (place for place, each in enumerate(heard) if each is wanted)


class DeadEnd(Struct, frozen=True):
    """Needs that nobody can answer, where fewer of them can be: those above `over` tokens, 0 for
    any size."""

    words: frozenset[str]
    over: int
    accepted: bool


class Coverage(Struct, frozen=True):
    """What one combo can answer. `pools` are the models that the vision adapter puts in front, by
    the attachments; `sizes` the windows of all, the smallest first, which is 0 where none is
    known."""

    combo: Combo
    top: Part
    pools: Mapping[Needs, tuple[Model, ...]]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({row.window for row in self.rows() if row.window})) or (0,)

    def rows(self) -> list[Model]:
        """Every model that can come to answer, once for each combo and role that it stands in."""
        pooled = {m.name: m for pool in self.pools.values() for m in pool}
        return [*models(self.top), *pooled.values()]

    def takes(self, wants: Wants) -> Known:
        pool = self.pools.get(frozenset(m for m in MEDIA if m in wants.words), ())
        return strongest(part.takes(wants) for part in (self.top, *pool))

    def every(self, sizes: Sequence[int] = ()) -> Iterator[Wants]:
        """Every set of needs, with room for each of `sizes`, or of its own, beyond the smallest;
        those that need less come first."""
        steps = (0, *(sizes or self.sizes)[1:])
        sets = chain.from_iterable(combinations(WORDS, n) for n in range(len(WORDS) + 1))
        found = [Wants(frozenset(words), size) for words in sets for size in steps]
        return iter(sorted(found, key=lambda wants: wants.weight))

    def dead_ends(self) -> list[DeadEnd]:
        """The smallest sets of needs that nobody can answer: first those that the combo does not
        accept, then those that it does."""
        dead = [wants for wants in self.every() if self.takes(wants) is Known.NO]
        accepted = {wants for wants in dead if self._accepts(wants)}
        groups = [[w for w in dead if w not in accepted], [w for w in dead if w in accepted]]
        return [
            DeadEnd(wants.words, self.below(wants.size), wants in accepted)
            for group in groups
            for wants in smallest(group)
        ]

    def below(self, size: int) -> int:
        """The window that is too small for a request of `size` tokens, and nothing larger is."""
        return max((each for each in self.sizes if each < size), default=0) if size else 0

    def _accepts(self, wants: Wants) -> bool:
        over = self.below(wants.size)
        return any(read_accept(each).covers(wants.words, over) for each in self.combo.accept)

    def accepts_nothing(self) -> list[int]:
        """The places in `accept` of what is none of the smallest dead ends."""
        dead = smallest(wants for wants in self.every() if self.takes(wants) is Known.NO)
        ends = [(wants.words, self.below(wants.size)) for wants in dead]
        told = enumerate(map(read_accept, self.combo.accept))
        return [place for place, each in told if not any(each.covers(*end) for end in ends)]


def smallest(found: Iterable[Wants]) -> list[Wants]:
    """Those that hold none of the others; sorted as `every` has them."""
    kept: list[Wants] = []
    for wants in sorted(found, key=lambda each: each.weight):
        if not any(wants.holds(other) for other in kept):
            kept.append(wants)
    return kept


def models(part: Part) -> Iterator[Model]:
    """Whoever can come to be asked, in the order of the file; a named judge after its panel."""
    if isinstance(part, Model):
        yield part
    elif isinstance(part, Walk):
        for each in part.parts:
            yield from models(each)
    else:
        for each in part.members:
            yield from (_with_role(model, "panel") for model in models(each))
        if part.judge is not None:
            yield from (_with_role(model, "judge") for model in models(part.judge))


def _with_role(model: Model, role: str) -> Model:
    return Model(model.name, model.combos, model.can, model.window, model.missing, role)


def cover(combo: Combo, world: World) -> Coverage:
    """What `combo` can answer in `world`, whatever is locked or learned there."""
    pools = {}
    for needs in attachments():
        found = snapshot(combo, world, Ask(next(iter(DIALECTS)), needs=needs), adapted=True)
        if found.pool:
            pools[needs] = tuple(_model(entry, (), world, "adapter") for entry in found.pool)
    return Coverage(combo, _part(combo, (combo.name,), world), pools)


def attachments() -> Iterator[Needs]:
    """Every set of attachments but the empty one."""
    sets = chain.from_iterable(combinations(MEDIA, n) for n in range(1, len(MEDIA) + 1))
    return map(frozenset, sets)


def _part(combo: Combo, names: tuple[str, ...], world: World) -> Part:
    parts = tuple(_entry(entry, names, world) for entry in combo.models)
    if not strategy_of(combo, world.settings.routing).fuses:
        return Walk(combo.name, parts)
    name = combo.judge_name
    judge = _entry(Entry.model_construct(model=name), names, world) if name else None
    return Panel(combo.name, parts, judge, combo.fusion_tuning)


def _entry(entry: Entry, names: tuple[str, ...], world: World) -> Part:
    name = reference(entry.model)
    if name is None:
        return _model(entry, names, world)
    inner = world.combos.get(name)
    if inner is None or len(names) >= LEVELS:
        return Model(name, names, _nothing(), missing="no such combo")
    return _part(inner, (*names, name), world)


def _nothing() -> dict[str, Known]:
    return dict.fromkeys(WORDS, Known.UNKNOWN)


def _model(entry: Entry, names: tuple[str, ...], world: World, role: str = "entry") -> Model:
    provider, model = world.registry.split(entry.model)
    if provider is None:
        return Model(entry.model, names, _nothing(), missing=UNKNOWN_PROVIDER, role=role)
    facts = with_entry(world.catalog.facts(provider, model), entry)
    missing = "" if any(world.accounts_of(provider.name, entry)) else NO_ACCOUNT
    if not any(lane_for(world.lanes, provider, dialect) for dialect in DIALECTS):
        missing = "out of reach"
    return Model(entry.model, names, abilities(facts), facts.window, missing, role)


def abilities(facts: Facts) -> dict[str, Known]:
    """What a model takes, by `WORDS`."""
    return dict(facts.reads) | {"tools": facts.tools, "json": facts.json_schema}


class Returned(Struct, frozen=True):
    """Requests of more than `over` tokens go back to the caller as too large for `by`, though
    another entry may have room."""

    over: int
    by: str


def returned(coverage: Coverage, world: World) -> list[Returned]:
    """What the combo's `onTooLarge` keeps from those with larger windows, in any turn; of a fusion,
    whose members do not return it, nothing."""
    combo, routing = coverage.combo, world.settings.routing
    if strategy_of(combo, routing).fuses:
        return []
    turns = len(combo.models) * (combo.sticky_limit or routing.combo_sticky_limit)
    found: dict[str, Returned] = {}
    for size in coverage.sizes[1:]:
        if coverage.takes(Wants(size=size)) is Known.NO:
            break
        for turn in range(turns if rotates(combo, routing) else 1):
            if by := _too_small(combo, world, size, turn):
                found.setdefault(by, Returned(coverage.below(size), by))
    return list(found.values())


def _too_small(combo: Combo, world: World, size: int, turn: int) -> str:
    """Whose too-large error goes back to the caller; empty where somebody may have room before."""
    ask = Ask(next(iter(DIALECTS)), turn=lambda name: turn)
    site = Site((plan_for(combo, world, ask),), world.settings.timeouts)
    by, within = "", 0
    for leaf in leaves(site, world, ask, flat=False):
        nest = [plan.combo for plan in leaf.nest]
        if by and any(outer.on_too_large == "return" for outer in _left(nest, within)):
            return by
        within = min(within, len(nest))
        if leaf.fusion is not None or leaf.obstacle is not None:
            return ""
        if _model(leaf.entry, (), world).fits(size) is not Known.NO:
            return ""
        if leaf.combo.on_too_large == "return":
            return leaf.name
        by, within = by or leaf.name, len(nest)
    return ""


def _left(nest: Sequence[Combo], within: int) -> Sequence[Combo]:
    """The combos around that decide, once the walk has come out of the one at level `within`."""
    return nest[-1:] if len(nest) < within else ()


def furnished(world: World) -> World:
    """The same with an account for every provider that has none, so that only the files count."""
    named = _named_accounts(world)
    accounts = {
        name: given or tuple(Account(name, n) for n in named.get(name, (DEFAULT_ACCOUNT,)))
        for name, given in world.accounts.items()
    }
    return replace(world, accounts=accounts)


def _named_accounts(world: World) -> dict[str, tuple[str, ...]]:
    """The accounts that entries name, by provider, with the one that is there without a name."""
    found: dict[str, dict[str, None]] = {}
    for combo in world.combos.values():
        for entry in combo.models:
            provider, _ = world.registry.split(entry.model)
            if provider is not None and entry.accounts:
                names = found.setdefault(provider.name, {DEFAULT_ACCOUNT: None})
                names.update(dict.fromkeys(entry.accounts))
    return {name: tuple(names) for name, names in found.items()}
