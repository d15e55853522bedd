"""The fusions in a route: whom each asked, in the order in which a picture shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from krouter.cli.figures import count, ordinal, span
from krouter.cli.sums import Rows, counted
from krouter.cli.wording import name_of
from krouter.route import Attempt, End, Route, Skipped, Voice

Step = Attempt | Skipped


@dataclass(slots=True)
class Fused:
    """One fusion, with the numbers of its voices: those of its panel, then those it had answer."""

    voices: list[int] = field(default_factory=list)


def scene(route: Route, within: int = 0) -> list[Step | Fused]:
    """What happened inside a voice, or outside of all, in order: steps and whole fusions."""
    found: list[tuple[int, Step | Fused]] = []
    for fused in _fusions(route, within):
        inside = _inside(route, fused)
        first = (at for at, step in enumerate(route.steps) if step.voice in inside)
        found.append((next(first, len(route.steps)), fused))
    found += [(at, step) for at, step in enumerate(route.steps) if step.voice == within]
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _fusions(route: Route, within: int) -> list[Fused]:
    """Those that were asked one after the other: each begins with the first of its panel."""
    found: list[Fused] = []
    for number, voice in enumerate(route.voices, 1):
        if voice.within == within:
            if not found or (voice.role == "panel" and voice.place == 1):
                found.append(Fused())
            found[-1].voices.append(number)
    return found


def _inside(route: Route, fused: Fused) -> set[int]:
    """The voices of a fusion, and of those inside it."""
    inside = set(fused.voices)
    for number, voice in enumerate(route.voices, 1):
        if voice.within in inside:
            inside.add(number)
    return inside


def headline(route: Route, fused: Fused) -> tuple[str, list[str]]:
    """The name of a fusion, and how many it asked."""
    panel = [number for number in fused.voices if route.voices[number - 1].role == "panel"]
    inside = _inside(route, fused)
    places = next((step.places for step in route.steps if step.voice in inside), ())
    level = _depth(route, fused)
    at = dict(enumerate(route.fusions(places))).get(level, ())
    nested = route.inside(at) if at else None
    name = name_of(nested) if nested else route.combo
    return f"the panel of {name}", [f"{len(panel)} are asked at once"]


def _depth(route: Route, fused: Fused) -> int:
    return len(route.around(fused.voices[0])) - 1


def title(voice: Voice) -> str:
    """Who was asked for what, and what came of it."""
    role = f"{ordinal(voice.place)} of the panel" if voice.role == "panel" else _ROLES[voice.role]
    return f"{role}: {voice.entry}: {voice.outcome}"


_ROLES = {"judge": "the judge", "again": "the only one to answer, asked again"}


def told(route: Route, number: int) -> Rows:
    """When one was asked, how much it answered, what of that the judge was given, and the cost."""
    voice = route.voices[number - 1]
    yield "time", _times(voice, route.began)
    yield "answer", _answer(voice)
    yield "spent", counted(route.attempts_of(number))


def _times(voice: Voice, began: float) -> str:
    asked = f"asked at {span(voice.began - began)}"
    if voice.ended is None:
        return f"{asked}, still under way when this was recorded"
    took = f"{asked}, ended after {span(voice.ended - voice.began)}"
    return f"{took}, when nobody waited for it any more" if voice.outcome == End.LATE else took


def _answer(voice: Voice) -> str:
    if voice.length is None:
        return ""
    shown = count(voice.length, "character")
    if voice.given is None or voice.given >= voice.length:
        return shown
    return f"{shown}, shortened to {voice.given:,} for the judge"
