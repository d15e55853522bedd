"""The words a model name or an `x-upstream` header is made of.

    [LABEL:]WORD[=VALUE][;WORD[=VALUE]]...        glm:status=429;retry-after=7

A label only tells names apart. Values are percent-decoded (`%2F` is a slash, `%3B` a semicolon).
A name that is one unknown word without `:`, `;` or `=` is a plain model and answers well; any
other wrong word is a 400 that names it. An `x-upstream` header wins over a script of the test, and
a script over the name.

the reply
  ok                     a good reply (the default)
  text=T                 its text
  chunks=N               a streamed text comes in N deltas (3)
  thinking, thinking=only  reasoning before the text, or nothing else
  tool                   calls the request's first tool, unless the last message is a tool result
  tool=NAME              calls NAME whatever the request holds
  args=JSON              arguments of the call (else filled in from the tool's schema)
  finish=R               finish_reason, stop_reason, the status of a prediction or response, or why
                         a response is incomplete
  usage=IN,OUT           token counts
errors
  status=N               N from 200 to 299 keeps the reply; any other is an error in the dialect
  message=T type=T code=T  fields of that error
  error=N                200, and an error event after N events (0: the first); JSON: an error body
  error=json             200, and a JSON error body even to a streaming request
  retry-after=V          header
  content-type=V         header, instead of the right one
  header-NAME=V          any header
  body=T                 exactly this body, with any status
nothing usable
  empty=missing          no choices, no content
  empty=list             choices or content is []
  empty=text             content "", finish null
  empty=null             content null, finish null
  empty=done             no content, finish stop, end_turn or completed: whole, but empty
  empty=events           a stream without events, a body without bytes
  empty=comments         a stream of comments (and pings), N of them by chunks=N; a blank body
  garbage=html|text|json|none|cut  a page, plain words, JSON of another kind, no bytes, cut JSON
  gzip                   compressed though not asked for
  no=PART,...            leaves out: done ([DONE], message_stop, the last event), finish, usage,
                         event (the lines)
the end                  at most one
  reset close stall      before the headers: RST, FIN, or never another byte
  reset=N close=N stall=N  the same after the headers and N events
  end=N                  a proper HTTP end after N events
  half                   with one of these: half of the next event is sent as well
time
  slow-headers=S         seconds before the headers
  slow-first=S           seconds between the headers and the first event
  slow-each=S            seconds between events; 0 gives each event its own write
  gate=NAME              waits before the headers until the test opens that gate
  gate=NAME,N            waits after the headers and N events
the shape of a stream
  split=N                every N bytes of the body are a write and an HTTP chunk of their own
  sse=SHAPE,...          crlf, comments, multiline (data), bom, tight (no space after the colon),
                         open (no newline at the end)

The body of a JSON reply counts as two events, its halves. A break after the headers comes 20 ms
after the bytes before it, since a peer may throw away what it has not read when it meets a reset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

EMPTY = frozenset({"missing", "list", "text", "null", "done", "events", "comments"})
GARBAGE = frozenset({"html", "text", "json", "none", "cut"})
PARTS = frozenset({"done", "finish", "usage", "event"})
SHAPES = frozenset({"crlf", "comments", "multiline", "bom", "tight", "open"})


class Break(NamedTuple):
    """How a reply ends early; `after` is None before the headers."""

    kind: str
    after: int | None


class Stop(NamedTuple):
    """The gate a reply waits at; `after` is None before the headers."""

    gate: str
    after: int | None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the provider does with one request."""

    text: str | None = None
    chunks: int = 3
    thinking: str = ""
    tool: str | None = None
    args: str | None = None
    finish: str | None = None
    usage: tuple[int, int] | None = None
    status: int = 200
    message: str | None = None
    type: str | None = None
    code: str | None = None
    error: int | str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    empty: str = ""
    garbage: str = ""
    gzip: bool = False
    no: frozenset[str] = frozenset()
    broken: Break | None = None
    half: bool = False
    slow_headers: float = 0
    slow_first: float = 0
    slow_each: float | None = None
    gate: Stop | None = None
    split: int = 0
    sse: frozenset[str] = frozenset()

    @property
    def immediate(self) -> bool:
        """Whether the reply can be sent in a single write."""
        return (
            self.broken is None
            and self.gate is None
            and self.slow_each is None
            and not (self.split or self.slow_headers or self.slow_first)
        )


Reader = Callable[[str | None], Any]


def read_text(value: str | None) -> str:
    if value is None:
        raise ValueError("needs a value")
    return unquote(value)


def read_bytes(value: str | None) -> bytes:
    return read_text(value).encode()


def read_count(value: str | None) -> int:
    count = int(read_text(value))
    if count < 0:
        raise ValueError("must not be negative")
    return count


def read_positive(value: str | None) -> int:
    return read_count(value) or _refuse("must be 1 or more")


def read_seconds(value: str | None) -> float:
    seconds = float(read_text(value))
    return seconds if seconds >= 0 else _refuse("must not be negative")


def read_flag(value: str | None) -> bool:
    return True if value is None else _refuse("takes no value")


def read_tool(value: str | None) -> str:
    return "" if value is None else read_text(value)


def read_thinking(value: str | None) -> str:
    return "with" if value is None else read_choice(frozenset({"only"}))(value)


def read_error(value: str | None) -> int | str:
    return "json" if value == "json" else read_count(value)


def read_usage(value: str | None) -> tuple[int, int]:
    tokens_in, tokens_out = read_text(value).split(",")
    return read_count(tokens_in), read_count(tokens_out)


def read_gate(value: str | None) -> Stop:
    name, comma, after = read_text(value).partition(",")
    return Stop(name, read_count(after) if comma else None)


def read_choice(known: frozenset[str]) -> Callable[[str | None], str]:
    def read(value: str | None) -> str:
        word = read_text(value)
        return word if word in known else _refuse(f"is one of {', '.join(sorted(known))}")

    return read


def read_choices(known: frozenset[str]) -> Callable[[str | None], frozenset[str]]:
    read_one = read_choice(known)
    return lambda value: frozenset(read_one(word) for word in read_text(value).split(","))


def read_break(kind: str) -> Callable[[str | None], Break]:
    return lambda value: Break(kind, None if value is None else read_count(value))


def _refuse(why: str) -> Any:
    raise ValueError(why)


WORDS: Mapping[str, tuple[str, Reader]] = {
    "text": ("text", read_text),
    "chunks": ("chunks", read_positive),
    "thinking": ("thinking", read_thinking),
    "tool": ("tool", read_tool),
    "args": ("args", read_text),
    "finish": ("finish", read_text),
    "usage": ("usage", read_usage),
    "status": ("status", read_positive),
    "message": ("message", read_text),
    "type": ("type", read_text),
    "code": ("code", read_text),
    "error": ("error", read_error),
    "body": ("body", read_bytes),
    "empty": ("empty", read_choice(EMPTY)),
    "garbage": ("garbage", read_choice(GARBAGE)),
    "gzip": ("gzip", read_flag),
    "no": ("no", read_choices(PARTS)),
    "reset": ("broken", read_break("reset")),
    "close": ("broken", read_break("close")),
    "stall": ("broken", read_break("stall")),
    "end": ("broken", lambda value: Break("end", read_count(value))),
    "half": ("half", read_flag),
    "slow-headers": ("slow_headers", read_seconds),
    "slow-first": ("slow_first", read_seconds),
    "slow-each": ("slow_each", read_seconds),
    "gate": ("gate", read_gate),
    "split": ("split", read_positive),
    "sse": ("sse", read_choices(SHAPES)),
}
HEADER_WORDS = frozenset({"retry-after", "content-type"})


def parse(text: str) -> Behaviour:
    """The behaviour that `text` spells, a label aside; ValueError names the word that is wrong."""
    label, colon, rest = text.partition(":")
    words = rest if colon and not set(label) & set("=;") else text
    fields: dict[str, Any] = {}
    headers: list[tuple[str, str]] = []
    for word in filter(None, words.split(";")):
        name, equals, value = word.partition("=")
        _take(name, value if equals else None, fields, headers)
    if fields.get("half") and "broken" not in fields:
        raise ValueError("half: needs reset, close, stall or end")
    return replace(Behaviour(), **fields, headers=tuple(headers))


def _take(
    name: str, value: str | None, fields: dict[str, Any], headers: list[tuple[str, str]]
) -> None:
    try:
        if header := _header_of(name):
            headers.append((header, read_text(value)))
        elif name == "ok":
            read_flag(value)
        else:
            field, read = WORDS[name]
            if field in fields:
                raise ValueError(f"{field} is said twice")
            fields[field] = read(value)
    except KeyError:
        raise ValueError(f"{name}: unknown word") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _header_of(name: str) -> str:
    if name in HEADER_WORDS:
        return name
    return name.removeprefix("header-") if name.startswith("header-") else ""


@lru_cache(maxsize=1024)
def named(model: str) -> Behaviour:
    """The behaviour a model name asks for; a plain name answers well."""
    plain = not set(model) & set(":;=") and model not in WORDS
    return Behaviour() if plain else parse(model)
