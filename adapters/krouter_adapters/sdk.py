"""What the SDK gives back: LiteLLM's replies, stream chunks and exceptions, with the route.

Importing this imports LiteLLM, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import httpx
import msgspec
from pydantic import PrivateAttr

from krouter.dialects.base import read_loosely
from krouter.errors import Failure
from krouter.wire import Headers
from krouter_adapters.litellm_lane.load import load_litellm, without_warnings

litellm = load_litellm()
_types: Any = import_module("litellm.types.utils")
_convert: Callable[..., Any] = import_module(
    "litellm.litellm_core_utils.llm_response_utils.convert_dict_to_response"
).convert_to_model_response_object
schema_of: Callable[[Any], Mapping[str, Any] | None] = import_module(
    "litellm.llms.base_llm.base_utils"
).type_to_response_format_param

OPTIONS = frozenset(_types.all_litellm_params)
"""Names of LiteLLM's own options, which go to no provider."""

_URL = "https://krouter.invalid/v1/chat/completions"


class ModelResponse(_types.ModelResponse):  # type: ignore[misc]
    """LiteLLM's reply. `route` is krouter's record of how it came about."""

    _route: Any = PrivateAttr(default=None)

    @property
    def route(self) -> Any:
        return self._route


class ModelResponseStream(_types.ModelResponseStream):  # type: ignore[misc]
    """LiteLLM's piece of a stream. `route` is krouter's record of how it came about."""

    _route: Any = PrivateAttr(default=None)

    @property
    def route(self) -> Any:
        return self._route


def reply(body: bytes, headers: Headers, provider: str, route: Any) -> Any:
    """The reply in a chat completion's JSON. `provider` is LiteLLM's name for who served it."""
    told = decode(body)
    told["choices"] = told.get("choices") or []
    made = _convert(
        response_object=told,
        model_response_object=ModelResponse(),
        hidden_params={
            "custom_llm_provider": provider,
            "additional_headers": {_headed(name): value for name, value in headers},
        },
        _response_headers=dict(headers),
    )
    made._route = route
    return made


def _headed(name: str) -> str:
    """As LiteLLM marks a provider's headers."""
    return name if name.startswith("x-krouter-") else f"llm_provider-{name}"


def chunk(told: dict[str, Any], route: Any) -> Any:
    """The piece of a stream in a chat completion chunk's JSON."""
    choices = told.get("choices") or []
    if told.get("usage", True) is None:
        del told["usage"]
    for choice in choices:
        delta = choice.get("delta")
        if delta and "reasoning" in delta:
            delta.setdefault("reasoning_content", delta.pop("reasoning"))
    made = ModelResponseStream(**{**told, "choices": choices})
    made._route = route
    return made


def decode(raw: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for what is none."""
    try:
        told = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        told = read_loosely(raw, dict)
    return told if isinstance(told, dict) else {}


@dataclass(frozen=True, slots=True)
class Trouble:
    """An answer that is an error. `failure` is why the last attempt failed, None if there was none;
    `cut` says that the connection failed, not the provider's reply."""

    failure: Failure | None
    status: int
    message: str
    provider: str
    model: str
    headers: Headers
    body: bytes
    cut: bool = False


_Make = Callable[[Trouble, httpx.Response], Exception]


def _makes(name: str, told: Trouble, response: httpx.Response) -> Exception:
    made: Exception = getattr(litellm, name)(
        message=told.message, llm_provider=told.provider, model=told.model, response=response
    )
    return made


def _timeout(told: Trouble, response: httpx.Response) -> Exception:
    made: Exception = litellm.Timeout(
        message=told.message,
        llm_provider=told.provider,
        model=told.model,
        exception_status_code=told.status,
        response=response,
    )
    return made


def _connection(told: Trouble, response: httpx.Response) -> Exception:
    made: Exception = litellm.APIConnectionError(
        message=told.message,
        llm_provider=told.provider,
        model=told.model,
        request=response.request,
    )
    return made


def _other(told: Trouble, response: httpx.Response) -> Exception:
    made: Exception = litellm.APIError(
        told.status,
        told.message,
        told.provider,
        told.model,
        request=response.request,
        response=response,
    )
    return made


def _server(told: Trouble, response: httpx.Response) -> Exception:
    return (
        _connection(told, response) if told.cut else _named["InternalServerError"](told, response)
    )


def _bad(told: Trouble, response: httpx.Response) -> Exception:
    name = "NotFoundError" if told.status == 404 else "BadRequestError"
    return _named[name](told, response)


_named: Mapping[str, _Make] = {
    name: partial(_makes, name)
    for name in (
        "AuthenticationError",
        "BadRequestError",
        "ContentPolicyViolationError",
        "ContextWindowExceededError",
        "InternalServerError",
        "NotFoundError",
        "PermissionDeniedError",
        "RateLimitError",
        "ServiceUnavailableError",
    )
}

ERRORS: Mapping[Failure, _Make] = {
    Failure.CALLER_GONE: _connection,
    Failure.TOO_LARGE: _named["ContextWindowExceededError"],
    Failure.ACCOUNT_BARRED: _named["PermissionDeniedError"],
    Failure.QUOTA_SPENT: _named["RateLimitError"],
    Failure.NOT_SIGNED_IN: _named["AuthenticationError"],
    Failure.RATE_LIMITED: _named["RateLimitError"],
    Failure.OVERLOADED: _named["ServiceUnavailableError"],
    Failure.SERVER_ERROR: _server,
    Failure.TIMED_OUT: _timeout,
    Failure.REFUSED: _named["ContentPolicyViolationError"],
    Failure.BAD_REQUEST: _bad,
    Failure.EMPTY_REPLY: _named["InternalServerError"],
}
"""The exception for each class of failure; its `status_code` is always the answer's own."""

_BY_STATUS: Mapping[int, _Make] = {
    400: _named["BadRequestError"],
    401: _named["AuthenticationError"],
    403: _named["PermissionDeniedError"],
    404: _named["NotFoundError"],
    413: _named["ContextWindowExceededError"],
    429: _named["RateLimitError"],
    500: _named["InternalServerError"],
    502: _named["InternalServerError"],
    503: _named["ServiceUnavailableError"],
    504: _timeout,
    529: _named["ServiceUnavailableError"],
}
"""The exception where nothing was sent, so that no attempt has failed."""


def error(told: Trouble, route: Any) -> Exception:
    """The exception to raise, with `status_code`, `response`, `body` and `route`."""
    request = httpx.Request("POST", _URL)
    response = httpx.Response(told.status, headers=told.headers, content=told.body, request=request)
    make = ERRORS[told.failure] if told.failure else _BY_STATUS.get(told.status, _other)
    made: Any = make(told, response)
    made.status_code, made.response = told.status, response
    made.body = decode(told.body).get("error")
    made.route = route
    assert isinstance(made, Exception)
    return made


_SAMPLE = (
    b'{"id":"","created":1,"model":"","choices":[{"index":0,"finish_reason":"stop","message":'
    b'{"role":"assistant","content":"","tool_calls":[{"id":"","type":"function","function":'
    b'{"name":"","arguments":"{}"}}]}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
)


def _warm_up() -> None:
    """Builds one of each, since pydantic finishes a class, with warnings, at its first use."""
    with without_warnings():
        reply(_SAMPLE, [], "", None).model_dump()
        delta = {"role": "assistant", "content": "", "tool_calls": []}
        chunk({"id": "", "choices": [{"index": 0, "delta": delta}]}, None).model_dump()


_warm_up()
