"""Replicate's API, as far as LiteLLM's call for it needs help.

A prediction is created with one prompt, and then asked after until it has ended. Source:
Replicate's HTTP API reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from krouter.adapter import Unsendable
from krouter.body import dump
from krouter.errors import Fault
from krouter.wire import Headers, Outgoing, WireError

MODEL = "krouter"
"""The model as LiteLLM is told. It looks up a prompt template on huggingface.co for any name that
has none of its own, and takes names with a version apart wrongly."""

CARRIED = ("temperature", "top_p", "max_tokens", "stop")
"""What LiteLLM puts in its place."""
_AS_IT_IS = ("seed", "top_k")

_NAME = re.compile(
    r"(?P<deployment>deployments/)?(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?::(?P<version>\w+))?|(?P<alone>[0-9a-f]{64})"
)
_ENDED = frozenset(("failed", "canceled", "aborted"))


class Refused(Exception):
    """An error of the provider's, with what came."""

    def __init__(self, status: int, headers: Headers, raw: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.raw = raw

    def error(self) -> dict[str, Any]:
        """The same, for a stream that has begun."""
        try:
            told = msgspec.json.decode(self.raw)
        except (msgspec.MsgspecError, RecursionError):
            told = None
        fields = told if isinstance(told, dict) else {}
        inner = fields.get("error")
        if isinstance(inner, dict):
            return inner
        message = fields.get("detail") or fields.get("title") or f"status {self.status}"
        return {"message": str(message), "code": self.status}


class Prediction:
    """One prediction: where its requests go, and what is known of it."""

    def __init__(self, base: str, model: str, headers: Headers, inputs: Mapping[str, Any]) -> None:
        found = _NAME.fullmatch(model)
        if found is None:
            raise Unsendable(
                "A model of Replicate's is named OWNER/NAME, OWNER/NAME:VERSION or"
                f" deployments/OWNER/NAME, not {model}."
            )
        self.id = ""
        self.status = ""
        self._base = base.rstrip("/")
        self._version = found["version"] or found["alone"]
        place = "deployments" if found["deployment"] else "models"
        self._create = "predictions" if self._version else f"{place}/{found['name']}/predictions"
        self._headers = headers
        self._inputs = inputs
        self._metrics: Mapping[str, Any] = {}

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    @property
    def running(self) -> bool:
        return bool(self.id) and not self.succeeded and self.status not in _ENDED

    def request(self, method: str, body: bytes) -> Outgoing:
        """One of LiteLLM's requests, to where it belongs: LiteLLM knows one address only, and would
        follow the one that the reply names."""
        if method == "POST":
            return Outgoing(f"{self._base}/{self._create}", self._headers, self._put(body))
        return Outgoing(self._own(), self._without_type(), b"", "GET")

    def _put(self, body: bytes) -> bytes:
        given = msgspec.json.decode(body)["input"]
        given.pop("stream", None)
        whole: dict[str, Any] = {"input": {**given, **self._inputs}}
        return dump({"version": self._version, **whole} if self._version else whole)

    def _own(self) -> str:
        return f"{self._base}/predictions/{quote(self.id, safe='')}"

    def _without_type(self) -> Headers:
        return [(name, value) for name, value in self._headers if name != "content-type"]

    def cancellation(self) -> Outgoing:
        return Outgoing(f"{self._own()}/cancel", self._without_type(), b"")

    def read(self, raw: bytes) -> None:
        """What a reply says of it. Raises Refused where it has failed, WireError for garbage."""
        try:
            told = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            told = None
        if not isinstance(told, dict) or not all(
            isinstance(told.get(name), str) and told[name] for name in ("id", "status")
        ):
            raise WireError(Fault.GARBAGE, "not a prediction of Replicate's")
        self.id = self.id or told["id"]
        self.status = told["status"]
        metrics = told.get("metrics")
        self._metrics = metrics if isinstance(metrics, dict) else {}
        if self.status in _ENDED:
            message = told.get("error") or f"The prediction was {self.status}."
            error = {"message": str(message), "type": "api_error"}
            headers = [("content-type", "application/json")]
            raise Refused(200, headers, dump({"error": error}))

    def usage(self) -> dict[str, int] | None:
        """Tokens, where Replicate counts them; LiteLLM's would be a guess."""
        counts = [self._metrics.get(f"{side}_token_count") for side in ("input", "output")]
        if not all(isinstance(count, int) for count in counts):
            return None
        asked, answered = (int(count or 0) for count in counts)
        return {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "total_tokens": asked + answered,
        }


def parameters(chat: Mapping[str, Any]) -> dict[str, Any]:
    """What of a chat body LiteLLM can put in its place."""
    found = {name: chat[name] for name in CARRIED if chat.get(name) is not None}
    if "max_tokens" not in found and chat.get("max_completion_tokens") is not None:
        found["max_tokens"] = chat["max_completion_tokens"]
    if isinstance(found.get("stop"), list):  # Replicate's is one string with commas
        found["stop"] = ",".join(map(str, found["stop"]))
    return found


def inputs(chat: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into a prediction's input under its own name: the entry's parameters, since every
    model has inputs of its own, and what LiteLLM would lose."""
    own = {k: v for k, v in params.items() if k not in (*CARRIED, "max_completion_tokens")}
    return {name: chat[name] for name in _AS_IT_IS if chat.get(name) is not None} | own


_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool result"}


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation as one prompt. Who spoke is said where there was more than one turn."""
    turns = [message for message in messages if message.get("role") in _SPEAKERS]
    if len(turns) == 1 and turns[0]["role"] == "user":
        return "\n\n".join(filter(None, map(_text, messages)))
    told = "\n\n".join(filter(None, map(_turn, messages)))
    return f"{told}\n\nAssistant:"


def _turn(message: Mapping[str, Any]) -> str:
    text = "\n".join(filter(None, (_text(message), *_tool_calls(message))))
    speaker = _SPEAKERS.get(str(message.get("role")))
    return f"{speaker}: {text}" if speaker and text else text


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _tool_calls(message: Mapping[str, Any]) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield f"[called {function.get('name')} with {function.get('arguments')}]"
