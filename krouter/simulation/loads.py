"""The load file of a simulation: who asks for what and when, and what the providers do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from krouter.dialects import DIALECTS
from krouter.problems import ConfigError, Problem, did_you_mean
from krouter.rehearsal import NEEDS, split_name
from krouter.script import Faults, UnknownFault, fault_named
from krouter.world import World

T = TypeVar("T")
MOST = 100_000_000
"""Requests."""
MOST_BYTES = 1 << 30
"""Of a load file."""
LONGEST = 1e9
"""Seconds of virtual time, about thirty years."""
WIDEST = 5.0
"""A spread with which one answer in a thousand takes five million times as long as the median."""


class Latency(Struct, forbid_unknown_fields=True, frozen=True):
    """Seconds to the first byte and from there to the last, as the median of a log-normal
    distribution whose sigma is `spread`."""

    first_byte: float = 1.0
    rest: float = 3.0
    spread: float = 0.5


class Outage(Struct, forbid_unknown_fields=True, frozen=True):
    """From one second to another, a `share` of what is sent to `of` has the fault."""

    of: str
    begin: float = field(name="from", default=0.0)
    to: float = float("inf")
    fault: str | int = "503"
    share: float = 1.0


class Quota(Struct, forbid_unknown_fields=True, frozen=True):
    """Each account of `of` takes so many requests or tokens in each window of `every` seconds, and
    answers 429 then, with the reset."""

    of: str
    every: float
    requests: int | None = None
    tokens: int | None = None


class Rate(Struct, forbid_unknown_fields=True, frozen=True):
    """Requests a second, from some second on."""

    rate: float
    begin: float = field(name="from", default=0.0)


class Asked(Struct, forbid_unknown_fields=True, frozen=True):
    """One request, `at` so many seconds from the beginning."""

    at: float
    dialect: str = "chat"
    stream: bool = True
    needs: tuple[str, ...] = ()
    input: int = 2000
    output: int = 300
    session: str = ""


class Load(Struct, forbid_unknown_fields=True, frozen=True):
    """A whole load file. `requests` are how many, or each one; a number of them comes at random
    with `rate` a second, for `seconds`, as the shares say."""

    requests: int | list[Asked] | None = None
    rate: float | list[Rate] = 1.0
    seconds: float | None = None
    seed: int = 0
    stream: float = 1.0
    dialects: dict[str, float] = field(default_factory=lambda: {"chat": 1.0})
    needs: dict[str, float] = {}
    input: int = 2000
    output: int = 300
    session: float = 1.0
    """How many requests a conversation has on average."""
    latency: dict[str, Latency] = {}
    outages: list[Outage] = []
    quotas: list[Quota] = []


def read_load(path: Path, world: World, faults: Faults) -> Load:
    """A load of JSON, or of lines of JSON: first what a whole file says but for its requests, if
    anything, then a request a line. Raises ConfigError with all that is wrong, OSError."""
    data = _read(path)
    load = _lines(data, str(path)) if _is_lines(data, path) else _decoded(data, Load, str(path))
    problems = list(_problems(load, world, faults, str(path)))
    if problems:
        raise ConfigError(problems)
    return load


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigError([Problem(str(path), "", f"has more than {MOST_BYTES >> 20} MiB.")])
    return data


def _is_lines(data: bytes, path: Path) -> bool:
    return path.suffix in (".jsonl", ".ndjson")


def _lines(data: bytes, file: str) -> Load:
    load, asked = Load(), []
    numbered = ((n, line) for n, line in enumerate(data.splitlines(), 1) if line.strip())
    for place, (number, line) in enumerate(numbered):
        if place == 0 and not _ASKED.search(line):
            load = _decoded(line, Load, file, f"line {number}")
            if load.requests is not None:
                fault = "a file of lines has its requests in the lines that follow."
                raise ConfigError([Problem(file, f"line {number}", fault)])
            continue
        asked.append(_decoded(line, Asked, file, f"line {number}"))
    return msgspec.structs.replace(load, requests=asked)


_ASKED = re.compile(rb'"at"\s*:')
_UNKNOWN = re.compile(r"unknown field `(\w+)`")


def _decoded(data: bytes, kind: type[T], file: str, where: str = "") -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        told, _, at = str(error).partition(" - at `")
        hint = ""
        if unknown := _UNKNOWN.search(told):
            hint = did_you_mean(unknown[1], _fields(kind, at))
        place = " ".join(filter(None, [where, at.rstrip("`")]))
        raise ConfigError([Problem(file, place, f"{told}.", hint)]) from None


_INNER: dict[str, type[Struct]] = {
    "latency": Latency,
    "outages": Outage,
    "quotas": Quota,
    "rate": Rate,
    "requests": Asked,
}


def _fields(kind: Any, at: str) -> list[str]:
    """The names that are known at a JSON path."""
    inner = next((each for name, each in _INNER.items() if at.startswith(f"$.{name}")), kind)
    return [each.encode_name for each in msgspec.structs.fields(inner)]


def _problems(load: Load, world: World, faults: Faults, file: str) -> Iterator[Problem]:
    def wrong(path: str, fault: str, hint: str = "") -> Problem:
        return Problem(file, path, fault, hint)

    yield from (wrong(path, fault) for path, fault in (*_amounts(load), *_spans(load)))
    names = ((f"$.latency.{name}", name) for name in load.latency if name != "*")
    outages = ((f"$.outages[{n}].of", each.of) for n, each in enumerate(load.outages))
    quotas = ((f"$.quotas[{n}].of", each.of) for n, each in enumerate(load.quotas))
    for path, name in (*names, *outages, *quotas):
        if name != "*" and (fault := _unknown(name, world)):
            yield wrong(path, *fault)
    for number, outage in enumerate(load.outages):
        if why := _no_outage(outage.fault, faults):
            yield wrong(f"$.outages[{number}].fault", why)
    for dialect in load.dialects.keys() - DIALECTS.keys():
        yield wrong(f"$.dialects.{dialect}", "no such dialect.", did_you_mean(dialect, DIALECTS))
    for need in load.needs.keys() - NEEDS:
        yield wrong(f"$.needs.{need}", "no request can need that.", did_you_mean(need, NEEDS))
    for number, asked in enumerate(load.requests if isinstance(load.requests, list) else ()):
        if why := _unasked(asked):
            yield wrong(f"$.requests[{number}]", why)
            return


def _no_outage(fault: str | int, faults: Faults) -> str:
    """Why this is nothing that can befall a provider."""
    try:
        fault_named(fault, faults)
    except UnknownFault as unknown:
        return f"{unknown}"
    return f"{fault} is none of a provider's." if fault == "caller-gone" else ""


def _unasked(asked: Asked) -> str:
    """What is wrong with one request."""
    if asked.dialect not in DIALECTS or set(asked.needs) - NEEDS or asked.at < 0:
        return "its dialect, its needs or its time is none."
    if asked.at > LONGEST:
        return f"comes within {LONGEST:,.0f} seconds."
    return "" if min(asked.input, asked.output) >= 0 else "input and output are numbers of tokens."


def _spans(load: Load) -> Iterator[tuple[str, str]]:
    """What would run for ever, or nearly."""
    rates = load.rate if isinstance(load.rate, list) else [Rate(load.rate)]
    seconds = LONGEST if load.seconds is None else load.seconds
    count = load.requests if isinstance(load.requests, int) else 0
    last = max(rates, key=lambda each: each.begin, default=Rate(1.0))
    if seconds > LONGEST:
        yield "$.seconds", f"is at most {LONGEST:,.0f}."
    elif load.requests is None and seconds * max((r.rate for r in rates), default=0) > MOST:
        yield "$.seconds", f"are too many for this rate: more than {MOST:,} requests."
    elif load.seconds is None and 0 < last.rate < count / LONGEST:
        yield "$.rate", f"is too low: {count:,} requests would take over {LONGEST:,.0f} seconds."
    if last.rate <= 0 < len(rates) or any(not 0 <= each.begin <= LONGEST for each in rates):
        yield "$.rate", f"begins within {LONGEST:,.0f} seconds, and is more than 0 in the end."
    for name, latency in load.latency.items():
        if max(latency.first_byte, latency.rest) > LONGEST or latency.spread > WIDEST:
            limits = f"is at most {LONGEST:,.0f} seconds, with a spread of at most {WIDEST:g}."
            yield f"$.latency.{name}", limits


def _amounts(load: Load) -> Iterator[tuple[str, str]]:
    """What is out of range."""
    if load.requests is None and load.seconds is None:
        yield "", "say how many requests, or for how many seconds they come."
    if load.requests == []:
        yield "$.requests", "are none: name one at least."
    if isinstance(load.requests, int) and not 0 < load.requests <= MOST:
        yield "$.requests", f"is 1 to {MOST:,}."
    if load.seconds is not None and load.seconds <= 0:
        yield "$.seconds", "is more than 0."
    rates = load.rate if isinstance(load.rate, list) else [Rate(load.rate)]
    if not rates or any(each.rate < 0 for each in rates):
        yield "$.rate", "is 0 or more requests a second, and more than 0 in the end."
    shares = {"$.stream": load.stream}
    shares |= {f"$.needs.{name}": share for name, share in load.needs.items()}
    shares |= {f"$.outages[{n}].share": each.share for n, each in enumerate(load.outages)}
    yield from ((at, "is a share, 0 to 1.") for at, share in shares.items() if not 0 <= share <= 1)
    weights = load.dialects.values()
    if not weights or min(weights) < 0 or not 0 < sum(weights) < math.inf:
        yield "$.dialects", "are weights, of which one is more than 0, and none beyond measure."
    if load.session < 1:
        yield "$.session", "is 1 or more."
    if min(load.input, load.output) < 0:
        yield "$.input", "input and output are numbers of tokens."
    for name, latency in load.latency.items():
        if min(latency.first_byte, latency.rest, latency.spread) < 0:
            yield f"$.latency.{name}", "is 0 or more seconds."
    for number, quota in enumerate(load.quotas):
        if quota.every <= 0 or (quota.requests is None and quota.tokens is None):
            yield f"$.quotas[{number}]", "has an every of more than 0, and requests or tokens."
    for number, outage in enumerate(load.outages):
        if not 0 <= outage.begin < outage.to:
            yield f"$.outages[{number}]", "begins before it ends."


def _unknown(name: str, world: World) -> tuple[str, str] | None:
    """Fault and hint of what is neither a provider, nor one of its models or accounts."""
    alias, mark, account = split_name(name)
    provider = world.registry.find(alias)
    if provider is None:
        known = world.registry.names_with_aliases()
        return f"there is no provider {alias!r}.", did_you_mean(alias, known)
    accounts = [each.name for each in world.accounts.get(provider.name, ())]
    if mark == "@" and account not in accounts:
        hint = f"It has {', '.join(accounts)}." if accounts else ""
        return f"{provider.name} has no account {account!r}.", hint
    return None
