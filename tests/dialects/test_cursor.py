"""What Cursor sends to the chat endpoint, and the chat that it becomes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.base import CallError
from krouter.dialects.chat import CHAT
from krouter.dialects.cursor import as_chat
from krouter.dialects.text_calls import TextCalls
from krouter.dialects.text_tools import TEXT_INPUT

HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
PATCH = {"type": "custom", "name": "ApplyPatch", "description": "Edits a file.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"}}  # fmt: skip
DOTS = "iVBORw0KGgo="


def turned(**fields: Any) -> dict[str, Any]:
    body, _ = as_chat(Body.parse(msgspec.json.encode({"model": "daily", **fields})))
    return {name: body.value(name) for name in body.fields}


def messages(*items: Any, **fields: Any) -> Any:
    return turned(input=list(items), **fields)["messages"]


ORDINARY: list[dict[str, Any]] = [
    {"messages": [HI]},
    {"messages": [HI], "tools": [READ], "tool_choice": "auto", "stream": True},
    {"messages": [HI], "tools": [{"type": "web_search"}]},
    {"messages": [HI], "tools": [{"type": "custom", "custom": {"name": "x"}}]},
    {"messages": [HI], "tools": None},
    {"messages": [HI], "tools": "no list", "reasoning": {"effort": "low"}, "store": False},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
    {"messages": [{"role": "user", "content": 'is it "tool_result" or "tool_use"?'}]},
    {"messages": [{"role": "user", "content": "tool_use"}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "tool_result"}]}]},
    {"messages": [{"role": "user", "content": {"type": "tool_result"}}], "stop": ["tool_use"]},
    {"messages": [HI, "tool_use", {"role": "tool", "name": "tool_use", "content": "{}"}]},
    {"messages": "tool_use", "tools": [READ]},
    {},
]


@pytest.mark.parametrize("fields", ORDINARY)
def test_ordinary_bodies_stay_what_they_are(fields: Any) -> None:
    body = Body.parse(msgspec.json.encode({"model": "daily", **fields}))
    assert as_chat(body) == (body, CHAT)


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        ([HI], [HI]),
        (["hi"], [HI]),
        ([{"type": "message", "id": "m1", "role": "user",
           "content": [{"type": "input_text", "text": "hi"}]}], [HI]),
        ([{"role": "developer", "content": "Be brief."}],
         [{"role": "system", "content": "Be brief."}]),
        ([{"role": "user", "content": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:x"}]}],
         [{"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}}]}]),
        ([{"type": "reasoning", "encrypted_content": "x", "summary": []}, HI], [HI]),
        ([HI,
          {"type": "message", "role": "assistant",
           "content": [{"type": "output_text", "text": "so"}]},
          {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"a":1}'},
          {"type": "function_call", "call_id": "c2", "name": "read", "arguments": ""},
          {"type": "function_call_output", "call_id": "c1", "output": "one"},
          {"type": "function_call_output", "call_id": "c2",
           "output": [{"type": "input_text", "text": "two"}]}],
         [HI,
          {"role": "assistant", "content": "so",
           "tool_calls": [call("c1", "read", '{"a":1}'), call("c2", "read", "{}")]},
          {"role": "tool", "tool_call_id": "c1", "content": "one"},
          {"role": "tool", "tool_call_id": "c2", "content": "two"}]),
        ([{"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}],
         [{"role": "assistant", "content": None, "tool_calls": [call("c1", "read", "{}")]}]),
    ],
)  # fmt: skip
def test_items_of_responses(items: list[Any], wanted: list[Any]) -> None:
    assert messages(*items) == wanted


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "t2",
             "content": [{"type": "text", "text": "two"}]},
            {"type": "text", "text": "go on"}]},
         [{"role": "tool", "tool_call_id": "t1", "content": "one"},
          {"role": "tool", "tool_call_id": "t2", "content": "two"},
          {"role": "user", "content": "go on"}]),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
         [{"role": "tool", "tool_call_id": "t1", "content": ""}]),
        ({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "so"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}]},
         [{"role": "assistant", "content": "so",
           "tool_calls": [call("t1", "read", '{"path":"a"}')]}]),
        ({"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                         "data": DOTS}},
            {"type": "image", "source": {"type": "url", "url": "https://x"}},
            {"type": "document", "source": {"type": "text", "data": "page"}},
            {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}}]},
         [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DOTS}"}},
            {"type": "image_url", "image_url": {"url": "https://x"}},
            {"type": "text", "text": "page"},
            {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}}]}]),
    ],
)  # fmt: skip
def test_blocks_of_anthropics(message: Any, wanted: list[Any]) -> None:
    tools = [{"name": "read", "input_schema": SCHEMA}]
    assert turned(messages=[message], tools=tools)["messages"] == wanted


@pytest.mark.parametrize(
    ("fields", "prompts"),
    [
        ({"instructions": "Be brief.", "input": "hi"}, ["Be brief."]),
        ({"system": "Be brief.", "messages": [HI]}, ["Be brief."]),
        ({"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
          "messages": [HI]}, ["a\n\nb"]),
        ({"input": "hi", "messages": []}, []),
        ({"input": "other", "messages": [HI]}, []),
    ],
)  # fmt: skip
def test_prompts_come_first(fields: Any, prompts: list[str]) -> None:
    said = [{"role": "system", "content": prompt} for prompt in prompts]
    assert turned(**fields)["messages"] == [*said, HI]


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [
        (READ, READ),
        ({"name": "read", "input_schema": SCHEMA, "cache_control": {}}, READ),
        ({"type": "function", "name": "read", "parameters": SCHEMA}, READ),
        ({"type": "web_search"}, {"type": "web_search"}),
        ({"type": "function", "name": "now"},
         {"type": "function", "function": {
             "name": "now", "parameters": {"type": "object", "properties": {}}}}),
        (PATCH, {"type": "function", "function": {
            "name": "ApplyPatch",
            "description":
                "Edits a file.\n\nThe input must follow this lark grammar:\nstart: begin",
            "parameters": TEXT_INPUT}}),
        ({"type": "custom", "name": "note"},
         {"type": "function", "function": {"name": "note", "parameters": TEXT_INPUT}}),
        ({"type": "custom", "name": "read", "input_schema": SCHEMA}, READ),
    ],
)  # fmt: skip
def test_tools(tool: Any, wanted: Any) -> None:
    assert turned(input="hi", tools=[tool])["tools"] == [wanted]


def test_blocks_alone_are_enough() -> None:
    """Whatever else of the body is chat's own."""
    used = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "one"}
    said = [HI, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    asked = call("t1", "read", '{"path":"a"}')
    wanted = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
    ]
    assert turned(messages=said) == {"model": "daily", "messages": wanted}
    assert turned(messages=said[2:])["messages"] == wanted[2:]
    assert turned(messages=said[:2], tools=[READ])["messages"] == wanted[:2]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no such file", "Error: no such file"),
        ("<error>denied</error>", "<error>denied</error>"),
        ("Error: gone", "Error: gone"),
        ("", "Error"),
        (None, "Error"),
        ([{"type": "text", "text": "no"}], "Error: no"),
        ([{"type": "image", "source": {"type": "url", "url": "https://x"}}],
         [{"type": "text", "text": "Error"},
          {"type": "image_url", "image_url": {"url": "https://x"}}]),
    ],
)  # fmt: skip
def test_a_tool_that_failed(content: Any, told: Any) -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    (result,) = turned(messages=[{"role": "user", "content": [block]}])["messages"]
    assert result["content"] == told


LONG = "n" * 70
SPACE = {"type": "namespace", "name": "files", "description": "Of the disk.", "tools": [
    {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA},
    {"type": "function", "name": LONG},
    {**PATCH, "name": "patch"}]}  # fmt: skip


def test_namespaces_of_tools() -> None:
    found = turned(input="hi", tools=[SPACE, {"type": "function", "name": "files__read"}])["tools"]
    functions = [tool["function"] for tool in found]
    names = [function["name"] for function in functions]
    assert names[2:] == ["files__patch", "files__read"]
    assert len(set(names)) == 4
    assert all(len(name) <= 64 for name in names)
    assert names[0].startswith("files__read_")  # a tool of the same name stands outside
    assert functions[0]["description"] == "(files: Of the disk.)\n\nReads."
    assert functions[0]["parameters"] == SCHEMA
    assert functions[2]["parameters"] == TEXT_INPUT


def test_calls_of_tools_in_namespaces() -> None:
    fields = {"tools": [SPACE], "tool_choice": {"type": "function", "name": "read",
                                                "namespace": "files"}}  # fmt: skip
    items: list[Any] = [
        {"type": "function_call", "call_id": "c1", "namespace": "files", "name": "read",
         "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "files__read", "arguments": "{}"},
        {"type": "function_call", "call_id": "c3", "name": "files__patch", "arguments": "raw"},
        {"type": "custom_tool_call", "call_id": "c4", "namespace": "gone", "name": "patch",
         "input": "raw"},
    ]  # fmt: skip
    body = turned(input=items, **fields)
    assert body["tool_choice"] == {"type": "function", "function": {"name": "files__read"}}
    assert body["messages"][0]["tool_calls"] == [
        call("c1", "files__read", "{}"),
        call("c2", "files__read", "{}"),
        call("c3", "files__patch", '{"input":"raw"}'),
        call("c4", "gone__patch", '{"input":"raw"}'),
    ]


def dialect_of(*tools: Any) -> Any:
    fields = {"model": "daily", "input": "hi", "tools": list(tools)}
    return as_chat(Body.parse(msgspec.json.encode(fields))).dialect


def test_calls_come_back_as_text_only_where_a_tool_takes_text() -> None:
    assert dialect_of(READ) is CHAT
    assert dialect_of({"type": "custom", "name": "read", "input_schema": SCHEMA}) is CHAT
    assert isinstance(dialect_of(READ, PATCH), TextCalls)
    assert isinstance(dialect_of(SPACE), TextCalls)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("*** Begin", '{"input":"*** Begin"}'),
        ("", '{"input":""}'),
        ('{"patch": 1}', '{"input":"{\\"patch\\": 1}"}'),
        ('{"input": "*** Begin"}', '{"input": "*** Begin"}'),
        ('{"input": 1}', '{"input":"{\\"input\\": 1}"}'),
    ],
)
def test_an_earlier_call_is_sent_in_the_functions_form(arguments: str, sent: str) -> None:
    said = {"role": "assistant", "content": [], "tool_calls": [call("c", "ApplyPatch", arguments)]}
    other = {"role": "assistant", "content": [], "tool_calls": [call("d", "read", arguments)]}
    found = turned(messages=[said, other], tools=[PATCH, READ])["messages"]
    assert found[0]["tool_calls"] == [call("c", "ApplyPatch", sent)]
    assert found[1]["tool_calls"] == other["tool_calls"]


def test_a_flat_tool_among_chats_own_is_enough() -> None:
    again = call("c1", "ApplyPatch", "*** Begin Patch")
    said = [HI, {"role": "assistant", "content": [], "tool_calls": [again]}]
    found = turned(messages=said, tools=[READ, PATCH], user="u")
    assert found["tools"][0] == READ
    assert found["user"] == "u"
    patch = call("c1", "ApplyPatch", '{"input":"*** Begin Patch"}')
    assert found["messages"] == [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [patch]},
    ]


FORM = {"type": "json_schema", "name": "a", "schema": {}, "strict": True}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"max_output_tokens": 9}, {"max_tokens": 9}),
        ({"stop_sequences": ["x"]}, {"stop": ["x"]}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"verbosity": "low", "format": {"type": "text"}}}, {"verbosity": "low"}),
        ({"text": {"format": FORM}}, {"response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": {}, "strict": True}}}),
        ({"text": {"format": {"type": "json_object"}}},
         {"response_format": {"type": "json_object"}}),
        ({"include": ["x"], "store": False, "truncation": "auto", "previous_response_id": None,
          "prompt_cache_retention": "24h"}, {}),
        ({"temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}},
         {"temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
         {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        ({"tool_choice": {"type": "tool", "name": "read"}},
         {"tool_choice": {"type": "function", "function": {"name": "read"}}}),
        ({"tool_choice": {"type": "custom", "name": "ApplyPatch"}},
         {"tool_choice": {"type": "function", "function": {"name": "ApplyPatch"}}}),
    ],
)  # fmt: skip
def test_fields(fields: Any, wanted: Any) -> None:
    assert turned(input="hi", **fields) == {"model": "daily", "messages": [HI], **wanted}


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "hi", "previous_response_id": "resp_1"},
        {"input": [{"type": "item_reference", "id": "m1"}]},
    ],
)
def test_what_refers_to_another_request_is_refused(fields: Any) -> None:
    with pytest.raises(CallError, match="keeps no"):
        turned(**fields)


def test_a_block_of_a_strange_type_is_passed_on() -> None:
    odd = {"type": ["text"]}
    for beside in ([odd], [{"type": "tool_use", "name": "f", "id": "c"}, odd]):
        turned = as_chat(Body.parse(msgspec.json.encode({"messages": [{"content": beside}]}))).body
        said = turned.value("messages")[0]["content"]
        assert odd in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
        "type role content text tool_calls function name input arguments call_id source".split()),
        inner | st.sampled_from(["message", "tool_use", "tool_result", "image", "assistant"])),
    max_leaves=15,
)  # fmt: skip


@given(JSON, JSON, JSON, JSON)
def test_whatever_comes_becomes_chat(given: Any, messages: Any, tools: Any, choice: Any) -> None:
    fields = {"input": given, "messages": messages, "tools": tools, "tool_choice": choice}
    body, _ = as_chat(Body.parse(msgspec.json.encode({"model": "daily", **fields})))
    assert CHAT.asked(body, "").model == "daily"
    assert as_chat(body) == (body, CHAT)
