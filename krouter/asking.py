"""A call from Python, in the keyword arguments of LiteLLM's `completion`, as a chat request."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from krouter.adapter import Call
from krouter.body import Body
from krouter.dialects import get
from krouter.headers import to_provider
from krouter.wire import Headers


class SettingError(TypeError):
    """An argument that krouter does not take; the text names the krouter way."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call. `api_key` and `api_base` are for this call alone."""

    call: Call
    api_key: str | None
    api_base: str | None


CHAT_FIELDS = frozenset(
    "messages temperature top_p n stop max_tokens max_completion_tokens tools tool_choice"
    " parallel_tool_calls response_format seed user logprobs top_logprobs logit_bias"
    " presence_penalty frequency_penalty reasoning_effort thinking stream_options modalities audio"
    " prediction verbosity web_search_options safety_identifier service_tier store"
    " prompt_cache_key prompt_cache_retention functions function_call context_management".split()
)
"""Arguments that go into the request as they are."""

CALL_ARGUMENTS = frozenset(
    "model stream timeout request_timeout api_key api_base base_url custom_llm_provider headers"
    " extra_headers extra_body metadata drop_params additional_drop_params"
    " allowed_openai_params".split()
)
"""Arguments that say how to call; `metadata` is LiteLLM's for its callbacks and is not sent."""

_COMBO = "list the models in a combo, in the order in which to try them"
_RETRIES = 'set "retries" in the combo'
_LOG = "read .route of the reply, which holds every step, or the route of the exception"
_CACHE = "krouter keeps no replies"
_MOCK = 'ask for the model "demo", which answers without a provider'
_ACCOUNTS = "name the accounts in krouter.toml, or in the settings of the Router"
_TIMEOUTS = 'give timeout=SECONDS, or set "timeouts" in the combo'
_HTTP = "krouter has one HTTP client of its own; make several Routers to part their connections"

KROUTER_WAY: Mapping[str, str] = {
    "fallbacks": _COMBO,
    "default_fallbacks": _COMBO,
    "max_fallbacks": _COMBO,
    "context_window_fallback_dict": f'{_COMBO}, and set "onTooLarge": "larger"',
    "context_window_fallbacks": f'{_COMBO}, and set "onTooLarge": "larger"',
    "content_policy_fallbacks": f'{_COMBO}; "onRefusal" says whether a refusal moves on',
    "model_list": _COMBO,
    "deployment_id": _COMBO,
    "model_alias_map": "write [aliases] in krouter.toml",
    "routing_strategy": 'set "strategy" in the combo',
    "weight": 'set "strategy" in the combo',
    "order": _COMBO,
    "num_retries": _RETRIES,
    "max_retries": _RETRIES,
    "retry_policy": _RETRIES,
    "retry_strategy": _RETRIES,
    "cooldown_time": "a failed account is locked for as long as the failure says",
    "stream_timeout": _TIMEOUTS,
    "force_timeout": _TIMEOUTS,
    "callbacks": _LOG,
    "success_callback": _LOG,
    "failure_callback": _LOG,
    "input_callback": _LOG,
    "logger_fn": _LOG,
    "litellm_logging_obj": _LOG,
    "litellm_metadata": _LOG,
    "verbose": _LOG,
    "caching": _CACHE,
    "cache": _CACHE,
    "cache_key": _CACHE,
    "preset_cache_key": _CACHE,
    "ttl": _CACHE,
    "mock_response": _MOCK,
    "mock_tool_calls": _MOCK,
    "mock_timeout": _MOCK,
    "api_version": 'put it into the address: api_base="https://HOST/…?api-version=…"',
    "azure": 'ask for "azure/MODEL"',
    "azure_ad_token": _ACCOUNTS,
    "azure_ad_token_provider": _ACCOUNTS,
    "litellm_credential_name": _ACCOUNTS,
    "organization": 'send extra_headers={"OpenAI-Organization": …}',
    "client": _HTTP,
    "shared_session": _HTTP,
    "ssl_verify": "krouter always verifies certificates",
    "max_parallel_requests": "set max_concurrent for the provider or account",
    "rpm": "set max_concurrent for the provider or account",
    "tpm": "set max_concurrent for the provider or account",
    "prompt_id": "fill the prompt in before the call",
    "prompt_variables": "fill the prompt in before the call",
    "guardrails": "check the messages before the call and the reply after it",
    "enable_json_schema_validation": "validate the reply after the call",
}
"""Arguments about LiteLLM's own routing, and what to do instead."""

_OTHERS_SECRETS = ("aws_", "azure_", "vertex_", "watsonx_", "s3_")
_OF_LITELLM = ("litellm_", "mock_", "langfuse_", "langsmith_")


def check(arguments: Mapping[str, Any]) -> None:
    """Raises SettingError for an argument that steers LiteLLM, unless it switches nothing on."""
    for name, value in arguments.items():
        if name in CHAT_FIELDS or name in CALL_ARGUMENTS or not value:
            continue
        if way := KROUTER_WAY.get(name) or _way_by_prefix(name):
            raise SettingError(f"{name} is not an argument of krouter: {way}.")


def _way_by_prefix(name: str) -> str:
    if name.startswith(_OTHERS_SECRETS):
        return _ACCOUNTS
    return "it steers LiteLLM alone" if name.startswith(_OF_LITELLM) else ""


def ask(
    arguments: Mapping[str, Any],
    foreign: Collection[str],
    schema_of: Callable[[Any], Mapping[str, Any] | None],
) -> Asked:
    """The request that checked `arguments` make.

    `foreign` are the names of LiteLLM's own options, of which none is sent to a provider;
    `schema_of` gives the response format of a dict or of a pydantic class. Unknown arguments go
    into the request, as with LiteLLM. Raises SettingError.
    """
    model = _model(arguments)
    stream = bool(arguments.get("stream"))
    body = _body(arguments, foreign, schema_of)
    if stream:
        body["stream"] = True
    call = Call(
        dialect=get("chat"),
        body=Body.parse(_encoded({"model": model, **body})),
        headers=_headers(arguments),
        model=model,
        stream=stream,
        total=seconds(arguments.get("timeout") or arguments.get("request_timeout")),
    )
    base = arguments.get("base_url") or arguments.get("api_base")
    return Asked(call, arguments.get("api_key") or None, base or None)


def _model(arguments: Mapping[str, Any]) -> str:
    model, provider = arguments.get("model"), arguments.get("custom_llm_provider")
    if not isinstance(model, str) or not model:
        raise SettingError("model must be the name of a combo or a provider/model.")
    return f"{provider}/{model}" if provider and not model.startswith(f"{provider}/") else model


def _body(
    arguments: Mapping[str, Any],
    foreign: Collection[str],
    schema_of: Callable[[Any], Mapping[str, Any] | None],
) -> dict[str, Any]:
    """The fields to send; what is None is not sent."""
    if not isinstance(arguments.get("messages"), list | tuple):
        raise SettingError("messages must be a list.")
    body = {}
    for name, value in arguments.items():
        if value is None or name in CALL_ARGUMENTS or (not value and name in KROUTER_WAY):
            continue
        if name not in CHAT_FIELDS and name in foreign:
            if value:
                raise SettingError(f"{name} is not an argument of krouter: it steers LiteLLM.")
            continue
        body[name] = value
    if "response_format" in body:
        body["response_format"] = schema_of(body["response_format"])
    body |= arguments.get("extra_body") or {}
    for name in arguments.get("additional_drop_params") or ():
        body.pop(name, None)
    return body


def _headers(arguments: Mapping[str, Any]) -> Headers:
    given = {**(arguments.get("headers") or {}), **(arguments.get("extra_headers") or {})}
    headers = [(str(name).lower(), str(value)) for name, value in given.items()]
    passed = to_provider(headers)
    if refused := [name for name, _ in headers if name not in dict(passed)]:
        raise SettingError(
            f"The header {refused[0]} is not the caller's to set: a credential goes as api_key."
        )
    return passed


def seconds(timeout: Any) -> float | None:
    """A timeout in seconds: a number, its text, or the read timeout of an `httpx.Timeout`.

    Raises SettingError for anything else, and for what is not above 0.
    """
    given = timeout if isinstance(timeout, int | float | str) else getattr(timeout, "read", timeout)
    if given is None:
        return None
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise SettingError(f"timeout must be a number of seconds above 0, not {given!r}.")
    return number


def _plain(value: Any) -> Any:
    """A reply's message, handed back in the history, as plain data."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(exclude_none=True)
    raise SettingError(f"A {type(value).__name__} cannot be sent: it is not JSON.")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return _encode(body)
    except UnicodeEncodeError:
        raise SettingError("A text holds half of a surrogate pair, such as a cut emoji.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(f"The request is not JSON: {error}.") from None
