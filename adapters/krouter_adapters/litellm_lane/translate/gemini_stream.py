"""Chat chunks in, Gemini's chunks out.

Sources: the OpenAI API reference, "Streaming"; the Gemini API reference, "GenerateContentResponse".
A function call has its arguments as an object, so it is told once it is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from krouter.dialects.gemini import status_name
from krouter.errortext import read_error, stands_for
from krouter.sse import encode
from krouter_adapters.litellm_lane.translate.chat_blocks import Block, ChatBlocks
from krouter_adapters.litellm_lane.translate.chat_parts import REDACTED, TEXT, THOUGHT, TOOL
from krouter_adapters.litellm_lane.translate.gemini_shapes import (
    ToldOfGemini,
    signature_of,
    usage_to_gemini,
)
from krouter_adapters.litellm_lane.translate.responses_shapes import Told
from krouter_adapters.litellm_lane.translate.shapes import (
    FINISH_OF,
    Json,
    arguments_object,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    broken,
    new_id,
    quoted,
    stop_reason,
    to_json,
)

_FINISH = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
_TAIL = b'}],"role":"model"},"index":0}]'


class ChatToGemini(ChatBlocks):
    """Fed the chunks of one chat stream, it returns the same reply as Gemini's.

    `parts` are what a whole reply says: they are collected where `whole` is set, and nothing is
    told but an error.
    """

    def __init__(
        self, names: Mapping[str, str], told: Told | None = None, *, whole: bool = False
    ) -> None:
        super().__init__(names)
        self.parts: list[Json] = []
        self.last: Json = {}
        """The last chunk of the reply."""
        self._maker = told.maker if told else ""
        self._shows_thoughts = told.thoughts if isinstance(told, ToldOfGemini) else True
        self._whole = whole
        self._outer: Json = {}
        self._end = b""
        self._signed: list[Json] = []
        self._thought: list[str] = []
        self._logprobs: list[Json] = []

    def error(self, error: Json) -> bytes:
        """An error as the data of an event. Nothing follows it."""
        self._closed = True
        self.last = gemini_error(as_dict(error))
        return encode(to_json(self.last).encode())

    def _start(self, chunk: Json) -> bytes:
        """A chunk that says nothing yet, so that the caller hears that the reply has begun."""
        self._started = True
        own_id = as_text(chunk.get("id")) or new_id("resp_")
        self._outer = {"modelVersion": as_text(chunk.get("model")), "responseId": own_id}
        self._end = b"," + to_json(self._outer).encode()[1:] + b"\n\n"
        return b"" if self._whole else _TEXT_HEAD + b'""' + _TAIL + self._end

    def _choice(self, choice: Json) -> bytes:
        probabilities = as_dict(choice.get("logprobs")).get("content")
        self._logprobs += as_dicts(probabilities)
        return super()._choice({**choice, "logprobs": None} if probabilities else choice)

    def _complete(self, reason: str, *, calls: bool) -> bytes:
        reason = stop_reason(reason, calls=calls, refused=self._refused)
        start = b"" if self._started else self._start({})
        out = start + b"".join(self._drain(finished=True))
        self._closed = True
        candidate: Json = {
            "content": {"parts": [{"text": ""}], "role": "model"},
            "finishReason": _FINISH.get(FINISH_OF[reason], "STOP"),
            "index": 0,
        }
        if self._logprobs:
            candidate["logprobsResult"] = _logprobs(self._logprobs)
        usage = usage_to_gemini(self._usage)
        self.last = {"candidates": [candidate], "usageMetadata": usage, **self._outer}
        return out if self._whole else out + encode(to_json(self.last).encode())

    def _open(self, block: Block) -> bytes:
        block.opened = True
        return b""

    def _more(self, text: str) -> bytes:
        return self._told(text, thought=False)

    def _piece(self, block: Block) -> bytes:
        pieces, block.parts = "".join(block.parts), []
        if block.kind == TOOL:
            return b""
        if block.kind == TEXT:
            self._head = b"" if self._whole else _HEAD
            return self._told(pieces, thought=False)
        self._thought.append(pieces)
        return self._told(pieces, thought=True) if self._shows_thoughts else b""

    def _told(self, text: str, *, thought: bool) -> bytes:
        if self._whole:
            self.parts.append({"text": text, "thought": True} if thought else {"text": text})
            return b""
        return (_THOUGHT_HEAD if thought else _TEXT_HEAD) + quoted(text) + _TAIL + self._end

    def _close(self, block: Block) -> bytes:
        self._index += 1
        thought, self._thought = "".join(self._thought), []
        if block.kind == THOUGHT and block.signature:
            self._signed.append(
                {"type": THOUGHT, "thinking": thought, "signature": block.signature}
            )
        elif block.kind == REDACTED:
            self._signed.append({"type": REDACTED, "data": "".join(block.parts)})
        return self._call(block) if block.kind == TOOL else b""

    def _call(self, block: Block) -> bytes:
        """A call whose arguments break off is left out: no tool may run on half its input."""
        if broken(block.arguments):
            return b""
        call_id = block.id if block.id and block.id not in self._sent_ids else new_id("call_")
        self._sent_ids.add(call_id)
        name = self._names.get(block.name, block.name)
        value, _ = arguments_object(block.arguments)
        part: Json = {"functionCall": {"name": name, "args": value, "id": call_id}}
        if self._signed:
            part["thoughtSignature"] = signature_of(self._maker, self._signed)
            self._signed = []
        if self._whole:
            self.parts.append(part)
            return b""
        return _HEAD + to_json(part).encode()[1:-1] + _TAIL + self._end


_HEAD = b'data: {"candidates":[{"content":{"parts":[{'
_TEXT_HEAD = _HEAD + b'"text":'
_THOUGHT_HEAD = _HEAD + b'"thought":true,"text":'


def _logprobs(content: list[Json]) -> Json:
    return {
        "chosenCandidates": [_token(each) for each in content],
        "topCandidates": [
            {"candidates": [_token(top) for top in as_dicts(each.get("top_logprobs"))]}
            for each in content
        ],
    }


def _token(told: Json) -> Json:
    return {"token": as_text(told.get("token")), "logProbability": told.get("logprob")}


def gemini_error(error: Json) -> Json:
    """An error of any provider's in Google's form. All it says besides is kept, such as when to
    come again; the name its code had goes where Google gives a narrower reason."""
    text, _ = read_error(to_json({"error": error}).encode())
    status = stands_for(text) or 500
    made = {key: value for key, value in error.items() if value is not None}
    if not isinstance(error.get("status"), str):
        made |= {"code": status, "status": status_name(status)}
        if reason := text.code or text.type:
            made["details"] = [{"@type": _ERROR_INFO, "reason": reason}]
    made["message"] = text.message or "The provider sent an error without a message."
    return {"error": made}


_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def chat_reply_to_gemini(
    reply: Json, names: Mapping[str, str], told: Told | None = None, lost: set[str] | None = None
) -> Json:
    """A chat completion as Gemini's reply; an error where it was cut, empty where it is no
    completion. It is told as a stream of one chunk, so that both ways say the same."""
    choices: Any = as_dict(reply).get("choices")
    if not choices and not (isinstance(choices, list) or reply.get("object") == "chat.completion"):
        return {}
    choice = as_dict(choices[0]) if isinstance(choices, list) and choices else {}
    message = choice.get("message") or {"content": choice.get("text")}
    if (choices and not choice) or not isinstance(message, dict):
        return {}
    machine = ChatToGemini(names, told, whole=True)
    finish = choice.get("finish_reason")
    ended = finish if isinstance(finish, str) and finish else "stop"
    said = {"index": 0, "message": message, "delta": None, "finish_reason": ended}
    machine.feed({**reply, "choices": [{**choice, **said}]})
    machine.end()
    if lost is not None:
        lost |= machine.lost | ({"choices"} if len(as_list(choices)) > 1 else set())
    last = machine.last
    if "error" in last:
        return last
    candidate = last["candidates"][0]
    if machine.parts:
        candidate["content"]["parts"] = machine.parts
    elif finish is None:
        del candidate["finishReason"]
    return last
