"""A call from Python, in the keyword arguments of LiteLLM's `completion`, as a chat request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from krouter.adapter import Call
from krouter.arguments import (
    CALL_ARGUMENTS,
    CHAT_FIELDS,
    EMBEDDING_FIELDS,
    KROUTER_WAY,
    SettingError,
)
from krouter.body import Body
from krouter.dialects import get
from krouter.headers import to_provider
from krouter.settings import MOST_SECONDS
from krouter.shapes import Shapes
from krouter.wire import Headers


@dataclass(frozen=True, slots=True)
class Asked:
    """One call. `api_key` and `api_base` are for this call alone."""

    call: Call
    api_key: str | None
    api_base: str | None


def ask(arguments: Mapping[str, Any], shapes: Shapes) -> Asked:
    """The request that checked `arguments` make.

    Unknown arguments go into the request, as with LiteLLM; its own options go to no provider.
    Raises SettingError.
    """
    stream = _streamed(arguments)
    body = _body(arguments, shapes)
    if stream:
        body["stream"] = True
    return _asked("chat", arguments, body, stream)


def ask_embedding(arguments: Mapping[str, Any], shapes: Shapes) -> Asked:
    """The same for the arguments of `embedding`. Raises SettingError."""
    if not isinstance(arguments.get("input"), str | list | tuple):
        raise SettingError("input must be a text, a list of texts, or lists of tokens.")
    fields = _fields(arguments, EMBEDDING_FIELDS, shapes)
    return _asked("embeddings", arguments, {**fields, **_extra(arguments)}, False)


def _asked(
    dialect: str, arguments: Mapping[str, Any], body: Mapping[str, Any], stream: bool
) -> Asked:
    model = _model(arguments)
    call = Call(
        dialect=get(dialect),
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


def _streamed(arguments: Mapping[str, Any]) -> bool:
    stream = arguments.get("stream")
    if stream not in (None, False, True):
        raise SettingError(f"stream must be True or False, not {stream!r}.")
    return bool(stream)


def _fields(arguments: Mapping[str, Any], own: frozenset[str], shapes: Shapes) -> dict[str, Any]:
    """The fields to send; what is None is not sent."""
    body = {}
    for name, value in arguments.items():
        if value is None or name in CALL_ARGUMENTS or (not value and name in KROUTER_WAY):
            continue
        if name not in own and name in shapes.options:
            if value:
                raise SettingError(f"{name} is not an argument of krouter: it steers LiteLLM.")
            continue
        body[name] = value
    return body


def _body(arguments: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    """A chat request."""
    body = _fields(arguments, CHAT_FIELDS, shapes)
    body["messages"] = _messages(arguments.get("messages"))
    if "response_format" in body:
        body["response_format"] = _format(body["response_format"], shapes)
    body |= _extra(arguments)
    for path in arguments.get("additional_drop_params") or ():
        body = shapes.without(body, path)
    return body


def _messages(given: Any) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise SettingError("messages must be a list.")
    return list(map(_message, given))


def _message(given: Any) -> Mapping[str, Any]:
    """A reply's message comes back as an object, or as a dict with None for what it has not; one
    without a role is the assistant's."""
    if not (isinstance(given, Mapping) or hasattr(given, "model_dump")):
        raise SettingError(f"A message must be a dict or LiteLLM's object, not {given!r:.80}.")
    message = given if isinstance(given, Mapping) else _plain(given)
    message = {name: value for name, value in message.items() if value is not None}
    return message if message.get("role") else {"role": "assistant", **message}


def _format(given: Any, shapes: Shapes) -> Mapping[str, Any] | None:
    try:
        return shapes.schema_of(given)
    except (TypeError, ValueError) as error:
        raise SettingError(f"response_format: {error}.") from None


def _extra(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = arguments.get("extra_body") or {}
    if not isinstance(extra, Mapping):
        raise SettingError(f"extra_body must be a dict, not a {type(extra).__name__}.")
    if "stream" in extra:
        raise SettingError("stream is an argument of its own, not a field of extra_body.")
    return extra


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _headers(arguments: Mapping[str, Any]) -> Headers:
    given = {**_pairs(arguments, "headers"), **_pairs(arguments, "extra_headers")}
    headers = list(given.items())
    passed = to_provider(headers)
    if refused := [name for name, _ in headers if name not in dict(passed)]:
        raise SettingError(
            f"The header {refused[0]} is not the caller's to set: a credential goes as api_key."
        )
    return passed


def _pairs(arguments: Mapping[str, Any], argument: str) -> dict[str, str]:
    try:
        given = dict(arguments.get(argument) or {})
    except (TypeError, ValueError):
        raise SettingError(f"{argument} must be a dict, or a list of pairs.") from None
    return dict(_checked_headers(given))


def _checked_headers(given: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise SettingError(f"{name!r} is no name of a header.")
        if value is None:
            continue
        if any(ord(letter) < 32 and letter != "\t" for letter in str(value)):
            raise SettingError(f"The value of the header {name} is more than one line.")
        yield name.lower(), str(value)


def seconds(timeout: Any) -> float | None:
    """A timeout in seconds: a number, its text, or the read timeout of an `httpx.Timeout`.

    Raises SettingError for anything else, for what is not above 0 and for what no clock can hold.
    """
    given = timeout if isinstance(timeout, int | float | str) else getattr(timeout, "read", timeout)
    if given is None:
        return None
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < MOST_SECONDS:
        raise SettingError(f"timeout must be a number of seconds above 0, not {given!r}.")
    return number


def _plain(value: Any) -> Any:
    """A reply's message, handed back in the history, as plain data."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json", exclude_none=True)
    what = value.__name__ if isinstance(value, type) else type(value).__name__
    raise SettingError(f"A value of the type {what} cannot be sent: it is not JSON.")


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(
            body, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()
    except UnicodeEncodeError:
        raise SettingError("A text holds half of a surrogate pair, such as a cut emoji.") from None
    except SettingError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(f"The request is not JSON: {error}.") from None
