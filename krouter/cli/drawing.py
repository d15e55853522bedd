"""A route as a picture: the order and its reasons, then what was tried, from the request down to
what the caller got.

Whatever a provider or a caller has written is shown as it is and steers nothing. Where the
terminal cannot show lines and arrows, ASCII stands in for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from krouter.cli import chorus, wording
from krouter.cli.output import inert
from krouter.cli.sums import Rows, sums
from krouter.route import Attempt, Placed, Route, Skipped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_ASCII = str.maketrans({"→": "->", "·": "-", "…": "...", "–": "-", "’": "'", "\ufffd": "?"})
_TONES = {wording.Tone.GOOD: "green", wording.Tone.BAD: "red", wording.Tone.MIXED: "yellow"}
_ROOM_FOR_VERDICT = 30
"""Columns of a box's title that are not for the entry's name."""
_INDENT = 4
"""Columns before an arrow."""
_INWARD = 2
"""Columns by which what belongs to one voice of a fusion stands further in."""


def draw(route: Route, console: Console, zone: tzinfo | None = None) -> str:
    """The picture, as wide as `console`, with times in `zone` or that of this machine."""
    picture = _Picture(route, console, zone)
    with console.capture() as drawn:
        for part in picture.parts():
            console.print(part)
    return "\n".join(line.rstrip() for line in drawn.get().splitlines())


class _Picture:
    def __init__(self, route: Route, console: Console, zone: tzinfo | None) -> None:
        self._route = route
        self._zone = zone
        self._width = console.width
        self._number = 0
        """Of the last attempt that is drawn."""
        self._ascii = console.options.ascii_only
        self._encoding = console.encoding

    def parts(self) -> Iterator[RenderableType]:
        """From the top to the bottom."""
        route = self._route
        yield self._text(wording.title(route), style="bold")
        yield self._labelled(wording.head(route, self._zone))
        yield from self._orders()
        yield from self._heading("What happened")
        yield from self._walk()
        yield from self._heading("Sums")
        yield self._labelled(sums(route))

    def _orders(self) -> Iterator[RenderableType]:
        route = self._route
        if route.plan:
            yield from self._order(wording.top_title(route), route.plan)
            for line in (*wording.switches(route), *wording.why_first(route)):
                yield self._text(line)
        for name, placed in route.nested.items():
            yield from self._order(wording.order_title(route, name), placed)
            yield from map(self._text, wording.switches(route, name))

    def _order(self, title: str, placed: list[Placed]) -> Iterator[RenderableType]:
        route = self._route
        yield from self._heading(title)
        yield self._grid(
            [
                (
                    f"{place}.",
                    each.entry,
                    wording.listed(placed, each),
                    wording.reason(route, each),
                )
                for place, each in enumerate(placed, 1)
            ]
        )

    def _walk(self) -> Iterator[RenderableType]:
        route = self._route
        yield self._small("the request", wording.asked(route))
        for step in chorus.scene(route):
            yield self._arrow()
            yield from self._step(step)
        yield self._arrow()
        yield self._small("the caller", wording.given(route), wording.tone(route.outcome))
        if left := wording.untried(route):
            yield self._text(left)

    def _step(self, step: chorus.Step | chorus.Fused) -> Iterator[RenderableType]:
        if isinstance(step, chorus.Fused):
            yield from self._fusion(step)
        elif isinstance(step, Skipped):
            yield self._small("skipped", wording.skipped(step), wording.Tone.MIXED)
        else:
            yield self._attempt(step)

    def _fusion(self, fused: chorus.Fused) -> Iterator[RenderableType]:
        """The panel, one below the other, then who was asked for the answer itself."""
        yield self._small(*chorus.headline(self._route, fused))
        for number in fused.voices:
            if self._route.voices[number - 1].role != "panel":
                yield self._arrow()
            yield from self._voice(number)

    def _voice(self, number: int) -> Iterator[RenderableType]:
        """What came of one that was asked, and below, further in, how."""
        route, voice = self._route, self._route.voices[number - 1]
        style = f"bold {_TONES.get(wording.tone(voice.outcome), '')}".rstrip()
        yield self._text(chorus.title(voice), style=style)
        yield self._inward(self._labelled(chorus.told(route, number)))
        self._width -= _INWARD
        for step in chorus.scene(route, number):
            yield from map(self._inward, self._step(step))
        self._width += _INWARD

    def _inward(self, part: RenderableType) -> RenderableType:
        from rich.padding import Padding

        return Padding(part, (0, 0, 0, _INWARD))

    def _attempt(self, attempt: Attempt) -> RenderableType:
        """One call. A name too long for the title stands inside the box."""
        self._number += 1
        rows = list(wording.tried(self._route, attempt))
        name = attempt.entry
        if len(name) > self._width - _ROOM_FOR_VERDICT:
            rows.insert(0, ("entry", name))
            name = "an entry with a long name"
        title = f"{self._number}. {name}: {attempt.outcome}"
        return self._box(title, self._labelled(rows), wording.tone(attempt.outcome), wide=True)

    def _small(
        self, title: str, lines: Sequence[str], tone: wording.Tone = wording.Tone.PLAIN
    ) -> RenderableType:
        return self._box(title, self._text(*lines), tone, wide=False)

    def _box(
        self, title: str, inside: RenderableType, tone: wording.Tone, *, wide: bool
    ) -> RenderableType:
        from rich.box import ASCII, ROUNDED
        from rich.panel import Panel

        return Panel(
            inside,
            ASCII if self._ascii else ROUNDED,
            title=self._text(title, style="bold"),
            title_align="left",
            border_style=_TONES.get(tone, "none"),
            expand=wide,
        )

    def _heading(self, title: str) -> Iterator[RenderableType]:
        yield self._text("", title.upper(), style="bold")

    def _arrow(self) -> RenderableType:
        from rich.padding import Padding

        shaft, head = "|v" if self._ascii else "│▼"
        return Padding(self._text(shaft, head, style="dim"), (0, 0, 0, _INDENT))

    def _labelled(self, rows: Rows) -> RenderableType:
        return self._grid([row for row in rows if row[1]], "dim")

    def _grid(self, rows: Sequence[tuple[str, ...]], first: str = "none") -> RenderableType:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style=first)
        for row in rows:
            grid.add_row(*map(self._text, row))
        return grid

    def _text(self, *lines: str, style: str = "") -> Text:
        from rich.text import Text

        return Text("\n".join(map(self._shown, lines)), style, overflow="fold")

    def _shown(self, line: str) -> str:
        """Inert, and made of what the terminal has."""
        line = inert(line)
        if self._ascii:
            line = line.translate(_ASCII)
        return line.encode(self._encoding, "backslashreplace").decode(self._encoding)
