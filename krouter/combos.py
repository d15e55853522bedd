"""A combo: an ordered list of models behind one name, and the JSON file that holds it."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from krouter.accepts import PATTERN, read_accept
from krouter.cases import ExpectCase, Part, complete_schema
from krouter.problems import (
    DEEPEST,
    ConfigError,
    Problem,
    did_you_mean,
    is_deep,
    problems_of,
)
from krouter.settings import ComboTimeouts

LEVELS = 3
"""How many combos may stand inside one another, the outermost included."""

LONGEST_NUMBER = 100

Medium = Literal["image", "pdf", "audio", "video"]
StrategyName = Literal["fallback", "priority", "round-robin", "fusion"]

StreamGuard = Literal["off", "first", "full"]

STRATEGIES: tuple[str, ...] = get_args(StrategyName)
OTHER_STRATEGIES = """
    auto cache-optimized context context-optimized context-relay cost-optimized debate fill-first
    headroom least-used lkgp p2c pipeline quota-share quota-weighted random reset-aware
    reset-window reset-window-order strict-random usage weekly-reset weighted
"""
NOT_BUILT = frozenset(OTHER_STRATEGIES.split())

NAME_PATTERN = "^[A-Za-z0-9_.-]{1,100}$"
NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


def _name(value: str) -> str:
    if not 1 <= len(value) <= 100 or not NAME_CHARACTERS.issuperset(value):
        raise ValueError("a combo's name is 1 to 100 of letters, digits, '_', '.' and '-'")
    return value


def _model(value: str) -> str:
    if not 1 <= len(value) <= 300 or value.split() != [value]:
        raise ValueError("a model is named in 1 to 300 characters without whitespace")
    return value


def _strategy(value: object) -> object:
    if not isinstance(value, str):
        return value
    name = value.strip().lower()
    if name in STRATEGIES:
        return name
    known = f"known: {', '.join(STRATEGIES)}"
    if name in NOT_BUILT:
        raise ValueError(f"strategy {name!r} is not built; {known}")
    raise ValueError(f"no such strategy; {known}")


def _some(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if not entries:
        raise ValueError("a combo needs at least one entry")
    return entries


def _blank_is_none(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _accept(value: str) -> str:
    read_accept(value)
    return value


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": NAME_PATTERN})]
ModelName = Annotated[
    str,
    AfterValidator(_model),
    Field(json_schema_extra={"pattern": r"^\S+$", "minLength": 1, "maxLength": 300}),
]
Accept = Annotated[str, AfterValidator(_accept), Field(json_schema_extra={"pattern": PATTERN})]
Judge = Annotated[ModelName | None, BeforeValidator(_blank_is_none)]
Strategy = Annotated[StrategyName, BeforeValidator(_strategy)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Weight = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


THE_REQUESTS_OWN = frozenset(("model", "messages", "input", "contents"))
"""What a caller asks, and of whom."""


class Entry(Part):
    """One line of a combo: a model of a provider, or another combo."""

    model: ModelName = Field(description="provider/model, or the name of another combo.")
    weight: Weight | None = Field(
        default=None, description="Share of the requests, where weights count."
    )
    accounts: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Names of the accounts allowed."
    )
    params: dict[str, Any] = Field(
        default_factory=dict, description="Request parameters to set or override."
    )
    reads: tuple[Medium, ...] | None = Field(
        default=None, description="What the model reads, where the model table is wrong."
    )
    context_window: Whole | None = Field(
        default=None, ge=1, description="Window of the model in tokens."
    )
    timeouts: ComboTimeouts | None = Field(
        default=None, description="Bounds of this entry's attempts."
    )
    label: str | None = Field(default=None, max_length=200, description="A name for people.")

    @field_validator("params")
    @classmethod
    def _leaves_the_request_whole(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name in THE_REQUESTS_OWN:
                raise ValueError(f"{name!r} is the request's own, and no parameter to set")
        return value

    @field_validator("accounts", "params", "reads", "context_window")
    @classmethod
    def _of_one_model(cls, value: object, info: ValidationInfo) -> object:
        """A combo inside a combo goes by its own file: these would change nothing there."""
        model = info.data.get("model", "")
        name = reference(model) if model else None
        if name is not None and value:
            raise ValueError(f"has no effect on a combo: say it at the entries of {name!r} itself")
        return value

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if isinstance(value, str):
            return {"model": value}
        if not isinstance(value, dict | Entry):
            raise ValueError("an entry is a text such as 'provider/model', or an object")
        return value


Entries = Annotated[
    tuple[Entry, ...], AfterValidator(_some), Field(json_schema_extra={"minItems": 1})
]


class FusionTuning(Part):
    """How a fusion waits for its panel, and what it does when answers are missing."""

    min_panel: Whole = Field(default=2, ge=1, description="Usable answers that make a quorum.")
    straggler_grace_ms: Whole = Field(
        default=8000,
        ge=0,
        le=120_000,
        description="How much longer the rest may take after the quorum.",
    )
    panel_hard_timeout_ms: Whole = Field(
        default=90_000,
        ge=1000,
        le=600_000,
        description="When waiting for the panel stops regardless.",
    )
    judge_model: Judge = Field(default=None, description="The judge, where `judge` is not given.")
    late_calls: Literal["run", "cancel"] = Field(
        default="run", description="What becomes of late calls."
    )
    on_single: Literal["resend", "judge", "return"] = Field(
        default="resend", description="What to do with exactly one usable answer."
    )
    on_judge_failure: Literal["error", "best"] = Field(
        default="error",
        description="Reply with the judge's error, or with the longest panel answer.",
    )
    require_quorum: Flag = Field(
        default=False, description="503 with fewer usable answers than minPanel."
    )
    max_panel: Whole = Field(default=16, ge=1, description="The largest panel allowed.")
    judge_prompt: str | None = Field(default=None, description="Instructions for the judge.")


class Combo(Part):
    """One model name in front of many models."""

    name: Name = Field(description="The name to ask for; the file's stem where it is left out.")
    description: str | None = Field(default=None, description="Free text.")
    strategy: Strategy = Field(
        default="fallback", description="How the entries are ordered and asked."
    )
    models: Entries = Field(description="The entries, in order.")
    sticky_limit: Whole | None = Field(
        default=None,
        ge=1,
        description="How many requests an entry keeps the front of the rotation.",
    )
    judge: Judge = Field(
        default=None, description="The fusion judge; left out, the first entry judges."
    )
    fusion_tuning: FusionTuning = Field(
        default=FusionTuning(), description="Quorum, waiting and judging of a fusion."
    )
    stream_guard: StreamGuard = Field(
        default="off",
        description="How much of a stream is held back so that it can still fall over.",
    )
    on_too_large: Literal["return", "larger"] = Field(
        default="return",
        description="Return a too-large error, or try an entry with a larger window.",
    )
    on_refusal: Literal["next", "return"] = Field(
        default="next", description="Try the next entry after a content refusal, or return it."
    )
    timeouts: ComboTimeouts | None = Field(default=None, description="Time limits in seconds.")
    accept: tuple[Accept, ...] = Field(
        default=(), description="Dead ends that `krouter check` may pass over, as image+pdf."
    )
    retries: Whole = Field(
        default=0, ge=0, le=10, description="Repeats on one account before moving on."
    )
    expect: tuple[ExpectCase, ...] = Field(default=(), description="The combo's own tests.")

    @model_validator(mode="before")
    @classmethod
    def _without_schema(cls, value: object) -> object:
        if isinstance(value, dict) and "$schema" in value:
            return {key: item for key, item in value.items() if key != "$schema"}
        return value

    @property
    def judge_name(self) -> str | None:
        """The judge asked for, under either spelling; None on Auto."""
        return self.judge or self.fusion_tuning.judge_model


def parse_combo(data: bytes, file: str, stem: str) -> Combo:
    """The combo in `data`, the content of `file`; `stem` names it where it does not name itself.

    Raises ConfigError with every fault found.
    """
    value, problems = _load(data, file)
    fields = {"name": stem, **value} if isinstance(value, dict) else value
    try:
        combo = Combo.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ConfigError([*problems, *problems_of(error, file, Combo)]) from None
    if problems:
        raise ConfigError(problems)
    return combo


def _load(data: bytes, file: str) -> tuple[Any, list[Problem]]:
    repeated: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(k for k, times in Counter(k for k, _ in pairs).items() if times > 1)
        return dict(pairs)

    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=collect,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_finite,
        )
        _sendable(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem(file, "", _not_json(error))]) from None
    return value, [
        Problem(file, "", f"the key {key!r} stands twice in one object.") for key in repeated
    ]


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits is too long")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a number that JSON can carry")
    return number


def _sendable(value: object) -> None:
    """Refuse what could be read here but not be sent on."""
    if is_deep(value):
        raise RecursionError
    json.dumps(value, ensure_ascii=False).encode()


def _not_json(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}."
        case UnicodeDecodeError():
            return f"not UTF-8: byte {error.start} cannot be read."
        case UnicodeEncodeError():
            return "half of a surrogate pair stands alone in a text."
        case RecursionError():
            return f"nested more than {DEEPEST} levels deep."
        case _:
            return f"{error}."


def reference(entry_model: str) -> str | None:
    """The combo that an entry or a judge names; None for `provider/model`."""
    if entry_model.startswith("combo/"):
        return entry_model.removeprefix("combo/")
    return None if "/" in entry_model else entry_model


def references(combo: Combo) -> list[tuple[str, str]]:
    """Each combo that `combo` runs, with the JSON path that names it; a fusion's judge last."""
    written = [(f"$.models[{place}]", entry.model) for place, entry in enumerate(combo.models)]
    if combo.strategy == "fusion" and combo.judge_name:
        path = "$.judge" if combo.judge else "$.fusionTuning.judgeModel"
        written.append((path, combo.judge_name))
    return [(path, name) for path, model in written if (name := reference(model)) is not None]


FaultKind = Literal["unknown", "cycle", "deep"]
Graph = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class BadReference:
    """A reference of `combo`, written at `at`, from which the walk along `names` cannot be run.

    `names` starts with `combo`; it ends with the unknown name, with the name met before, or
    with the combo one level too deep.
    """

    combo: str
    at: str
    kind: FaultKind
    names: tuple[str, ...]


def bad_references(combos: Mapping[str, Combo]) -> list[BadReference]:
    """Every reference that leads to an unknown name, into a cycle or beyond three levels.

    A combo without one can be run whole: whatever it refers to has none either.
    """
    graph = {key: tuple(name for _, name in references(combo)) for key, combo in combos.items()}
    return [
        BadReference(key, at, *found)
        for key, combo in combos.items()
        for at, name in references(combo)
        if (found := _cycle(graph, key, name) or _bad_walk(graph, (key, name)))
    ]


def check_references(combos: Mapping[str, Combo]) -> list[Problem]:
    """The bad references as problems; `file` is the name of the combo that has one."""
    return [problem_of(bad, combos, bad.combo) for bad in bad_references(combos)]


def problem_of(
    bad: BadReference, known: Iterable[str], file: str, faulty: Container[str] = ()
) -> Problem:
    """What to tell about `bad`, with the nearest of the `known` combos, unless the one that is
    meant is there and `faulty` itself."""
    way = " → ".join(bad.names)
    last = bad.names[-1]
    match bad.kind:
        case "cycle":
            return Problem(file, bad.at, f"the combos lead back to {last!r}: {way}.")
        case "deep":
            return Problem(file, bad.at, f"more than {LEVELS} levels of combos: {way}.")
        case _ if last in faulty:
            return Problem(file, bad.at, f"the combo {last!r} has errors itself: {way}.")
        case _:
            guess = did_you_mean(last, (name for name in known if name != bad.combo))
            hint = f"{guess} A model is written provider/model.".strip()
            return Problem(file, bad.at, f"unknown combo {last!r}: {way}.", hint)


def _cycle(graph: Graph, start: str, first: str) -> tuple[FaultKind, tuple[str, ...]] | None:
    """The shortest way from `start` over `first` back to `start`."""
    walks: deque[tuple[str, ...]] = deque([(start, first)])
    seen = set()
    while walks:
        walk = walks.popleft()
        if walk[-1] == start:
            return "cycle", walk
        if walk[-1] not in seen:
            seen.add(walk[-1])
            walks.extend((*walk, name) for name in graph.get(walk[-1], ()))
    return None


def _bad_walk(graph: Graph, start: tuple[str, ...]) -> tuple[FaultKind, tuple[str, ...]] | None:
    """The shortest walk that begins with `start` and cannot be run."""
    walks = deque([start])
    while walks:
        walk = walks.popleft()
        if kind := _kind(graph, walk):
            return kind, walk
        walks.extend((*walk, name) for name in dict.fromkeys(graph[walk[-1]]))
    return None


def _kind(graph: Graph, walk: tuple[str, ...]) -> FaultKind | None:
    if walk[-1] not in graph:
        return "unknown"
    if walk[-1] in walk[:-1]:
        return "cycle"
    return "deep" if len(walk) > LEVELS else None


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that only repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def combo_schema() -> dict[str, Any]:
    """The JSON Schema of a combo file, for editors."""
    schema = Combo.model_json_schema(schema_generator=_Untitled)
    schema["properties"]["models"]["items"] = {
        "anyOf": [schema["$defs"]["Entry"]["properties"]["model"], {"$ref": "#/$defs/Entry"}]
    }
    schema["properties"]["$schema"] = {"type": "string", "description": "Read by editors only."}
    schema["required"].remove("name")
    complete_schema(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
