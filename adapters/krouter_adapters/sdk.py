"""What the SDK gives back: LiteLLM's replies, stream chunks and exceptions, with the route.

Importing this imports LiteLLM, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
from pydantic import PrivateAttr

from krouter.dialects.base import read_loosely
from krouter.errors import Failure
from krouter.shapes import Shapes, Source, Trouble, Unreadable
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

without: Callable[[dict[str, Any], str], dict[str, Any]] = import_module(
    "litellm.litellm_core_utils.dot_notation_indexing"
).delete_nested_value
"""A body less what a path such as `tools[*].function.strict` names."""

options = frozenset(_types.all_litellm_params)
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


class EmbeddingResponse(_types.EmbeddingResponse):  # type: ignore[misc]
    """LiteLLM's embeddings. `route` is krouter's record of how they came about."""

    _route: Any = PrivateAttr(default=None)

    @property
    def route(self) -> Any:
        return self._route


def embeddings(body: bytes, source: Source) -> Any:
    """The reply in the JSON of embeddings. Raises Unreadable."""
    told = decode(body)
    usage = told.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    told["usage"] = {name: _whole(counts.get(name)) for name in ("prompt_tokens", "total_tokens")}
    try:
        made = _convert(
            response_object=told,
            model_response_object=EmbeddingResponse(),
            response_type="embedding",
            hidden_params={},
            _response_headers={n: v for n, v in source.headers if not _is_ours(n)},
        )
    except Exception as error:
        raise Unreadable(f"The reply could not be read ({type(error).__name__}).") from None
    made._route = source.route
    made._response_headers = dict(source.headers)
    made._hidden_params |= _hidden(source, _cost(made, source))
    return made


def reply(body: bytes, source: Source) -> Any:
    """The reply in a chat completion's JSON. Raises Unreadable."""
    try:
        made = _replied(decode(body), source.headers)
    except Exception:  # a bare one, when a field is not of the kind that LiteLLM has for it
        made = _mended_reply(decode(body), source.headers)
    made._route = source.route
    made._response_headers = dict(source.headers)
    made._hidden_params |= _hidden(source, _cost(made, source))
    return made


def _mended_reply(told: dict[str, Any], headers: Headers) -> Any:
    try:
        return _replied(_mended(told), headers)
    except Exception as error:
        raise Unreadable(f"The reply could not be read ({type(error).__name__}).") from None


def _replied(told: dict[str, Any], headers: Headers) -> Any:
    told["choices"] = told.get("choices") or []
    told["usage"] = told.get("usage") or dict.fromkeys(_COUNTS, 0)
    return _convert(
        response_object=told,
        model_response_object=ModelResponse(),
        hidden_params={"additional_headers": {n: v for n, v in headers if _is_ours(n)}},
        _response_headers={n: v for n, v in headers if not _is_ours(n)},
    )


_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_ROLES = frozenset(("assistant", "user", "system", "tool", "function"))
_KINDS: Mapping[str, type] = {
    "reasoning": str,
    "reasoning_content": str,
    "refusal": str,
    "provider_specific_fields": dict,
}
"""Fields of a message that say nothing if they are of another kind."""
_NOT_THEIRS = ("route", "hidden_params", "self")
"""Fields by whose name LiteLLM's objects hold something else."""


def _mended(told: dict[str, Any]) -> dict[str, Any]:
    """The reply in the forms that LiteLLM reads, for what is there in another form."""
    told = {n: v for n, v in told.items() if n not in _NOT_THEIRS and not n.startswith("_")}
    usage = told.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    told["usage"] = {name: _whole(counts.get(name)) for name in _COUNTS}
    for choice in told.get("choices") or ():
        message = choice.get("message") or {"content": choice.get("text")}
        choice["message"] = {
            n: v for n, v in message.items() if isinstance(v, _KINDS.get(n, object))
        }
        choice["message"]["content"] = _text(message.get("content"))
        if message.get("role") not in _ROLES:
            choice["message"]["role"] = "assistant"
    return told


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _text(content: Any) -> str | None:
    """What a content says, as a text or as a list of parts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    return "".join(filter(None, map(_part, content)))


def _part(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else None


def _is_ours(header: str) -> bool:
    return header.startswith("x-krouter-")


def _hidden(source: Source, cost: float | None) -> dict[str, Any]:
    """What LiteLLM notes beside a reply; `model_id` is the entry that served."""
    route = source.route
    took = (route.ended - route.began) * 1000 if route and route.ended else None
    return {
        "custom_llm_provider": source.provider,
        "model_id": source.entry or None,
        "litellm_model_name": f"{source.provider}/{source.model}",
        "api_base": source.api_base,
        "response_cost": cost,
        "_response_ms": took,
    }


def _cost(made: Any, source: Source) -> float | None:
    """In dollars; None for a model whose prices LiteLLM does not have."""
    model, known = source.model, litellm.model_cost
    facts = known.get(f"{source.provider}/{model}") or known.get(model) or {}
    if not facts.get("litellm_provider", "").startswith(source.provider or "?"):
        return None
    try:
        cost: float = litellm.completion_cost(
            completion_response=made, model=model, custom_llm_provider=source.provider
        )
    except Exception:  # a price it cannot work out is no fault of the reply
        return None
    return cost


class Pieces:
    """The pieces of one stream."""

    def __init__(self, source: Source) -> None:
        headers = dict(source.headers)
        self.hidden_params = _hidden(source, None) | {
            "additional_headers": {
                name if _is_ours(name) else f"llm_provider-{name}": value
                for name, value in headers.items()
            }
        }
        self._route = source.route
        self._called: set[Any] = set()

    def made(self, told: dict[str, Any]) -> Any:
        """The piece in a chat completion chunk's JSON. Raises Unreadable."""
        try:
            made = self._built(told)
        except Exception:  # pydantic's, or what its classes stumble over
            made = self._mended(told)
        made._route = self._route
        made._hidden_params = self.hidden_params
        return made

    def _mended(self, told: dict[str, Any]) -> Any:
        try:
            return self._built(_mended_chunk(told))
        except Exception as error:
            what = type(error).__name__
            raise Unreadable(f"An event of the reply could not be read ({what}).") from None

    def _built(self, told: dict[str, Any]) -> Any:
        choices = told.get("choices") or []
        if not isinstance(told.get("usage", {}), dict):
            del told["usage"]
        for choice in choices:
            delta = choice.get("delta")
            if delta is not None:
                self._read(choice, delta)
            if choice.get("finish_reason") == "stop" and choice.get("index", 0) in self._called:
                choice["finish_reason"] = "tool_calls"
        return ModelResponseStream(**{**told, "choices": choices})

    def _read(self, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        if not isinstance(delta.get("content"), str | None):
            delta["content"] = _text(delta["content"])
        if "reasoning" in delta:
            delta.setdefault("reasoning_content", delta.pop("reasoning"))
        if not isinstance(delta.get("reasoning_content"), str | None):
            del delta["reasoning_content"]
        if any(delta.get("tool_calls") or ()):
            self._called.add(choice.get("index", 0))


def pieces(source: Source) -> Pieces:
    return Pieces(source)


def _mended_chunk(told: dict[str, Any]) -> dict[str, Any]:
    """The chunk with the strangeness taken out that LiteLLM puts up with."""
    told = {n: v for n, v in told.items() if n not in _NOT_THEIRS and not n.startswith("_")}
    if not isinstance(told.get("provider_specific_fields"), dict):
        told.pop("provider_specific_fields", None)
    told["id"] = str(told.get("id") or "")
    told["created"] = _whole(told.get("created"))
    for choice in told.get("choices") or ():
        for call in (choice.get("delta") or {}).get("tool_calls") or ():
            if call.get("function") is None:
                call["function"] = {"arguments": ""}
    return told


def decode(raw: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for what is none."""
    try:
        told = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        told = read_loosely(raw, dict)
    return told if isinstance(told, dict) else {}


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
    Failure.IMAGE_REJECTED: _named["BadRequestError"],
    Failure.TOO_LARGE: _named["ContextWindowExceededError"],
    Failure.MODEL_GONE: _named["NotFoundError"],
    Failure.ACCOUNT_BARRED: _named["PermissionDeniedError"],
    Failure.QUOTA_SPENT: _named["RateLimitError"],
    Failure.NOT_SIGNED_IN: _named["AuthenticationError"],
    Failure.RATE_LIMITED: _named["RateLimitError"],
    Failure.OVERLOADED: _named["ServiceUnavailableError"],
    Failure.SERVER_ERROR: _server,
    Failure.TIMED_OUT: _timeout,
    Failure.REFUSED: _named["ContentPolicyViolationError"],
    Failure.FEATURE_REFUSED: _named["BadRequestError"],
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
    made.body = body = decode(told.body).get("error")
    for name in ("code", "type", "param"):
        setattr(made, name, body.get(name) if isinstance(body, dict) else None)
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
    source = Source("openai", "gpt-4o", "openai/gpt-4o", None, [], None)
    with without_warnings():
        reply(_SAMPLE, source).model_dump()
        delta = {"role": "assistant", "content": "", "tool_calls": []}
        pieces(source).made({"id": "", "choices": [{"index": 0, "delta": delta}]}).model_dump()


_warm_up()

if TYPE_CHECKING:
    from krouter_adapters import sdk

    _fits: Shapes = sdk
