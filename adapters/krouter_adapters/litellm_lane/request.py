"""A caller's request on its way to one of LiteLLM's classes, before and after the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec

from krouter.adapter import Call, Target, Unsendable
from krouter.dialects.history import empty_field
from krouter.headers import IDEMPOTENCY_KEY, to_provider
from krouter.providers import DEFAULT_AUTH
from krouter.settings import Dialect
from krouter.wire import Headers
from krouter_adapters.litellm_lane.json_tool import JSON_TOOL
from krouter_adapters.litellm_lane.signatures import with_signatures
from krouter_adapters.litellm_lane.translate import (
    Told,
    Translated,
    customs_of,
    gemini_to_chat,
    messages_to_chat,
    nameless,
    prepare_chat,
    responses_to_chat,
    takes,
    takes_of_gemini,
    takes_of_responses,
)
from krouter_adapters.litellm_lane.translate.shapes import as_dict, as_dicts
from krouter_adapters.litellm_lane.ways import Aim
from krouter_adapters.native_lane import credential, joined, replaced

NO_KEY = "no-key-is-needed"
"""Stands where LiteLLM must be given a key: without one it would take one of the environment."""

Adapt = Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, str]]]

# Names of LiteLLM's own in a request body: they would steer the library, not the model.
_RESERVED = frozenset(
    "custom_llm_provider drop_params allowed_openai_params additional_drop_params api_key api_base"
    " base_url api_version base_model max_retries num_retries timeout request_timeout extra_headers"
    " extra_body headers client provider_specific_header hf_model_name organization"
    " default_headers cached_content fake_stream json_mode shared_session proxy tenant_id".split()
)
_RESERVED_STARTS = ("litellm_", "vertex_", "aws_", "azure_", "watsonx_", "mock_", "s3_")

_DOWNLOADERS = {"ollama": "Ollama", "ollama_chat": "Ollama", "bedrock": "Bedrock"} | {
    "gigachat": "GigaChat"
}
_TEXT_ONLY = frozenset(("a2a", "bytez", "databricks_agent", "gigachat", "nlp_cloud", "replicate"))
_GEMINI_FILES = ("gs://", "https://generativelanguage.googleapis.com/")

_MEDIA = {"image_url": "image", "file": "file", "input_audio": "audio", "video_url": "video"}

# Headers by which LiteLLM names itself to a provider.
_ATTRIBUTION = frozenset(("x-pplx-integration", "x-novita-source", "http-referer", "x-title"))
CREDENTIALS = frozenset(("authorization", "x-api-key", "api-key", "x-goog-api-key"))
_NOT_PASSED = frozenset(("x-real-ip", "x-request-id"))
_NOT_PASSED_FROM = ("x-stainless-", "x-forwarded-")
# What a client tells its own maker's service: state and ids that mean nothing to another.
_FOR_MAKERS = frozenset(("x-app", "x-initiator", "x-client-request-id", "x-goog-api-client"))
_FOR_MAKERS_FROM = (
    *("x-codex-", "x-openai-", "x-oai-", "x-responsesapi-"),
    *("x-claude-", "x-anthropic-", "x-cc-", "x-ccr-"),
    *("x-github-", "x-copilot-", "x-gemini-"),
)


@dataclass(slots=True)
class Draft:
    """A request in chat form. `names` gives tool names of the reply their own form back; `told` is
    what the reply of a responses or gemini caller must know."""

    chat: dict[str, Any]
    names: dict[str, str]
    dropped: list[str] = field(default_factory=list)
    original: dict[str, Any] = field(default_factory=dict)
    told: Told | None = None
    customs: dict[str, Any] = field(default_factory=dict)
    """Tools that the caller has as custom ones, by name."""


_Chat = tuple[Translated, Told | None]


def _from_messages(body: dict[str, Any], target: Target, aim: Aim, adapt: Adapt) -> _Chat:
    keep = takes(aim.name, target.model)
    if aim.body == "responses":
        keep |= {"sealed"}
    return messages_to_chat(body, adapt, keep), None


def _from_responses(body: dict[str, Any], target: Target, aim: Aim, adapt: Adapt) -> _Chat:
    if (place := nameless(body.get("tools"))) is not None:
        raise Unsendable(f"The tool tools[{place}] has no name.")
    keep = takes_of_responses(aim.name, target.model, aim.body)
    made = responses_to_chat(body, keep, target.provider.maker)
    return made.translated, made.told


def _from_gemini(body: dict[str, Any], target: Target, aim: Aim, adapt: Adapt) -> _Chat:
    keep = takes_of_gemini(aim.name, target.model, aim.body)
    if aim.body == "responses":
        keep |= {"sealed"}
    return gemini_to_chat(body, keep, target.provider.maker)


_TO_CHAT: Mapping[str, Callable[[dict[str, Any], Target, Aim, Adapt], _Chat]] = {
    "messages": _from_messages,
    "responses": _from_responses,
    "gemini": _from_gemini,
}


def drafted(call: Call, target: Target, aim: Aim, adapt: Adapt) -> Draft:
    """The caller's request in chat form, ready for a class. Raises Unsendable."""
    body = {**_decoded(call), "model": target.model}
    names: dict[str, str] = {}
    dropped: list[str] = []
    told = None
    if to_chat := _TO_CHAT.get(call.dialect.name):
        first, told = to_chat(body, target, aim, adapt)
        body, names, dropped = first.body, first.names, list(first.dropped)
    if aim.body != "chat":
        body = with_params(body, target)
    dropped += _without_reserved(body)
    if call.stream:
        body["stream_options"] = {**_options(body), "include_usage": True}
    original = dict(body)
    second = prepare_chat(body, aim.body)
    _refuse_downloads(second.body, aim)
    if aim.name in _TEXT_ONLY:
        dropped += _without_media(second.body)
    if aim.body == "gemini":
        with_signatures(second.body.get("messages"))
    customs = customs_of(original.get("tools"))
    return Draft(second.body, names, dropped + list(second.dropped), original, told, customs)


_SAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


def with_params(body: dict[str, Any], target: Target) -> dict[str, Any]:
    """A chat body with the entry's parameters, which are chat's whatever the caller speaks."""
    replaced = {_SAME.get(name) for name in target.params}
    kept = {name: value for name, value in body.items() if name not in replaced}
    return {**kept, **target.params}


def _decoded(call: Call) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(call.body.raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unsendable(f"The body cannot be translated: {error}.") from None
    body.pop("stream", None)
    if field := empty_field(call.dialect.name, call.body):
        raise Unsendable(f"The field {field!r} must hold at least one message.")
    if call.dialect.name == "responses":
        if not isinstance(body.get("input"), str | list):
            raise Unsendable("input must be a text or a list.")
    elif call.dialect.name != "gemini" and not isinstance(body.get("messages"), list):
        raise Unsendable("messages must be a list.")
    return body  # type: ignore[no-any-return]


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options = body.get("stream_options")
    return options if isinstance(options, dict) else {}


def _without_reserved(body: dict[str, Any]) -> list[str]:
    found = [k for k in body if k in _RESERVED or k.startswith(_RESERVED_STARTS)]
    for name in found:
        del body[name]
    return found


def parts(chat: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every content part of every message."""
    for message in chat.get("messages") or ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, dict))


def _links(part: Mapping[str, Any]) -> Iterator[str]:
    """The addresses a part points to; none where it holds the data itself."""
    inner = part.get(str(part.get("type")))
    held = [inner.get(key) for key in _HOLDERS] if isinstance(inner, dict) else [inner]
    for value in (*held, *(part.get(key) for key in _HOLDERS)):
        link = value.strip() if isinstance(value, str) else ""
        if link.lower().startswith(("http:", "https:")):
            yield link


_HOLDERS = ("url", "file_data", "file_id", "file_url")


def _refuse_downloads(chat: Mapping[str, Any], aim: Aim) -> None:
    """LiteLLM would fetch such a part itself while it builds, holding up everything else."""
    for part in parts(chat):
        what = _MEDIA.get(str(part.get("type")), "file")
        for link in _links(part):
            if _must_hold_data(aim, what, link):
                name = _DOWNLOADERS.get(aim.name, aim.name)
                raise Unsendable(
                    f"This cannot be carried to {name}: {what} URLs must be data URIs."
                )
            if aim.body == "messages" and not link.startswith("https://"):
                raise Unsendable(
                    f"This cannot be carried to {aim.name}: {what} URLs must be https or data URIs."
                )


def _must_hold_data(aim: Aim, what: str, link: str) -> bool:
    if aim.body == "gemini":
        return not link.startswith(_GEMINI_FILES)
    return aim.name in _DOWNLOADERS or (what == "file" and aim.body != "messages")


def _without_media(chat: dict[str, Any]) -> list[str]:
    """Takes out what is not text: the class would lose it, or upload it while it builds."""
    found = _media(chat)
    lost = [name for kind, name in _MEDIA.items() if found[kind]]
    if lost:
        chat["messages"] = [_text_of(message) for message in chat["messages"]]
    return lost


def _text_of(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    kept = [part for part in content if part.get("type") not in _MEDIA]
    return {**message, "content": kept or "(an attachment that cannot be shown)"}


_MOST_THINKING = 24_576
"""What every Gemini 2.5 model takes; Pro takes 32,768."""


def keep_budget(data: Mapping[str, Any], thinking: Any) -> None:
    """The caller's own budget of tokens, of which LiteLLM leaves one of three round numbers."""
    config = data.get("generationConfig") or {}
    planned = config.get("thinkingConfig") or {}
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(budget, int) and budget > 0 and "thinkingBudget" in planned:
        planned["thinkingBudget"] = min(budget, _MOST_THINKING)


def headers_of(call: Call, target: Target, aim: Aim, built: Mapping[str, Any]) -> Headers:
    """What LiteLLM's class wants sent, with the provider's own headers and the credential."""
    headers: Headers = [
        (name.lower(), str(value))
        for name, value in built.items()
        if name.lower() not in _ATTRIBUTION and NO_KEY not in str(value)
    ]
    given = {name for name, _ in headers}
    headers += [(n, v) for n, v in to_provider(call.headers) if _passes(n) and n not in given]
    for name, value in target.provider.headers.items():
        put = joined if name == "anthropic-beta" else replaced
        headers = put(headers, name, value)
    headers = replaced(headers, "content-type", "application/json")
    headers = replaced(headers, "accept-encoding", "identity")
    return _signed(headers, target, aim)


def _passes(name: str) -> bool:
    if name in _NOT_PASSED or name in _FOR_MAKERS:
        return False
    if name.startswith((*_NOT_PASSED_FROM, *_FOR_MAKERS_FROM)):
        return False
    return name == IDEMPOTENCY_KEY or name.startswith("x-")


def _signed(headers: Headers, target: Target, aim: Aim) -> Headers:
    provider = target.provider
    own = aim.url is not None or not provider.known_by_litellm or provider.auth != DEFAULT_AUTH
    if not own and target.auth != "bearer":
        return headers
    dialect: Dialect = aim.body if aim.body != "other" else "chat"
    kept = [(name, value) for name, value in headers if name not in CREDENTIALS]
    return kept + credential(target, dialect)


# A parameter under its other name is not lost.
_RENAMED = {
    "max_completion_tokens": ("max_tokens", "max_completion_tokens"),
    "max_tokens": ("max_tokens", "max_completion_tokens"),
    "seed": ("seed", "random_seed"),
    "reasoning_effort": ("reasoning_effort", "thinking", "reasoning"),
}
_NOT_ASKED = frozenset(("messages", "model", "stream", "stream_options"))


def lost_fields(asked: Mapping[str, Any], sent: Mapping[str, Any]) -> list[str]:
    """The fields of a chat body that are not in the one that goes out."""
    return [
        name
        for name, value in asked.items()
        if name not in _NOT_ASKED
        and value is not None
        and (name, value) != ("tool_choice", "auto")
        and not any(other in sent for other in _RENAMED.get(name, (name,)))
    ]


_HOLDERS_OF_FIELDS = ("generationConfig", "options", "additionalModelRequestFields")
# Of these the class leaves some out for models that it does not know to take them.
_PENALTIES = frozenset(("presence_penalty", "frequency_penalty"))


def within(goal: Aim, sent: Mapping[str, Any], passed: Set[str]) -> Mapping[str, Any]:
    """What a body in a provider's own format holds by chat's names: the fields in it, and those
    that its class is known to `pass` under other names."""
    found = {key for name in _HOLDERS_OF_FIELDS for key in as_dict(sent.get(name))} | sent.keys()
    if goal.body == "gemini":
        passed = passed - _PENALTIES
    if goal.name == "bedrock" and not (_has_json_spec(sent) or "outputConfig" in sent):
        passed = passed - {"response_format"}
    if goal.body == "other" and goal.name != "bedrock":
        passed = passed - {"tool_choice"}
    return dict.fromkeys(found | passed)


def _has_json_spec(sent: Mapping[str, Any]) -> bool:
    """Whether Bedrock is sent the tool that stands for a format."""
    tools = as_dicts(as_dict(sent.get("toolConfig")).get("tools"))
    return any(as_dict(tool.get("toolSpec")).get("name") == JSON_TOOL for tool in tools)


def lost_media(asked: Mapping[str, Any], sent: Mapping[str, Any]) -> list[str]:
    """Kinds of attachments of which fewer go out than came in, in a chat body."""
    given = _media(asked)
    kept = _media(sent) if given else given
    return [name for kind, name in _MEDIA.items() if given[kind] > kept[kind]]


def _media(chat: Mapping[str, Any]) -> Counter[Any]:
    """How many attachments there are, by the types of their parts."""
    kinds = (part.get("type") for part in parts(chat))
    return Counter(kind for kind in kinds if isinstance(kind, str) and kind in _MEDIA)


_OWN_NAMES: Mapping[str, Mapping[str, str]] = {
    "messages": {
        "stop": "stop_sequences",
        "reasoning_effort": "thinking",
        "parallel_tool_calls": "disable_parallel_tool_use",
        "user": "metadata.user_id",
        "response_format": "output_format",
    },
    "responses": {
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "response_format.json_object": "text.format.json_object",
        "verbosity": "text.verbosity",
    },
    "gemini": {
        "top_p": "topP",
        "top_k": "topK",
        "max_tokens": "maxOutputTokens",
        "stop": "stopSequences",
        "presence_penalty": "presencePenalty",
        "frequency_penalty": "frequencyPenalty",
        "logprobs": "responseLogprobs",
        "top_logprobs": "logprobs",
        "reasoning_effort": "thinkingConfig",
        "thinking": "thinkingConfig",
        "tool_choice": "toolConfig",
        "response_format": "responseSchema",
        "response_format.json_object": "responseMimeType",
    },
}


def named_for(dialect: str, dropped: list[str]) -> tuple[str, ...]:
    """The dropped fields by the names that the caller knows them by."""
    names = _OWN_NAMES.get(dialect, {})
    return tuple(dict.fromkeys(names.get(name, name) for name in dropped))
