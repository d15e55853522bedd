"""The input of a responses request, as chat messages.

Items of one turn of the model's (text, calls) are one message in chat; results come directly after
the calls; what chat cannot hold inside a result follows in a user message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter.dialects.tool_names import Tool, Tools
from krouter_adapters.litellm_lane.translate.responses_shapes import reasoning_text
from krouter_adapters.litellm_lane.translate.sealed import of_form, unseal
from krouter_adapters.litellm_lane.translate.shapes import (
    THINKING,
    Dropped,
    Json,
    arguments_text,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    folded,
    text_part,
    to_json,
)

_MARKS = ("output", "outputs", "results")
_NOT_ARGUMENTS = frozenset(("id", "type", "call_id", "status", *_MARKS))


class Input:
    """Collects chat messages. `keep` names what the host takes beyond chat; `maker` is who takes
    reasoning of its own back."""

    def __init__(self, tools: Tools, dropped: Dropped, keep: frozenset[str], maker: str) -> None:
        self._tools = tools
        self._dropped = dropped
        self._keep = keep
        self._maker = maker
        self._out: list[Json] = []
        self._turn: Json | None = None
        self._answered = False
        self._open: set[str] = set()
        self._known: dict[str, str] = {}
        self._waiting: list[Json] = []
        self._parts: list[Json] = []
        self._thinking: list[Json] = []
        self._thought = ""
        self._thoughts: list[tuple[Json, str]] = []

    def add(self, item: Any) -> None:
        if isinstance(item, str):
            item = {"role": "user", "content": item}
        if not isinstance(item, dict):
            self._dropped.add("input")
            return
        kind = as_text(item.get("type")) or ("message" if "role" in item else "unknown")
        match kind:
            case "message":
                self._message(item)
            case "function_call":
                self._function_call(item)
            case "custom_tool_call":
                arguments = to_json({"input": as_text(item.get("input"))})
                self._call(item, self._name(item, "custom"), arguments)
            case "reasoning":
                self._reasoning(item)
            case _ if kind.endswith("_output"):
                self._result(as_text(item.get("call_id")), item.get("output", _rest(item)))
            case _ if kind.endswith("_call"):
                self._foreign_call(kind, item)
            case _:
                self._dropped.add(f"input.{kind}")

    def messages(self) -> list[Json]:
        self._flush()
        self._drop_unused()
        if "reasoning_content" in self._keep:
            for message, thought in self._thoughts:
                message["reasoning_content"] = thought
        return self._out

    def _drop_unused(self) -> None:
        """Reasoning that no text and no call followed."""
        if self._thinking or self._thought:
            self._dropped.add("input.reasoning")
        self._thinking, self._thought = [], ""

    def _flush(self) -> None:
        """The turn of calls and results is over: what had to wait for its end follows."""
        self._turn, self._answered = None, False
        self._open = set()
        self._out += self._waiting
        if self._parts:
            self._out.append({"role": "user", "content": self._parts})
        self._waiting, self._parts = [], []

    # Messages

    def _message(self, item: Json) -> None:
        content = item.get("content")
        match item.get("role"):
            case "assistant":
                self._assistant_text(content)
            case "user":
                self._user(content)
            case "system" | "developer" as role:
                text = "\n\n".join(self._texts(content))
                if text:
                    # Nothing may stand between calls and their results.
                    (self._waiting if self._open else self._out_after_turn()).append(
                        {"role": role, "content": text}
                    )
            case role:
                self._dropped.add(f"input.role={role}")

    def _out_after_turn(self) -> list[Json]:
        self._flush()
        return self._out

    def _user(self, content: Any) -> None:
        self._flush()
        self._drop_unused()
        if self._thoughts:
            # A new turn of the user's: hosts want no reasoning of turns before it back.
            self._thoughts.clear()
            self._dropped.add("input.reasoning")
        parts = list(self._content(content))
        if parts:
            self._out.append({"role": "user", "content": folded(parts)})

    def _texts(self, content: Any) -> Iterator[str]:
        for part in self._content(content):
            if part["type"] == "text":
                yield part["text"]
            else:
                self._dropped.add(f"input.{part['type']}")

    def _assistant_text(self, content: Any) -> None:
        text = "".join(self._texts(content))
        if not text:
            return
        turn = self._own_turn()
        before = turn.get("content")
        turn["content"] = f"{before}\n\n{text}" if before else text

    def _own_turn(self) -> Json:
        """The message of the model's turn, with the reasoning that came before it."""
        if self._turn is None or self._answered:
            self._flush()
            self._turn = {"role": "assistant", "content": None}
            self._out.append(self._turn)
        if self._thinking and not self._turn.get("tool_calls") and not self._turn["content"]:
            blocks = [*self._turn.get("thinking_blocks", ()), *self._thinking]
            self._turn["thinking_blocks"] = blocks
        elif self._thought and "reasoning_content" in self._keep:
            self._thoughts.append((self._turn, self._thought))
        elif self._thinking or self._thought:
            self._dropped.add("input.reasoning")
        self._thinking, self._thought = [], ""
        return self._turn

    def _content(self, content: Any) -> Iterator[Json]:
        if isinstance(content, str):
            content = [{"type": "input_text", "text": content}]
        for part in as_list(content):
            if isinstance(part, str):
                yield text_part(part)
            elif isinstance(part, dict):
                yield from self._part(part)

    def _part(self, part: Json) -> Iterator[Json]:
        kind = part.get("type")
        match kind:
            case "input_image" | "computer_screenshot":
                yield self._image(part)
            case "input_file":
                yield self._file(part)
            case "input_audio" if part.get("input_audio"):
                yield {"type": "input_audio", "input_audio": part["input_audio"]}
            case "refusal" if as_text(part.get("refusal")):
                yield text_part(part["refusal"])
            case _ if as_text(part.get("text")):
                if part.get("annotations"):
                    self._dropped.add("annotations")
                yield text_part(part["text"])
            case _ if kind not in ("input_text", "output_text", "refusal"):
                self._dropped.add(f"input.{kind}")

    def _image(self, part: Json) -> Json:
        given = part.get("image_url")
        url = given if isinstance(given, str) else as_text(as_dict(given).get("url"))
        if not url:
            return self._left_out("input_image", part)
        detail = part.get("detail")
        more = {"detail": detail} if detail in ("low", "high") else {}
        return {"type": "image_url", "image_url": {"url": url, **more}}

    def _file(self, part: Json) -> Json:
        data, url = as_text(part.get("file_data")), as_text(part.get("file_url"))
        if data:
            name = as_text(part.get("filename")) or "document.pdf"
            if not data.startswith("data:"):
                data = f"data:application/pdf;base64,{data}"
            return {"type": "file", "file": {"filename": name, "file_data": data}}
        if url and "file_url" in self._keep:
            return {"type": "file", "file": {"file_id": url}}
        return self._left_out("input_file", part)

    def _left_out(self, what: str, part: Json) -> Json:
        """A line in place of what stays behind, so that the model knows that it is missing."""
        held = next((key for key in ("file_url", "file_id") if part.get(key)), "unknown")
        self._dropped.add(f"{what}.{held}")
        told = as_text(part.get("filename")) or as_text(part.get("file_url"))
        name = what.removeprefix("input_")
        return text_part(f"[{name} not shown: {told}]" if told else f"[{name} not shown]")

    # Calls and results

    def _name(self, item: Json, kind: Any) -> str:
        name, namespace = as_text(item.get("name")), as_text(item.get("namespace"))
        known = self._tools.find(name, namespace)
        return known or self._tools.name_of(Tool(name, kind, namespace))

    def _function_call(self, item: Json) -> None:
        self._call(item, self._name(item, "function"), arguments_text(item.get("arguments")))

    def _call(self, item: Json, name: str, arguments: str) -> None:
        call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
        function = {"name": name, "arguments": arguments or "{}"}
        turn = self._own_turn()
        turn.setdefault("tool_calls", []).append(
            {"id": call_id, "type": "function", "function": function}
        )
        self._known[call_id] = name
        self._open.add(call_id)

    def _foreign_call(self, kind: str, item: Json) -> None:
        """A call of a tool that the API ran itself, or a client by a form of its own: what there is
        of a result shows best as that of a function."""
        result = next((item[key] for key in _MARKS if item.get(key)), None)
        if not item.get("call_id") and result is None:
            self._dropped.add(f"input.{kind}")
            return
        name = as_text(item.get("name")) or kind.removesuffix("_call")
        arguments = as_text(item.get("arguments")) or to_json(_rest(item))
        self._call(item, self._name({"name": name}, "function"), arguments)
        if result is not None:
            self._result(as_text(item.get("call_id")) or as_text(item.get("id")), result)

    def _result(self, call_id: str, output: Any) -> None:
        if isinstance(output, dict):
            output = [output] if output.get("type") == "computer_screenshot" else to_json(output)
        elif not _is_content(output):
            output = to_json(output)
        parts = list(self._content(output))
        texts = [part["text"] for part in parts if part["type"] == "text"]
        others = [part for part in parts if part["type"] != "text"]
        name = self._known.get(call_id)
        line = f"(From the result of {name}:)" if name else "(From a tool result:)"
        if name is None or call_id not in self._open:
            # Hosts refuse a result without its call.
            self._parts += [text_part("\n".join([line, *texts])), *others]
            return
        if others and not texts:
            texts = ["(The result follows.)"]
        self._out.append({"role": "tool", "tool_call_id": call_id, "content": "\n".join(texts)})
        self._open.discard(call_id)
        self._answered = True
        if others:
            self._parts += [text_part(line), *others]

    # Reasoning

    def _reasoning(self, item: Json) -> None:
        sealed = item.get("encrypted_content")
        blocks = [b for b in unseal(self._maker, sealed) if b.get("type") in THINKING]
        if "thinking" in self._keep:
            signed = [block for block in blocks if block.get("signature") or block.get("data")]
            kept = of_form(signed, sealed=False)
            self._thinking += kept
            if len(kept) < len(signed):
                self._dropped.add_thinking()
            if signed:
                return
        text = "\n\n".join(filter(None, (as_text(block.get("thinking")) for block in blocks)))
        if not blocks and not sealed:
            text = reasoning_text(item)
        if text:
            self._thought = "\n\n".join(filter(None, (self._thought, text)))
        else:
            self._dropped.add("input.reasoning")


def _rest(item: Json) -> Any:
    return {key: value for key, value in item.items() if key not in _NOT_ARGUMENTS}


def _is_content(output: Any) -> bool:
    """Text, or parts of a message; anything else is told as the JSON that it is."""
    if isinstance(output, str):
        return True
    kinds = [part.get("type") for part in as_dicts(output)]
    return len(kinds) == len(as_list(output)) > 0 and all(
        str(kind).startswith("input_") or kind in ("text", "output_text") for kind in kinds
    )
