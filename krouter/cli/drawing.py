"""A route as a picture: the order and its reasons, then what was tried, from the request down to
what the caller got.

Whatever a provider or a caller has written is shown as it is and steers nothing. Where the
terminal cannot show lines and arrows, ASCII stands in for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from krouter.cli import wording
from krouter.cli.output import inert
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
        yield self._labelled(wording.sums(route))

    def _orders(self) -> Iterator[RenderableType]:
        route = self._route
        if route.plan:
            yield from self._order("Order", route.plan)
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
        route, number = self._route, 0
        yield self._small("the request", wording.asked(route))
        for step in route.steps:
            yield self._arrow()
            if isinstance(step, Skipped):
                yield self._small("skipped", wording.skipped(step), wording.Tone.MIXED)
            else:
                number += 1
                yield self._attempt(number, step)
        yield self._arrow()
        yield self._small("the caller", wording.given(route), wording.tone(route.outcome))
        if left := wording.untried(route):
            yield self._text(left)

    def _attempt(self, number: int, attempt: Attempt) -> RenderableType:
        """One call. A name too long for the title stands inside the box."""
        rows = list(wording.tried(self._route, attempt))
        name = attempt.entry
        if len(name) > self._width - _ROOM_FOR_VERDICT:
            rows.insert(0, ("entry", name))
            name = "an entry with a long name"
        title = f"{number}. {name}: {attempt.outcome}"
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

    def _labelled(self, rows: wording.Rows) -> RenderableType:
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
