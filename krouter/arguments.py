"""The arguments of `completion`: LiteLLM's about the request, in its order, and krouter's answer to
those about LiteLLM itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Signature, iscoroutinefunction, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")
Owner = TypeVar("Owner")
Arguments = dict[str, Any]
Json = Mapping[str, Any]
Pairs = Mapping[str, Any] | Sequence[tuple[str, Any]]


class SettingError(TypeError):
    """An argument that krouter does not take; the text names the krouter way."""


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
    "api_type": 'ask for "azure/MODEL"',
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


EMBEDDING_FIELDS = frozenset("input dimensions encoding_format user".split())
"""Those of `embedding` that go into the request as they are."""


def _given(arguments: Arguments, required: Sequence[str] = ("model", "messages")) -> Arguments:
    """Those that are not None, under their names."""
    arguments |= arguments.pop("others")
    return {k: v for k, v in arguments.items() if v is not None or k in required}


def completion(
    model: str,
    messages: Sequence[Any] = (),
    timeout: Any = None,
    temperature: float | None = None,
    top_p: float | None = None,
    n: int | None = None,
    stream: bool | None = None,
    stream_options: Json | None = None,
    stop: str | Sequence[str] | None = None,
    max_completion_tokens: int | None = None,
    max_tokens: int | None = None,
    modalities: Sequence[str] | None = None,
    prediction: Json | None = None,
    audio: Json | None = None,
    presence_penalty: float | None = None,
    frequency_penalty: float | None = None,
    logit_bias: Mapping[Any, float] | None = None,
    user: str | None = None,
    reasoning_effort: str | Json | None = None,
    verbosity: str | None = None,
    response_format: Any = None,
    seed: int | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: str | Json | None = None,
    logprobs: bool | None = None,
    top_logprobs: int | None = None,
    parallel_tool_calls: bool | None = None,
    web_search_options: Json | None = None,
    *,
    functions: Sequence[Any] | None = None,
    function_call: str | Json | None = None,
    extra_headers: Pairs | None = None,
    safety_identifier: str | None = None,
    service_tier: str | None = None,
    store: bool | None = None,
    prompt_cache_key: str | None = None,
    prompt_cache_retention: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    thinking: Json | None = None,
    api_base: str | None = None,
    custom_llm_provider: str | None = None,
    headers: Pairs | None = None,
    extra_body: Json | None = None,
    metadata: Any = None,
    drop_params: bool | None = None,
    additional_drop_params: Sequence[str] | None = None,
    allowed_openai_params: Sequence[str] | None = None,
    **others: Any,
) -> Arguments:
    """The arguments of LiteLLM's `completion`; by position in its order."""
    return _given(locals())


def acompletion(
    model: str,
    messages: Sequence[Any] = (),
    functions: Sequence[Any] | None = None,
    function_call: str | Json | None = None,
    timeout: Any = None,
    temperature: float | None = None,
    top_p: float | None = None,
    n: int | None = None,
    stream: bool | None = None,
    stream_options: Json | None = None,
    stop: str | Sequence[str] | None = None,
    max_tokens: int | None = None,
    max_completion_tokens: int | None = None,
    modalities: Sequence[str] | None = None,
    prediction: Json | None = None,
    audio: Json | None = None,
    presence_penalty: float | None = None,
    frequency_penalty: float | None = None,
    logit_bias: Mapping[Any, float] | None = None,
    user: str | None = None,
    response_format: Any = None,
    seed: int | None = None,
    tools: Sequence[Any] | None = None,
    tool_choice: str | Json | None = None,
    parallel_tool_calls: bool | None = None,
    logprobs: bool | None = None,
    top_logprobs: int | None = None,
    *,
    reasoning_effort: str | Json | None = None,
    verbosity: str | None = None,
    web_search_options: Json | None = None,
    extra_headers: Pairs | None = None,
    safety_identifier: str | None = None,
    service_tier: str | None = None,
    store: bool | None = None,
    prompt_cache_key: str | None = None,
    prompt_cache_retention: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    thinking: Json | None = None,
    api_base: str | None = None,
    custom_llm_provider: str | None = None,
    headers: Pairs | None = None,
    extra_body: Json | None = None,
    metadata: Any = None,
    drop_params: bool | None = None,
    additional_drop_params: Sequence[str] | None = None,
    allowed_openai_params: Sequence[str] | None = None,
    **others: Any,
) -> Arguments:
    """The arguments of LiteLLM's `acompletion`, whose order is another."""
    return _given(locals())


def embedding(
    model: str,
    input: Any = None,
    dimensions: int | None = None,
    encoding_format: str | None = None,
    timeout: Any = None,
    api_base: str | None = None,
    api_version: str | None = None,
    api_key: str | None = None,
    api_type: str | None = None,
    caching: bool | None = None,
    user: str | None = None,
    custom_llm_provider: str | None = None,
    *,
    base_url: str | None = None,
    headers: Pairs | None = None,
    extra_headers: Pairs | None = None,
    extra_body: Json | None = None,
    metadata: Any = None,
    drop_params: bool | None = None,
    allowed_openai_params: Sequence[str] | None = None,
    **others: Any,
) -> Arguments:
    """The arguments of LiteLLM's `embedding` and `aembedding`; by position in its order."""
    return _given(locals(), ("model", "input"))


class _Takes(Protocol[P]):
    @overload
    def __call__(self, function: Callable[[Arguments], R]) -> Callable[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, Arguments], R]
    ) -> Callable[Concatenate[Owner, P], R]: ...


def takes(arguments_of: Callable[P, Arguments]) -> _Takes[P]:
    """Gives a function of such arguments, or a method, the parameters that they are made from."""

    def decorate(function: Callable[..., Any]) -> Any:
        *owner, _ = signature(function).parameters.values()
        count = len(owner)

        def passed(args: tuple[Any, ...], kwargs: Arguments) -> tuple[Any, ...]:
            return (*args[:count], arguments_of(*args[count:], **kwargs))

        if iscoroutinefunction(function):

            @wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return await function(*passed(args, kwargs))
        else:

            @wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return function(*passed(args, kwargs))

        shown = signature(arguments_of)
        told: Any = call
        told.__signature__ = Signature([*owner, *shown.parameters.values()])
        return told

    return decorate
