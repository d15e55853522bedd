"""Chat chunks in, responses events out.

Sources: the OpenAI API reference, "Streaming" and "Responses streaming". Each item is added, filled
and done before the next is added, as the API itself does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from krouter.dialects.responses_stream import failure
from krouter.dialects.tool_names import Tool
from krouter.errortext import ErrorText, read_error, stands_for
from krouter.sse import encode
from krouter_adapters.litellm_lane.translate.chat_blocks import Block, ChatBlocks
from krouter_adapters.litellm_lane.translate.chat_parts import REDACTED, TEXT, THOUGHT, TOOL
from krouter_adapters.litellm_lane.translate.responses_shapes import (
    Told,
    custom_input,
    envelope,
    usage_to_responses,
)
from krouter_adapters.litellm_lane.translate.sealed import seal
from krouter_adapters.litellm_lane.translate.shapes import (
    FINISH_OF,
    Json,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    broken,
    new_id,
    prefixed_id,
    quoted,
    to_json,
)

REFUSAL = "refusal"
_CUSTOM = "custom"

# Of each kind of block: the prefix of the item's id, the name of its deltas, where they stand in
# the item, and under which name they come back whole.
_KINDS: Mapping[str, tuple[str, str, str, str]] = {
    TEXT: ("msg_", "response.output_text", '"content_index":0,"logprobs":[],', "text"),
    REFUSAL: ("msg_", "response.refusal", '"content_index":0,', "refusal"),
    THOUGHT: ("rs_", "response.reasoning_summary_text", '"summary_index":0,', "text"),
    REDACTED: ("rs_", "", "", ""),
    TOOL: ("fc_", "response.function_call_arguments", "", "arguments"),
    _CUSTOM: ("ctc_", "response.custom_tool_call_input", "", "input"),
}

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ChatToResponses(ChatBlocks):
    """Fed the chunks of one chat stream, it returns the events of the same reply as responses;
    `response` is that reply as far as it has come."""

    def __init__(self, names: Mapping[str, str], told: Told | None = None) -> None:
        super().__init__(names)
        self._told = told or Told()
        self.response = envelope(new_id("resp_"), "", self._told.echo)
        self._number = 0
        self._item: Json = {}
        self._kind = ""
        self._said: list[str] = []
        self._annotations: list[Json] = []
        self._lead = b""

    def error(self, error: Json) -> bytes:
        """The events of a response that failed: `error`, which OpenAI's SDKs raise, then
        `response.failed`. Nothing follows them."""
        self._closed = True
        told = responses_error(as_dict(error))
        self.response["status"], self.response["error"] = "failed", told
        if self._usage:
            self.response["usage"] = usage_to_responses(self._usage)
        flat = {"code": told["code"], "message": told["message"], "param": None}
        raised = self._event("error", {**flat, "error": told})
        return raised + self._event("response.failed", {"response": self.response})

    def _start(self, chunk: Json) -> bytes:
        self._started = True
        self.response["id"] = prefixed_id(chunk.get("id"), "resp_")
        self.response["model"] = as_text(chunk.get("model"))
        begun = {"response": self.response}
        return self._event("response.created", begun) + self._event("response.in_progress", begun)

    def _complete(self, reason: str, *, calls: bool) -> bytes:
        cut = _INCOMPLETE.get(FINISH_OF[reason])
        out = [b"" if self._started else self._start({})]
        last = self._blocks[-1] if self._blocks else None
        if cut and last is not None:
            last.cut = last.kind != TOOL or not last.is_whole()
        out += self._drain(finished=True)
        self._closed = True
        self.response["status"] = "incomplete" if cut else "completed"
        self.response["incomplete_details"] = {"reason": cut} if cut else None
        self.response["usage"] = usage_to_responses(self._usage)
        out.append(self._event(f"response.{self.response['status']}", {"response": self.response}))
        return b"".join(out)

    def _refuse(self, text: str) -> None:
        self._add_text(REFUSAL, text)

    def _beside(self, delta: Json) -> None:
        super()._beside({key: value for key, value in delta.items() if key != "annotations"})
        for annotation in as_dicts(delta.get("annotations")):
            if any(block.kind == TEXT for block in self._blocks):
                self._annotations.append(_flat(annotation))
            else:
                self.lost.add("annotations")

    # One item

    def _tool(self, block: Block) -> Tool:
        name = self._names.get(block.name, block.name)
        return self._told.tools.get(name) or Tool(name)

    def _ready(self, block: Block, *, over: bool) -> bool:
        """A custom tool's text stands in JSON that must be whole before it can be read."""
        if block.name and self._tool(block).kind == "custom":
            if over:
                block.parts = [custom_input("" if broken(block.arguments) else block.arguments)]
            return over
        return super()._ready(block, over=over)

    def _open(self, block: Block) -> bytes:
        block.opened = True
        self._said = []
        self._kind = self._kind_of(block)
        prefix, name, place, _ = _KINDS[self._kind]
        self._item = {"id": new_id(prefix), **self._begun(block)}
        where = f'"item_id":{to_json(self._item["id"])},"output_index":{self._index},{place}'
        self._lead = (
            f'event: {name}.delta\ndata: {{"type":"{name}.delta",{where}"sequence_number":'
        ).encode()
        item = {**self._item, "status": "in_progress"}
        added = self._event(
            "response.output_item.added", {"output_index": self._index, "item": item}
        )
        return added + self._part_event("added", "")

    def _kind_of(self, block: Block) -> str:
        if block.kind == TOOL and self._tool(block).kind == "custom":
            return _CUSTOM
        if block.kind == THOUGHT and not block.parts:
            return REDACTED  # signed, and without a word in the clear
        return block.kind

    def _begun(self, block: Block) -> Json:
        """The item with nothing in it yet."""
        if block.kind != TOOL:
            if block.kind in (THOUGHT, REDACTED):
                return {"type": "reasoning", "summary": [], "encrypted_content": None}
            return {"type": "message", "role": "assistant", "content": []}
        tool = self._tool(block)
        call_id = block.id if block.id and block.id not in self._sent_ids else new_id("call_")
        self._sent_ids.add(call_id)
        kind = "custom_tool_call" if tool.kind == "custom" else "function_call"
        space = {"namespace": tool.namespace} if tool.namespace else {}
        given = _KINDS[self._kind][3]
        return {"type": kind, "call_id": call_id, "name": tool.name, **space, given: ""}

    def _piece(self, block: Block) -> bytes:
        pieces, block.parts = "".join(block.parts), []
        if block.kind == TEXT:
            self._head = self._lead
        return self._more(pieces) if pieces else b""

    def _more(self, text: str) -> bytes:
        self._said.append(text)
        number = self._number
        self._number = number + 1
        return b'%b%d,"delta":%b}\n\n' % (self._lead, number, quoted(text))

    def _close(self, block: Block) -> bytes:
        out = b""
        if self._kind == TOOL and not self._said and not block.cut:
            out = self._more("{}")
        whole = "".join(self._said)
        out += self._cited() + self._whole(whole) + self._part_event("done", whole)
        self._fill(block, whole)
        is_cut = block.cut or (block.kind == TOOL and broken(block.arguments))
        self._item["status"] = "incomplete" if is_cut else "completed"
        self.response["output"].append(self._item)
        out += self._event(
            "response.output_item.done", {"output_index": self._index, "item": self._item}
        )
        self._index += 1
        return out

    def _cited(self) -> bytes:
        if self._kind != TEXT:
            return b""
        where = {"item_id": self._item["id"], "output_index": self._index, **_INDEX[TEXT]}
        return b"".join(
            self._event(
                "response.output_text.annotation.added",
                {**where, "annotation_index": index, "annotation": annotation},
            )
            for index, annotation in enumerate(self._annotations)
        )

    def _whole(self, whole: str) -> bytes:
        """The event that says all of the deltas once more."""
        _, name, _, key = _KINDS[self._kind]
        if not name:
            return b""
        fields = {
            "item_id": self._item["id"],
            "output_index": self._index,
            **_INDEX.get(self._kind, {}),
        }
        more: Json = {"logprobs": []} if self._kind == TEXT else {}
        return self._event(f"{name}.done", {**fields, key: whole, **more})

    def _part_event(self, what: str, whole: str) -> bytes:
        if self._kind not in _INDEX:
            return b""
        name = "reasoning_summary_part" if self._kind == THOUGHT else "content_part"
        fields = {"item_id": self._item["id"], "output_index": self._index, **_INDEX[self._kind]}
        return self._event(f"response.{name}.{what}", {**fields, "part": self._part(whole)})

    def _part(self, whole: str) -> Json:
        if self._kind == THOUGHT:
            return {"type": "summary_text", "text": whole}
        if self._kind == REFUSAL:
            return {"type": "refusal", "refusal": whole}
        said = {"annotations": list(self._annotations), "logprobs": []}
        return {"type": "output_text", "text": whole, **said}

    def _fill(self, block: Block, whole: str) -> None:
        match self._kind:
            case "text" | "refusal":
                self._item["content"] = [self._part(whole)]
                self._annotations = []
            case "thinking" | "redacted_thinking":
                self._item["summary"] = [self._part(whole)] if self._kind == THOUGHT else []
                self._item["encrypted_content"] = seal(self._told.maker, [_thought(block, whole)])
            case _:
                self._item[_KINDS[self._kind][3]] = whole

    def _event(self, kind: str, fields: Json) -> bytes:
        data = {"type": kind, **fields, "sequence_number": self._number}
        self._number += 1
        return encode(to_json(data).encode(), kind)


_INDEX: Mapping[str, Mapping[str, int]] = {
    TEXT: {"content_index": 0},
    REFUSAL: {"content_index": 0},
    THOUGHT: {"summary_index": 0},
}


def _thought(block: Block, whole: str) -> Json:
    """A block of thinking as its maker takes it back."""
    if block.kind == REDACTED:
        return {"type": REDACTED, "data": "".join(block.parts)}
    signed = {"signature": block.signature} if block.signature else {}
    return {"type": THOUGHT, "thinking": whole, **signed}


def _flat(annotation: Json) -> Json:
    """Chat keeps the fields of a citation under its type."""
    kind = as_text(annotation.get("type"))
    return {"type": kind, **as_dict(annotation.get(kind))} if kind in annotation else annotation


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "service_unavailable_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def responses_error(error: Json) -> Json:
    """An error object of any host with a code that clients of responses know, and a type that tells
    its status where the code does not. All else it says is kept."""
    inner = error.get("message")
    error = {**error, **inner} if isinstance(inner, dict) else error
    text, _ = read_error(to_json({"error": error}).encode())
    message = text.message or "The provider sent an error without a message."
    status = stands_for(text) or 500
    made = failure(status, message)
    known = {key: error[key] for key in ("type", "code") if _is_word(error.get(key))}
    told = {**error, **made, **known}
    if stands_for(ErrorText(type=told["type"], code=told["code"])) != status:
        told["type"] = _TYPES.get(status, told["type"])
    return told


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not value.isdigit()


def chat_reply_to_responses(
    reply: Json, names: Mapping[str, str], told: Told | None = None, lost: set[str] | None = None
) -> Json:
    """A chat completion as a response; an error where it was cut, empty where it is no completion.

    It is told as a stream of one chunk, so that both ways say the same.
    """
    choices: Any = as_dict(reply).get("choices")
    empty = isinstance(choices, list) or as_dict(reply).get("object") == "chat.completion"
    if not choices and not empty:
        return {}
    machine = ChatToResponses(names, told)
    choice = as_dict(choices[0]) if isinstance(choices, list) and choices else {}
    message = as_dict(choice.get("message"))
    if choices and not (choice and (message or choice.get("message") is None)):
        return {}
    said = {"index": 0, "message": message, "logprobs": choice.get("logprobs")}
    finish = choice.get("finish_reason")
    ended = finish if isinstance(finish, str) and finish else "stop"
    machine.feed({**reply, "choices": [{**choice, **said, "finish_reason": ended}]})
    machine.end()
    if lost is not None:
        lost |= machine.lost | ({"choices"} if len(as_list(choices)) > 1 else set())
    if machine.response["error"]:
        return {"error": machine.response["error"]}
    if finish is None and not machine.response["output"]:
        machine.response["status"] = "incomplete"
    return machine.response
