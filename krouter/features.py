"""Optional features that some providers refuse, and how a refusal names them.

Never among them: the messages, the system prompt, tools, the choice of a tool, the output's length
and its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from krouter.errortext import READ, ErrorText

BETA_HEADER = "anthropic-beta"
DEEPEST = 150
"""How far blocks are followed into one another; few requests go beyond two."""


@dataclass(frozen=True, slots=True)
class Feature:
    """`name` is a field of the body; `a.b`, one inside it; `tools[*].a` or `messages[*].a`, one of
    every tool or message; `cache_control`, wherever it stands; or `anthropic-beta`, with `word`
    for one word of it."""

    name: str
    word: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.word}" if self.word else self.name


FIELDS = frozenset(
    """
    cache_control container context_management inference_geo mcp_servers metadata output_config
    safeguards service_tier speed thinking

    add_generation_prompt chat_template chat_template_kwargs client_metadata enable_thinking
    extra_body frequency_penalty include include_reasoning logit_bias logprobs min_p
    parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
    prompt_cache_retention reasoning reasoning_budget reasoning_effort reasoning_format
    reasoning_split repetition_penalty safety_identifier seed store stream_options temperature
    thinking_budget thinking_token_budget top_a top_k top_logprobs top_p truncation user verbosity

    labels
    """.split()
)
INSIDE = frozenset(
    """
    output_config.effort output_config.task_budget reasoning.context reasoning.effort
    reasoning.generate_summary reasoning.mode reasoning.summary stream_options.include_obfuscation
    stream_options.include_usage text.verbosity thinking.budget_tokens thinking.display
    thinking.effort
    """.split()
)
ON_TOOLS = frozenset(
    "allowed_callers defer_loading eager_input_streaming input_examples strict".split()
)
ON_MESSAGES = frozenset(
    """
    annotations extra_content metadata name phase reasoning reasoning_content reasoning_details
    reasoning_opaque reasoning_text refusal thinking_blocks timestamp
    """.split()
)
IN_GEMINI = {
    "thinking": "thinkingConfig",
    "thinking_config": "thinkingConfig",
    "thinking_budget": "thinkingConfig.thinkingBudget",
    "thinking_level": "thinkingConfig.thinkingLevel",
    "include_thoughts": "thinkingConfig.includeThoughts",
    "logprobs": "logprobs",
    "response_logprobs": "responseLogprobs",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "media_resolution": "mediaResolution",
    "seed": "seed",
    "temperature": "temperature",
    "top_k": "topK",
    "top_p": "topP",
}
"""Fields of Gemini's `generationConfig`."""

# A path inside one of these names the whole of it.
_WHOLE = frozenset("container context_management mcp_servers metadata".split())
# Of the output's format, only whether it is held to strictly is optional.
_STRICT = frozenset(("response_format.json_schema.strict", "text.format.strict"))
# What of a feature is not optional.
KEPT = {"output_config": frozenset(("format",))}

_QUOTE = "[`'\"]"
_ONE = rf"{_QUOTE}?(?<![\w.])[#$\w][\w.\[\]/-]{{0,100}}{_QUOTE}?"
_NAMES = rf"(?P<names>{_ONE}(?:(?:, and|,| and) {_ONE}){{0,20}})"
_THING = r"(?:parameter|argument|field|property|propertie|key|name|option|value)(?:s|\(s\))?"
_REFUSED = (
    r"(?:un(?:supported|recognized)|not (?:yet |currently )?(?:supported|available|allowed"
    r"|permitted|enabled|recognized)|no longer supported)"
)


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.I) for pattern in patterns)


_REFUSALS = _compiled(
    # Groq, then Gemini: where, and what
    r"'(?P<at>[\w.]+)' : property '(?P<names>\w+)' is unsupported",
    r"unknown name \"(?P<names>\w+)\" at '(?P<at>[^']+)'",
    # Anthropic and pydantic
    rf"{_NAMES}: extra (?:inputs|fields)(?: are)? not permitted",
    rf"extra inputs are not permitted, field: {_NAMES}",
    rf"{_NAMES}: input tag '[^']*' found using 'type' does not match",
    # OpenAI, Azure, vLLM, Google, Bedrock, serde, Go and zod
    r"(?:unknown|unsupported|unrecognized|unexpected|unpermitted|extraneous)"
    rf" (?:request |keyword |top-level |input |body )?{_THING}(?: supplied| provided)?"
    rf"(?: in (?:object|body|request))?(?: found)?:? \[?{_NAMES}",
    r"additional properties are not allowed \((?P<names>[^)]*?) w(?:as|ere) unexpected",
    # xAI and LiteLLM
    rf"arguments? not supported[^:]{{0,40}}: {_NAMES}",
    r"does not support parameters: [\[{(](?P<names>[^\]})]*)",
    rf"not support (?:the )?{_THING}:? {_NAMES}",
    rf"(?:not|n't) support (?:the )?{_NAMES} (?:request )?{_THING}",
    rf"{_THING}:? {_NAMES} (?:is|are) {_REFUSED}",
    rf"{_NAMES} {_THING} (?:is|are) {_REFUSED}",
    r"未知请求字段[：:] ?(?P<names>[\w.]+)",
)
# Here a name must be quoted, or be no word of plain English.
_IN_PROSE = _compiled(
    rf"{_NAMES} (?:is|are) {_REFUSED}",
    rf"(?:not|n't) (?:support|allow|accept) (?:the )?{_NAMES}",
)
_PLAIN_WORDS = frozenset(
    "container include labels metadata prediction reasoning seed speed store thinking truncation"
    " user strict name phase refusal temperature annotations timestamp".split()
)
_PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), names)
    for pattern, names in {
        rf"\bthinking (?:is|mode is) {_REFUSED}": "thinking",
        r"(?:not|n't) support (?:adaptive |extended )?thinking\b": "thinking",
        r"(?:not|n't) support (?:the )?effort parameter": "output_config.effort",
        rf"\bthinking budget is {_REFUSED}": "thinking_budget",
        rf"\bthinking level is {_REFUSED}": "thinking_level",
        rf"\bpenalty is {_REFUSED}": "presence_penalty frequency_penalty",
        rf"\bprompt caching is {_REFUSED}": "cache_control",
        rf"\bparallel (?:tool|function) call(?:s|ing)? (?:is|are) {_REFUSED}": (
            "parallel_tool_calls"
        ),
        r"invalid beta flag": BETA_HEADER,
    }.items()
)
_BETAS = re.compile(
    r"unexpected values?(?:\(s\))? (?P<names>[^\n]{1,500}?) for the [`'\"]?anthropic-beta\b", re.I
)
# Pydantic's errors as a message quotes them, in JSON or in Python.
_LOCATION = re.compile(
    r"extra_forbidden[\\'\"]*, ?[\\'\"]*loc[\\'\"]*: ?[\[(](?P<names>[^\])]{1,200})[\])]", re.I
)
_TOKEN = re.compile(rf"({_QUOTE}?)([#$\w][\w.\[\]/-]*)")
_UPPER = re.compile(r"(?<=[a-z0-9])([A-Z])")
_STEPS = re.compile(r"[.\[\]/#$]+")


def named_in(error: ErrorText | str, dialect_name: str) -> tuple[Feature, ...]:
    """The features that the message of a 400 or 422 names as refused."""
    text = (error if isinstance(error, str) else error.message)[:READ]
    found = [Feature(BETA_HEADER, word) for word in _taken(_BETAS, text, _words)]
    paths: list[str] = []
    for pattern, read in _READERS:
        paths += _taken(pattern, text, read)
        text = pattern.sub(" ; ", text)
    found += filter(None, (_feature(path, dialect_name) for path in paths))
    return tuple(dict.fromkeys(found))


def _taken(
    pattern: re.Pattern[str], text: str, read: Callable[[re.Match[str]], Iterable[str]]
) -> Iterator[str]:
    return (name for match in pattern.finditer(text) for name in read(match))


def _words(match: re.Match[str]) -> list[str]:
    return re.findall(r"[\w.-]+", match["names"])


def _location(match: re.Match[str]) -> list[str]:
    return [".".join(re.findall(r"\w+", match["names"]))]


def _paths(match: re.Match[str], in_prose: bool = False) -> Iterator[str]:
    at = match.groupdict().get("at")
    for quote, name in _TOKEN.findall(match["names"]):
        if not (in_prose and not quote and name.lower() in _PLAIN_WORDS):
            yield f"{at}.{name}" if at else name


def _phrase(names: str, match: re.Match[str]) -> list[str]:
    return names.split()


# What one has taken is not looked at by those behind it.
_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Iterable[str]]], ...] = (
    (_BETAS, lambda match: ()),
    (_LOCATION, _location),
    *((pattern, partial(_phrase, names)) for pattern, names in _PHRASES),
    *((pattern, _paths) for pattern in _REFUSALS),
    *((pattern, partial(_paths, in_prose=True)) for pattern in _IN_PROSE),
)


def _feature(path: str, dialect_name: str) -> Feature | None:
    """The feature that a path in an error names, such as `tools.0.custom.defer_loading`."""
    steps = [_UPPER.sub(r"_\1", step).lower() for step in _STEPS.split(path)]
    steps = [step for step in steps if step and not step.isdigit() and step != "body"]
    if not steps:
        return None
    first, last = steps[0], steps[-1]
    if path == BETA_HEADER:
        return Feature(BETA_HEADER)
    if "cache_control" in steps:
        return Feature(f"cache_control.{last}" if last in ("ttl", "scope") else "cache_control")
    is_gemini = dialect_name == "gemini" or first in ("generation_config", "thinking_config")
    if is_gemini and last in IN_GEMINI:
        return Feature(f"generationConfig.{IN_GEMINI[last]}")
    if len(steps) == 1:
        return _lone(first)
    if first == "tools":
        return Feature(f"tools[*].{last}") if last in ON_TOOLS else None
    if first in ("messages", "input"):
        return Feature(f"messages[*].{last}") if last in ON_MESSAGES else None
    if first in _WHOLE:
        return Feature(first)
    return _nested(path, steps)


def _nested(named: str, steps: list[str]) -> Feature | None:
    """What stands inside a field: that alone, but for its `type`, without which it is nothing.
    With a slash it may be a model."""
    first, last, path = steps[0], steps[-1], ".".join(steps)
    if f"{first}.{last}" in INSIDE:
        return Feature(f"{first}.{last}")
    if path in _STRICT:
        return Feature(path)
    if first not in FIELDS or "/" in named or steps[1] in KEPT.get(first, ()):
        return None
    return Feature(first if last == "type" else path)


def _lone(name: str) -> Feature | None:
    if name in FIELDS:
        return Feature(name)
    if name in ON_MESSAGES - {"name"}:
        return Feature(f"messages[*].{name}")
    return Feature(f"tools[*].{name}") if name in ON_TOOLS else None


# What the dialects call the same thing.
_SYNONYMS = tuple(
    frozenset(line.split())
    for line in (
        "thinking reasoning reasoning_effort reasoning_budget output_config.effort"
        " thinking_budget thinking_token_budget enable_thinking generationConfig.thinkingConfig",
        "user metadata",
        "verbosity text.verbosity",
        "logprobs generationConfig.responseLogprobs",
        "top_logprobs generationConfig.logprobs",
        *(
            f"{ours} generationConfig.{theirs}"
            for ours, theirs in IN_GEMINI.items()
            if "." not in theirs and ours in FIELDS - {"thinking", "logprobs"}
        ),
    )
)


def in_other_words(feature: Feature) -> tuple[Feature, ...]:
    """What other dialects call the feature, or what it is a part of."""
    known = {feature.name, feature.name.rpartition(".")[0]}
    names = {name for same in _SYNONYMS if not same.isdisjoint(known) for name in same}
    return tuple(map(Feature, sorted(names - {feature.name})))


def in_other_spelling(feature: Feature) -> tuple[Feature, ...]:
    """`reasoning_effort` for `reasoning.effort`: a provider may tell of the dialect that it
    translates to."""
    flat = feature.name.replace(".", "_")
    return (Feature(flat),) if flat != feature.name and flat in FIELDS else ()
