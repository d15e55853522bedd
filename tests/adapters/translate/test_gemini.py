"""Gemini's callers carried to chat and back: requests against a table, replies against scripts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.through import Through
from krouter_adapters.litellm_lane.translate import (
    ChatToGemini,
    MessagesToChat,
    chat_reply_to_gemini,
    gemini_to_chat,
    messages_reply_to_chat,
    takes_of_gemini,
)
from krouter_adapters.litellm_lane.translate.gemini_shapes import (
    Names,
    ToldOfGemini,
    signature_of,
    thinking_in,
)
from krouter_adapters.litellm_lane.translate.sealed import seal

from krouter.dialects import get
from krouter.dialects.thinking import SEALED
from tests.adapters.translate.scripts import (
    WORDS,
    chat_chunks,
    chunk,
    messages_events,
    scripts,
    usage_of,
)
from tests.dialects.streams import JSON, shaped
from tests.validators import Heard, check_gemini_stream


def turned(keep: str = "", maker: str = "", **body: Any) -> tuple[list[Any], list[str]]:
    """The messages of a request, and what was dropped. The caller's object must stay as it is."""
    given_body = copy.deepcopy(body)
    made, _ = gemini_to_chat(given_body, frozenset(keep.split()), maker)
    assert given_body == body
    return made.body["messages"], made.dropped


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"a": 1}, **fields}}


def result(name: str = "f", response: Any = None, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response or {"output": "3"}, **fields}}


def called(call_id: str, name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": '{"a":1}'}
    return {"id": call_id, "type": "function", "function": function}


def asks(*calls: Any, said: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": said, "tool_calls": list(calls)}


def answer(call_id: str, said: str = "3") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": said}


PNG = {"inlineData": {"mimeType": "image/png", "data": "AA-_"}}
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA+/"}}
HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("contents", "messages", "dropped"),
    [
        ([user({"text": "hi"})], [HI], []),
        ({"parts": {"text": "hi"}}, [HI], []),
        ([{"parts": "hi"}], [HI], []),
        (
            [user({"text": "a"}, {"text": "b"})],
            [{"role": "user", "content": [text("a"), text("b")]}],
            [],
        ),
        (
            [user({"text": "hi"}), model({"text": "a"}, {"text": "b"})],
            [HI, {"role": "assistant", "content": "ab"}],
            [],
        ),
        (
            [{"role": "system", "parts": [{"text": "s"}]}],
            [{"role": "system", "content": "s"}],
            [],
        ),
        ([user(PNG)], [{"role": "user", "content": [SHOWN]}], []),
        (
            [user({"inline_data": {"mime_type": "image/png", "data": "AA+/"}})],
            [{"role": "user", "content": [SHOWN]}],
            [],
        ),
        (
            [user({"inlineData": {"mimeType": "audio/mpeg", "data": "AA"}})],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}}
                    ],
                }
            ],
            [],
        ),
        (
            [user({"inlineData": {"mimeType": "application/pdf", "data": "AA"}})],
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "file",
                            "file": {
                                "filename": "file.pdf",
                                "file_data": "data:application/pdf;base64,AA",
                            },
                        }
                    ],
                }
            ],
            [],
        ),
        (
            [
                user(
                    {
                        "inlineData": {
                            "mimeType": "text/plain",
                            "data": "aGk=",
                            "displayName": "a.txt",
                        }
                    }
                )
            ],
            [{"role": "user", "content": "[Document: a.txt]\nhi"}],
            [],
        ),
        (
            [user({"fileData": {"mimeType": "image/png", "fileUri": "https://e.com/a.png"}})],
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://e.com/a.png"}}],
                }
            ],
            [],
        ),
        (
            [user({"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/a.pdf"}})],
            [{"role": "user", "content": "[file not shown: gs://b/a.pdf]"}],
            ["fileData"],
        ),
        (
            [model(call(), call("g")), user(result("g"), result())],
            [
                asks(called("call_0"), called("call_1", "g")),
                answer("call_1"),
                answer("call_0"),
            ],
            [],
        ),
        (
            [model(call(), call()), user(result()), {"role": "function", "parts": [result()]}],
            [asks(called("call_0"), called("call_1")), answer("call_0"), answer("call_1")],
            [],
        ),
        (
            [model(call(id="x"), call(id="y")), user(result(id="y"), result(id="x"))],
            [asks(called("x"), called("y")), answer("y"), answer("x")],
            [],
        ),
        (
            [model(call(id="x")), user(result(id="x")), model(call(id="x")), user(result(id="x"))],
            [asks(called("x")), answer("x"), asks(called("call_1")), answer("call_1")],
            [],
        ),
        (
            [model({"text": "I look."}, call()), user(result(), {"text": "hi"})],
            [asks(called("call_0"), said="I look."), answer("call_0"), HI],
            [],
        ),
        (
            [model(call()), user(result(response={"error": "no"}))],
            [asks(called("call_0")), answer("call_0", "Error: no")],
            [],
        ),
        (
            [model(call()), user(result(response={"a": 1, "b": [2]}))],
            [asks(called("call_0")), answer("call_0", '{"a":1,"b":[2]}')],
            [],
        ),
        (
            [model(call()), user(result(parts=[PNG]))],
            [
                asks(called("call_0")),
                answer("call_0"),
                {"role": "user", "content": [text("(From the result of f:)"), SHOWN]},
            ],
            [],
        ),
        ([user(result())], [{"role": "user", "content": "(The result of f:)\n3"}], []),
        (
            [model({"text": "hm", "thought": True}, {"text": "hi", "thoughtSignature": "c2ln"})],
            [{"role": "assistant", "content": "hi"}],
            ["thoughtSignature", "thought"],
        ),
        (
            [
                model(
                    {"executableCode": {"language": "PYTHON", "code": "1+1"}},
                    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
                )
            ],
            [{"role": "assistant", "content": "\n```python\n1+1\n```\n\n```\n2\n```\n"}],
            [],
        ),
        ([model({"text": "hm", "thought": True})], [], ["thought"]),
        ([model(PNG, {"text": "hi"})], [{"role": "assistant", "content": "hi"}], ["inlineData"]),
        ([user({"videoMetadata": {"fps": 1}, "text": "hi"})], [HI], []),
    ],
)
def test_contents(contents: Any, messages: list[Any], dropped: list[str]) -> None:
    assert turned(contents=contents) == (messages, dropped)


def test_a_signature_that_stands_for_any_is_no_loss() -> None:
    for signature in ("skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0"
        "b3I="):  # fmt: skip
        _, dropped = turned(contents=[model({**call(), "thoughtSignature": signature})])
        assert dropped == []


def test_signatures_of_gemini_go_back_to_gemini() -> None:
    signed = {**call("a.b:c"), "thoughtSignature": "c2ln"}
    (message,), dropped = turned("thought_signature", contents=[model(signed)])
    (made,) = message["tool_calls"]
    assert made["provider_specific_fields"] == {"thought_signature": "c2ln"}
    assert (made["function"]["name"], dropped) == ("a.b:c", [])


def test_reasoning_goes_to_hosts_that_want_it_back() -> None:
    said = [model({"text": "hm", "thought": True}, call())]
    (message,), dropped = turned("reasoning_content", contents=said)
    assert (message["reasoning_content"], dropped) == ("hm", [])


@pytest.mark.parametrize("alphabet", ["+/", "-_"])
def test_thinking_signed_by_another_goes_back_to_its_maker_alone(alphabet: str) -> None:
    thinking = [{"type": "thinking", "thinking": "h\xffm>?" * 9, "signature": "s/+="}]
    signature = signature_of("api.anthropic.com", thinking)
    signature = signature.translate(str.maketrans("+/", alphabet)).rstrip("=")
    assert thinking_in("api.anthropic.com", signature) == (thinking, True)
    assert thinking_in("other", signature) == ([], True)
    assert signature.startswith(SEALED)
    said = [model({**call(), "thoughtSignature": signature})]
    (message,), _ = turned("thinking", "api.anthropic.com", contents=said)
    assert message["thinking_blocks"] == thinking
    (message,), dropped = turned("thinking", "other", contents=said)
    assert ("thinking_blocks" in message, dropped) == (False, ["thinking of another provider"])


def test_reasoning_of_responses_goes_back_to_a_host_of_responses_alone() -> None:
    """Two entries for one host are one maker, whatever they speak."""
    signature = seal("host", [{"type": "reasoning", "encrypted_content": "E"}])
    thinking = [{"type": "thinking", "thinking": "hm", "signature": signature}]
    said = [model({**call(), "thoughtSignature": signature_of("host", thinking)})]
    (message,), dropped = turned("sealed", "host", contents=said)
    assert (message["thinking_blocks"], dropped) == (thinking, [])
    for keep in ("thinking", "thought_signature"):
        (message,), dropped = turned(keep, "host", contents=said)
        assert dropped == ["thinking of another provider"]
        assert "thinking_blocks" not in message
        assert "provider_specific_fields" not in message["tool_calls"][0]


SCHEMA = {
    "type": "OBJECT",
    "properties": {
        "city": {"type": "STRING", "nullable": True, "format": "enum", "enum": ["a"]},
        "days": {"type": "ARRAY", "minItems": "1", "items": {"type": "INTEGER"}},
        "type": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": True},
    },
    "required": ["city"],
    "propertyOrdering": ["city"],
}
PLAIN = {
    "type": "object",
    "properties": {
        "city": {"type": ["string", "null"], "enum": ["a", None]},
        "days": {"type": "array", "minItems": 1, "items": {"type": "integer"}},
        "type": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
    },
    "required": ["city"],
}


def tool(name: str = "f", schema: Any = None) -> dict[str, Any]:
    function = {"name": name, "parameters": schema or {"type": "object", "properties": {}}}
    return {"type": "function", "function": function}


def declares(*functions: Any, **more: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": list(functions), **more}]}


def chooses(mode: str, *names: str) -> dict[str, Any]:
    allowed = {"allowedFunctionNames": list(names)} if names else {}
    return {"toolConfig": {"functionCallingConfig": {"mode": mode, **allowed}}}


def config(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": fields}


@pytest.mark.parametrize(
    ("fields", "out", "dropped"),
    [
        ({}, {}, []),
        ({"systemInstruction": {"parts": []}, "model": "models/x"}, {}, []),
        (
            config(temperature=0.1, topP=0.2, maxOutputTokens=9, seed=1, presencePenalty=0.5,
                   frequencyPenalty=0.6, stopSequences=["a"]),
            {"temperature": 0.1, "top_p": 0.2, "max_tokens": 9, "seed": 1, "presence_penalty": 0.5,
             "frequency_penalty": 0.6, "stop": ["a"]},
            [],
        ),
        ({"generation_config": {"max_output_tokens": 9}}, {"max_tokens": 9}, []),
        (config(topK=5), {}, ["topK"]),
        (config(candidateCount=1), {}, []),
        (config(candidateCount=2), {}, ["candidateCount"]),
        (config(responseLogprobs=True, logprobs=3), {"logprobs": True, "top_logprobs": 3}, []),
        (config(responseModalities=["TEXT"], speechConfig=None), {}, []),
        (config(responseModalities=["IMAGE"], mediaResolution="X"), {},
         ["responseModalities", "mediaResolution"]),
        (config(responseMimeType="text/plain"), {}, []),
        (config(responseMimeType="text/x.enum"), {}, ["responseMimeType"]),
        (config(responseMimeType="application/json"), {"response_format": {"type": "json_object"}},
         []),
        (
            config(responseMimeType="application/json", responseSchema=SCHEMA),
            {"response_format": {"type": "json_schema",
                                 "json_schema": {"name": "response", "schema": PLAIN}}},
            [],
        ),
        (
            config(responseJsonSchema={"type": "object"}),
            {"response_format": {"type": "json_schema",
                                 "json_schema": {"name": "response", "schema": {"type": "object"}}}
             },
            [],
        ),
        (config(thinkingConfig={"thinkingLevel": "LOW"}), {"reasoning_effort": "low"}, []),
        (config(thinkingConfig={"thinkingBudget": 1024}), {"reasoning_effort": "low"}, []),
        (config(thinkingConfig={"thinkingBudget": 8000}), {"reasoning_effort": "medium"}, []),
        (config(thinkingConfig={"thinkingBudget": 32000}), {"reasoning_effort": "high"}, []),
        (config(thinkingConfig={"thinkingBudget": 0}), {}, []),
        (config(thinkingConfig={"thinkingBudget": -1, "odd": 1}), {}, ["thinkingConfig.odd"]),
        (
            {"safetySettings": [{}], "cachedContent": "c", "labels": {}, "odd": 1},
            {}, ["safetySettings", "cachedContent", "odd"],
        ),
        (
            declares({"name": "f", "description": "d", "parameters": SCHEMA}),
            {"tools": [{"type": "function",
                        "function": {"name": "f", "description": "d", "parameters": PLAIN}}]},
            [],
        ),
        (
            declares({"name": "f", "parametersJsonSchema": {"type": "object", "$defs": {}}}),
            {"tools": [tool(schema={"type": "object", "$defs": {}})]}, [],
        ),
        (
            {"tools": [{"function_declarations": [{"name": "f"}], "google_search": {}},
                       {"codeExecution": {}}]},
            {"tools": [tool()]}, ["tools.googleSearch", "tools.codeExecution"],
        ),
        (declares({"name": "f", "behavior": "BLOCKING"}), {"tools": [tool()]}, ["tools.behavior"]),
        (declares({"name": "f"}) | chooses("AUTO"),
         {"tools": [tool()], "tool_choice": "auto"}, []),
        (declares({"name": "f"}) | chooses("none"),
         {"tools": [tool()], "tool_choice": "none"}, []),
        (declares({"name": "f"}) | chooses("ANY"),
         {"tools": [tool()], "tool_choice": "required"}, []),
        (
            declares({"name": "f"}, {"name": "g"}) | chooses("ANY", "g"),
            {"tools": [tool("g")],
             "tool_choice": {"type": "function", "function": {"name": "g"}}}, [],
        ),
        (
            declares({"name": "f"}, {"name": "g"}, {"name": "h"}) | chooses("ANY", "g", "h"),
            {"tools": [tool("g"), tool("h")], "tool_choice": "required"}, [],
        ),
        (chooses("ANY"), {}, ["toolConfig"]),
        ({"toolConfig": {"retrievalConfig": {}}}, {}, ["toolConfig.retrievalConfig"]),
    ],
)  # fmt: skip
def test_parameters(fields: dict[str, Any], out: dict[str, Any], dropped: list[str]) -> None:
    body = {"model": "m", "contents": [], **fields}
    made, _ = gemini_to_chat(body)
    assert made.body == {"model": body["model"], "messages": [], **out}
    assert made.dropped == dropped


def test_a_budget_is_kept_where_thinking_has_one() -> None:
    thinking = {"thinkingConfig": {"thinkingBudget": 100}}
    made, _ = gemini_to_chat({"generationConfig": thinking}, takes_of_gemini("x", "m", "messages"))
    assert made.body["thinking"] == {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize("given", [{"systemInstruction": "s"},
    {"system_instruction": {"parts": [{"text": "s"}]}}, {"systemInstruction": {"parts": {"text": "s"}}}])  # fmt: skip # noqa: E501
def test_a_system_prompt(given: Any) -> None:
    assert turned(contents=[user({"text": "hi"})], **given)[0] == [
        {"role": "system", "content": "s"},
        HI,
    ]


def test_names_of_tools_fit_and_come_back() -> None:
    long = "x" * 80
    body = {**declares({"name": "a.b"}, {"name": "a_b"}, {"name": long}), "contents": [
        model(call("a.b"))]}  # fmt: skip
    made, _ = gemini_to_chat(body)
    sent = [each["function"]["name"] for each in made.body["tools"]]
    assert sent == ["a_b_2", "a_b", "x" * 64]
    assert made.names == {"a_b_2": "a.b", "x" * 64: long}
    assert made.body["messages"][0]["tool_calls"][0]["function"]["name"] == "a_b_2"


@given(st.lists(st.text(min_size=1), unique=True))
def test_no_two_tools_share_a_name(given_names: list[str]) -> None:
    names = Names()
    names.declare(given_names)
    sent = [names.sent(name) for name in given_names]
    assert len(set(sent)) == len(sent)
    assert [names.own.get(name, name) for name in sent] == given_names


KEYS = (
    "contents role parts text thought thoughtSignature functionCall functionResponse name args id"
    " response inlineData fileData mimeType data fileUri executableCode codeExecutionResult"
    " systemInstruction tools functionDeclarations parameters type properties items anyOf nullable"
    " enum toolConfig functionCallingConfig mode allowedFunctionNames generationConfig"
    " stopSequences thinkingConfig thinkingBudget thinkingLevel responseSchema responseMimeType"
).split()


@given(st.dictionaries(st.sampled_from(KEYS), st.one_of(JSON, shaped(*KEYS)), max_size=5))
def test_bodies_of_any_form_never_raise(body: dict[str, Any]) -> None:
    for keep in ("", "thinking file_url reasoning_content", "thought_signature"):
        gemini_to_chat(body, frozenset(keep.split()))


# Replies


def stream(chunks: list[Any], **told: Any) -> bytes:
    machine = ChatToGemini({}, ToldOfGemini(maker="m", **told))
    return b"".join([*map(machine.feed, chunks), machine.end()])


def whole(reply: dict[str, Any]) -> Heard:
    return check_gemini_stream(b"data: " + json.dumps(reply).encode() + b"\n\n")


def counts(heard: Heard) -> tuple[int, int, int]:
    used = heard.usage
    output = used["candidatesTokenCount"] + used.get("thoughtsTokenCount", 0)
    assert used["totalTokenCount"] == used["promptTokenCount"] + output
    return used["promptTokenCount"], used.get("cachedContentTokenCount", 0), output


@given(st.data())
def test_any_chat_stream_says_the_same(data: st.DataObject) -> None:
    script = data.draw(scripts())
    heard = check_gemini_stream(stream(data.draw(chat_chunks(script))))
    assert (heard.ending, heard.reason) == ("complete", "STOP")
    assert (heard.thinking, heard.text) == (script.thinking, script.text)
    assert (heard.calls, counts(heard)) == (script.calls, script.usage)


@given(scripts())
def test_a_whole_completion_says_the_same(script: Any) -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(v)}}
        for n, (name, v) in enumerate(script.calls)
    ]
    message = {"content": script.text, "reasoning_content": script.thinking, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": script.finish}
    reply = {"id": "c", "model": "m", "choices": [choice], "usage": usage_of(script)}
    heard = whole(chat_reply_to_gemini(reply, {}))
    assert (heard.thinking, heard.text) == (script.thinking, script.text)
    assert (heard.calls, heard.reason, counts(heard)) == (script.calls, "STOP", script.usage)


@given(st.data())
def test_any_messages_stream_says_the_same(data: st.DataObject) -> None:
    script = data.draw(scripts())
    told = ToldOfGemini(maker="m")
    machine = Through(MessagesToChat(signed=True), ChatToGemini({}, told))
    happened = data.draw(messages_events(script))
    raw = b"".join(machine.feed(event) for _, event in happened) + machine.end()
    heard = check_gemini_stream(raw)
    assert heard.ending == "complete"
    assert (heard.thinking, heard.text) == (script.thinking, script.text)
    assert (heard.calls, counts(heard)) == (script.calls, script.usage)
    signed = [{"type": "thinking", "thinking": script.thinking, "signature": "s=="}]
    expected = [signed] if script.thinking and script.calls else []
    assert [thinking_in("m", each)[0] for each in heard.signatures] == expected


@given(st.data())
def test_a_cut_stream_is_never_whole(data: st.DataObject) -> None:
    chunks = data.draw(chat_chunks(data.draw(scripts())))
    finish = next(n for n, c in enumerate(chunks) if c["choices"][0]["finish_reason"])
    raw = stream(chunks[: data.draw(st.integers(0, finish))])
    assert check_gemini_stream(raw).ending == "open"
    assert b"finishReason" not in raw


@given(st.lists(st.one_of(JSON, shaped("choices", "delta", "content", "tool_calls", "usage"))))
def test_chunks_of_any_form_never_raise(chunks: list[Any]) -> None:
    check_gemini_stream(stream(chunks))


REPLY_KEYS = (
    "id model choices message content tool_calls function name arguments finish_reason usage"
    " thinking_blocks reasoning refusal logprobs error"
).split()


@given(st.dictionaries(st.sampled_from(REPLY_KEYS), st.one_of(JSON, shaped(*REPLY_KEYS))))
def test_replies_of_any_form_never_raise(reply: dict[str, Any]) -> None:
    told = chat_reply_to_gemini(reply, {}, None, set())
    assert not told or told.keys() & {"candidates", "error"}


def test_a_stream_to_the_byte() -> None:
    deltas = [{"role": "assistant"}, {"content": "naïve"}, {"content": " 😀"}]
    raw = stream([*map(chunk, deltas), chunk({}, "length")])
    outer = '"modelVersion":"m","responseId":"chatcmpl-1"}\n\n'

    def part(said: str) -> str:
        content = f'{{"parts":[{{"text":"{said}"}}],"role":"model"}}'
        return f'data: {{"candidates":[{{"content":{content},"index":0}}],{outer}'

    last = (
        'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":'
        '"MAX_TOKENS","index":0}],"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":0,'
        f'"totalTokenCount":0}},{outer}'
    )
    assert raw.decode() == part("") + part("naïve") + part(" 😀") + last


def test_thoughts_are_told_to_those_who_ask() -> None:
    chunks = [chunk({"reasoning_content": "hm"}), chunk({"content": "hi"}), chunk({}, "stop")]
    assert check_gemini_stream(stream(chunks, thoughts=True)).thinking == "hm"
    heard = check_gemini_stream(stream(chunks, thoughts=False))
    assert (heard.thinking, heard.text, heard.ending) == ("", "hi", "complete")
    for asks_for, thoughts in (({"includeThoughts": True}, True), ({}, False)):
        body = {"contents": [], "generationConfig": {"thinkingConfig": asks_for}}
        assert gemini_to_chat(body)[1].thoughts is thoughts


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "STOP"),
        ("tool_calls", "STOP"),
        ("eos", "STOP"),
        ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
    ],
)
def test_finish_reasons(finish: str, reason: str) -> None:
    chunks = [chunk({"content": "hi"}), chunk({}, finish)]
    assert check_gemini_stream(stream(chunks)).reason == reason


def test_a_call_whose_arguments_break_off_runs_nothing() -> None:
    function = {"name": "f", "arguments": '{"a":'}
    begun = chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]})
    assert check_gemini_stream(stream([begun, chunk({}, "tool_calls")])).ending == "error"
    heard = check_gemini_stream(stream([begun, chunk({}, "length")]))
    assert (heard.calls, heard.reason) == ([], "MAX_TOKENS")


@pytest.mark.parametrize(
    ("error", "code", "status", "reason"),
    [
        ({"message": "m", "type": "overloaded_error"}, 529, "UNAVAILABLE", "overloaded_error"),
        ({"message": "m", "code": "insufficient_quota", "type": "billing_error"}, 429,
         "RESOURCE_EXHAUSTED", "insufficient_quota"),
        ({"message": "m", "code": 503}, 503, "UNAVAILABLE", "503"),
        ({"message": "m"}, 500, "INTERNAL", None),
    ],
)  # fmt: skip
def test_an_error_ends_the_stream(error: Any, code: int, status: str, reason: str | None) -> None:
    raw = stream([chunk({"content": "hi"}), {"error": error}, chunk({}, "stop")])
    assert check_gemini_stream(raw).ending == "error"
    told = json.loads(raw.rstrip().rpartition(b"data: ")[2])["error"]
    assert (told["code"], told["status"], told["message"]) == (code, status, "m")
    details = told.get("details")
    assert (details[0]["reason"] if details else None) == reason


def test_probabilities_are_told() -> None:
    said = {"token": "hi", "logprob": -0.5, "top_logprobs": [{"token": "ho", "logprob": -1}]}
    choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop",
              "logprobs": {"content": [said]}}  # fmt: skip
    lost: set[str] = set()
    reply = chat_reply_to_gemini({"choices": [choice]}, {}, None, lost)
    assert reply["candidates"][0]["logprobsResult"] == {
        "chosenCandidates": [{"token": "hi", "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "ho", "logProbability": -1}]}],
    }
    assert not lost


@given(st.data())
def test_a_conversation_goes_there_and_back(data: st.DataObject) -> None:
    """What the model said comes back as it was said."""
    script = data.draw(scripts())
    reply = messages_reply_to_chat(
        {
            "type": "message",
            "content": [
                {"type": "thinking", "thinking": script.thinking, "signature": "s"},
                {"type": "text", "text": script.text},
                *(
                    {"type": "tool_use", "id": f"t{n}", "name": name, "input": value}
                    for n, (name, value) in enumerate(script.calls)
                ),
            ],
            "stop_reason": script.stop,
        },
        signed=True,
    )
    told = chat_reply_to_gemini(reply, {}, ToldOfGemini(maker="m"))
    results = [
        {
            "functionResponse": {
                "id": f"t{n}",
                "name": name,
                "response": {"output": data.draw(WORDS)},
            }
        }
        for n, (name, _) in enumerate(script.calls)
    ]
    contents = [told["candidates"][0]["content"], {"role": "user", "parts": results}]
    made, _ = gemini_to_chat({"contents": contents}, frozenset(("thinking",)), "m")
    messages = made.body["messages"]
    said = next((m for m in messages if m["role"] == "assistant"), {})
    calls = [
        (each["id"], each["function"]["name"], json.loads(each["function"]["arguments"]))
        for each in said.get("tool_calls", ())
    ]
    assert calls == [(f"t{n}", name, value) for n, (name, value) in enumerate(script.calls)]
    assert (said.get("content") or "") == script.text
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == [c[0] for c in calls]
    if script.calls and script.thinking:
        assert said["thinking_blocks"][0]["thinking"] == script.thinking


def test_the_reading_of_a_told_reply() -> None:
    raw = stream([chunk({"content": "hi"}), chunk({}, "stop")])
    for line in raw.split(b"\n\n"):
        if line:
            assert get("gemini").read_reply(line[6:]).kind in ("answer", "empty")
