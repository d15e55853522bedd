"""Copies of requests without tools: what stays as it came, and how a tool's turns read as text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body, BodyError
from krouter.dialects.history import FIELD
from krouter.dialects.toolless import TOOL_FIELDS, without_tools
from tests.dialects.test_client_bodies import BODIES, EPHEMERAL, PNG, parsed

DATA = f"data:image/png;base64,{PNG}"
USER = {"role": "user", "content": "hi"}
IMAGE_URL = {"type": "image_url", "image_url": {"url": DATA}}
INPUT_IMAGE = {"type": "input_image", "image_url": DATA}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
INLINE = {"inlineData": {"mimeType": "image/png", "data": PNG}}


def body(dialect: str, *items: Any) -> Body:
    return Body.parse(json.dumps({"model": "m", FIELD[dialect]: list(items)}).encode())


def copied(dialect: str, *items: Any) -> Any:
    once = without_tools(dialect, body(dialect, *items))
    assert_whole(once)
    assert without_tools(dialect, once) is once
    return once.value(FIELD[dialect])


def assert_whole(made: Body) -> None:
    """The fields are those of the bytes."""
    read = Body.parse(made.raw).fields
    assert [*map(bytes, read.values())] == [*map(bytes, made.fields.values())]
    assert [*read] == [*made.fields]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def calls(*made: tuple[str, str, str]) -> dict[str, Any]:
    functions = [
        {"id": one, "type": "function", "function": {"name": name, "arguments": given}}
        for one, name, given in made
    ]
    return {"role": "assistant", "content": None, "tool_calls": functions}


def tool(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


LS = '[Called the tool ls with {"path": "a"}]'
CALLED = calls(("c1", "ls", '{"path": "a"}'))


@pytest.mark.parametrize("dialect", TOOL_FIELDS)
def test_exactly_the_fields_of_tools_and_of_the_stream_go(dialect: str) -> None:
    gone = b"".join(b' "%s": [{"a": 1E0}],' % name.encode() for name in TOOL_FIELDS[dialect])
    raw = b'{ "model" : "m",%s "stream" :true,\n"n": 1E0, "%s": [ {"role":"user"} ], "x":"\\u0041"}'
    before = Body.parse(raw % (gone, FIELD[dialect].encode()))
    assert_whole(without_tools(dialect, before))
    assert without_tools(dialect, before).raw == (
        b'{ "model" : "m", "stream" :false,\n"n": 1E0, "%s": [ {"role":"user"} ], "x":"\\u0041"}'
        % FIELD[dialect].encode()
    )


def test_of_a_field_named_twice_the_last_counts() -> None:
    raw = b'{"a":1,"stream":true,"messages":[{"role":"tool"}],"tools":[],"a":2,"stream":true}'
    left = without_tools("chat", Body.parse(raw))
    assert_whole(left)
    assert left.raw == (
        b'{"a":2,"stream":false,"messages":'
        b'[{"role":"user","content":"[Result of the tool unnamed]"}]}'
    )


def test_the_fields() -> None:
    assert TOOL_FIELDS.keys() == FIELD.keys()
    common = {
        *("tools", "tool_choice", "stream_options"),
        *("parallel_tool_calls", "functions", "function_call"),
    }
    own = {
        "chat": {"web_search_options"},
        "messages": {"mcp_servers"},
        "responses": {"max_tool_calls"},
        "gemini": {"toolConfig", "tool_config"},
    }
    assert {name: common | fields for name, fields in own.items()} == TOOL_FIELDS


@pytest.mark.parametrize(
    ("told", "left"),
    [(b"true", b"false"), (b"null", b"false"), (b'"yes"', b"false"), (b"false", b"false")],
)
def test_a_copy_is_not_streamed(told: bytes, left: bytes) -> None:
    before = Body.parse(b'{"stream":%s,"messages":[]}' % told)
    assert without_tools("chat", before).raw == b'{"stream":%s,"messages":[]}' % left


@pytest.mark.parametrize("dialect", [*FIELD, "embeddings", "other"])
def test_a_request_without_tools_is_the_same_object(dialect: str) -> None:
    speaks = json.dumps([calls(("t", "tool", "tool_use")), {"type": "function_call"}])
    item = {"role": "user", "content": speaks, "parts": [{"text": speaks}]}
    before = Body.parse(
        json.dumps({"stream": False, FIELD.get(dialect, "input"): [item, item]}).encode()
    )
    assert without_tools(dialect, before) is before
    lone = Body.parse(json.dumps({FIELD.get(dialect, "input"): "tool"}).encode())
    assert without_tools(dialect, lone) is lone


def test_a_form_that_is_no_dialect_stays() -> None:
    before = Body.parse(b'{"tools":[],"stream":true,"messages":[{"role":"tool"}]}')
    assert without_tools("embeddings", before) is before


CHAT: list[tuple[list[Any], list[Any]]] = [
    ([CALLED], [{"role": "assistant", "content": LS}]),
    ([{**CALLED, "content": "I look."}], [{"role": "assistant", "content": f"I look.\n\n{LS}"}]),
    (
        [{**CALLED, "content": [text("I look.")], "reasoning_content": "hm"}],
        [
            {
                "role": "assistant",
                "content": [text("I look."), text(LS)],
                "reasoning_content": "hm",
            }
        ],
    ),
    ([{**CALLED, "content": []}], [{"role": "assistant", "content": LS}]),
    (
        [calls(("c1", "ls", ""), ("c2", "date", "{}")), tool("c2", "Mon"), tool("c1", "a\nb")],
        [
            {
                "role": "assistant",
                "content": "[Called the tool ls]\n\n[Called the tool date with {}]",
            },
            {
                "role": "user",
                "content": "[Result of the tool date]\nMon\n\n[Result of the tool ls]\na\nb",
            },
        ],
    ),
    (
        [CALLED, tool("c1", "a"), USER, USER],
        [
            {"role": "assistant", "content": LS},
            {"role": "user", "content": "[Result of the tool ls]\na\n\nhi"},
            USER,
        ],
    ),
    (
        [CALLED, tool("c1", "a"), {"role": "user", "content": [text("see"), IMAGE_URL]}],
        [
            {"role": "assistant", "content": LS},
            {
                "role": "user",
                "content": [text("[Result of the tool ls]\na"), text("see"), IMAGE_URL],
            },
        ],
    ),
    (
        [CALLED, tool("c1", [text("one"), IMAGE_URL, text("two")]), {**USER, "name": "ann"}],
        [
            {"role": "assistant", "content": LS},
            {
                "role": "user",
                "content": [text("[Result of the tool ls]\none\ntwo"), IMAGE_URL, text("hi")],
                "name": "ann",
            },
        ],
    ),
    (
        [tool("lost", ""), {"role": "system", "content": "s"}, USER],
        [
            {"role": "user", "content": "[Result of the tool lost]"},
            {"role": "system", "content": "s"},
            USER,
        ],
    ),
    (
        [tool("c", "a"), {"role": "user", "content": [text("see"), "odd"], "x": 1}],
        [
            {
                "role": "user",
                "content": [text("[Result of the tool c]\na"), text("see"), "odd"],
                "x": 1,
            }
        ],
    ),
    (
        [tool("c", "a"), {"role": "user", "content": ""}],
        [{"role": "user", "content": "[Result of the tool c]\na"}],
    ),
    (
        [{**tool("c", "a"), "cache_control": EPHEMERAL}, tool("d", "b")],
        [
            {
                "role": "user",
                "content": [
                    {**text("[Result of the tool c]\na"), "cache_control": EPHEMERAL},
                    text("[Result of the tool d]\nb"),
                ],
            }
        ],
    ),
    (
        [{**tool("c", "a"), "images": ["A"]}, {**USER, "images": ["B"]}],
        [
            {"role": "user", "content": "[Result of the tool c]\na", "images": ["A"]},
            {**USER, "images": ["B"]},
        ],
    ),
    (
        [
            {"role": "assistant", "function_call": {"name": "ls", "arguments": "{}"}},
            {"role": "function", "name": "ls", "content": '{"files": []}'},
        ],
        [
            {"role": "assistant", "content": "[Called the tool ls with {}]"},
            {"role": "user", "content": '[Result of the tool ls]\n{"files": []}'},
        ],
    ),
    (
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "p", "type": "custom", "custom": {"name": "patch", "input": "*** a\n"}}
                ],
            },
            tool("p", [{**text("done"), "cache_control": EPHEMERAL}]),
        ],
        [
            {"role": "assistant", "content": "[Called the tool patch with *** a\n]"},
            {
                "role": "user",
                "content": [
                    {**text("[Result of the tool patch]\ndone"), "cache_control": EPHEMERAL}
                ],
            },
        ],
    ),
    (
        [{**USER, "tool_calls": None, "function_call": None}],
        [USER],
    ),
    (
        [{**tool("c", "see"), "images": ["A"]}, {**tool("d", "see"), "images": ["B"]}],
        [
            {"role": "user", "content": "[Result of the tool c]\nsee", "images": ["A"]},
            {"role": "user", "content": "[Result of the tool d]\nsee", "images": ["B"]},
        ],
    ),
    (
        [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"arguments": {"a": [1]}}}]}],
        [{"role": "assistant", "content": '[Called the tool unnamed with {"a":[1]}]'}],
    ),
]


@pytest.mark.parametrize(("items", "left"), CHAT)
def test_chat(items: list[Any], left: list[Any]) -> None:
    assert copied("chat", USER, *items) == [USER, *left]


def use(kind: str, call_id: str, name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": call_id, "name": name, "input": given, **more}


def result(kind: str, call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "tool_use_id": call_id, "content": content, **more}


THINKING = {"type": "thinking", "thinking": "hm", "signature": "EqQBCgIYAg=="}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
MESSAGES: list[tuple[list[Any], list[Any], list[Any], list[Any]]] = [
    (
        [THINKING, text("I look."), use("tool_use", "t", "Read", {"file": "é"})],
        [THINKING, text("I look."), text('[Called the tool Read with {"file":"é"}]')],
        [result("tool_result", "t", "line\n"), text("and now?")],
        [text("[Result of the tool Read]\nline\n"), text("and now?")],
    ),
    (
        [use("tool_use", "t", "Read", {}, cache_control=EPHEMERAL)],
        [{**text("[Called the tool Read with {}]"), "cache_control": EPHEMERAL}],
        [result("tool_result", "t", [text("a"), IMAGE, DOCUMENT], cache_control=EPHEMERAL)],
        [{**text("[Result of the tool Read]\na"), "cache_control": EPHEMERAL}, IMAGE, DOCUMENT],
    ),
    (
        [use("tool_use", "t", "Bash", {"command": "x"})],
        [text('[Called the tool Bash with {"command":"x"}]')],
        [
            result("tool_result", "t", "exit 1", is_error=True),
            {"type": "tool_result", "tool_use_id": "other"},
        ],
        [text("[The tool Bash failed]\nexit 1"), text("[Result of the tool other]")],
    ),
    (
        [use("tool_use", "t", "ToolSearch", {"query": "web"})],
        [text('[Called the tool ToolSearch with {"query":"web"}]')],
        [
            result(
                "tool_result",
                "t",
                [
                    {"type": "tool_reference", "tool_name": "WebFetch"},
                    {
                        "type": "search_result",
                        "title": "T",
                        "source": "https://a.example",
                        "content": [text("found")],
                        "citations": {"enabled": True},
                    },
                ],
            )
        ],
        [
            text(
                "[Result of the tool ToolSearch]\ntool_name: WebFetch\n"
                "title: T\nsource: https://a.example\nfound"
            )
        ],
    ),
    (
        [
            use("server_tool_use", "s", "web_search", {"query": "q"}),
            result(
                "web_search_tool_result",
                "s",
                [
                    {
                        "type": "web_search_result",
                        "title": "T",
                        "url": "https://a.example",
                        "encrypted_content": "SEALED",
                        "page_age": None,
                    }
                ],
                caller={"type": "direct"},
            ),
            text("So it is."),
        ],
        [
            text('[Called the tool web_search with {"query":"q"}]'),
            text("[Result of the tool web_search]\ntitle: T\nurl: https://a.example"),
            text("So it is."),
        ],
        [text("thanks")],
        [text("thanks")],
    ),
    (
        [
            use("server_tool_use", "s", "web_search", {"query": "q"}),
            result(
                "web_search_tool_result",
                "s",
                {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            ),
            use("server_tool_use", "e", "bash_code_execution", {"command": "ls"}),
            result(
                "bash_code_execution_tool_result",
                "e",
                {
                    "type": "bash_code_execution_result",
                    "stdout": "a\n",
                    "stderr": "",
                    "return_code": 0,
                    "content": [{"type": "bash_code_execution_output", "file_id": "f1"}],
                },
            ),
        ],
        [
            text('[Called the tool web_search with {"query":"q"}]'),
            text("[The tool web_search failed]\nerror_code: max_uses_exceeded"),
            text('[Called the tool bash_code_execution with {"command":"ls"}]'),
            text(
                "[Result of the tool bash_code_execution]\nstdout: a\n\nreturn_code: 0\nfile_id: f1"
            ),
        ],
        [],
        [],
    ),
    (
        [
            use("mcp_tool_use", "m", "echo", {"a": 1}, server_name="srv"),
            result("mcp_tool_result", "m", [text("1\n")], is_error=False),
            result("mcp_tool_result", "m", [IMAGE]),
            use("server_tool_use", "f", "web_fetch", {"url": "u"}),
            result(
                "web_fetch_tool_result",
                "f",
                {
                    "type": "web_fetch_result",
                    "url": "u",
                    "content": {
                        "type": "document",
                        "title": "T",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                    },
                },
            ),
        ],
        [
            text('[Called the tool srv.echo with {"a":1}]'),
            text("[Result of the tool srv.echo]\n1"),
            text("[Result of the tool srv.echo]\nsource:\nmedia_type: image/png"),
            text('[Called the tool web_fetch with {"url":"u"}]'),
            text(
                "[Result of the tool web_fetch]\n"
                "url: u\ntitle: T\nsource:\nmedia_type: application/pdf"
            ),
        ],
        [],
        [],
    ),
]


@pytest.mark.parametrize(("said", "said_left", "answered", "answered_left"), MESSAGES)
def test_messages(said: Any, said_left: Any, answered: Any, answered_left: Any) -> None:
    left = copied(
        "messages",
        USER,
        {"role": "assistant", "content": said},
        {"role": "user", "content": answered},
    )
    assert left == [
        USER,
        {"role": "assistant", "content": said_left},
        {"role": "user", "content": answered_left},
    ]


def says(*texts: str) -> dict[str, Any]:
    blocks = [{"type": "output_text", "text": one} for one in texts]
    return {"type": "message", "role": "assistant", "content": blocks}


def hears(*blocks: Any) -> dict[str, Any]:
    made = [{"type": "input_text", "text": one} if isinstance(one, str) else one for one in blocks]
    return {"type": "message", "role": "user", "content": made}


def function(call_id: str, name: str, given: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": given, **more}


def output(call_id: str, given: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": given}


def reasoning(one: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": one, "summary": [], "encrypted_content": "gAAAA"}


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


COPIES: dict[str, list[Any]] = {
    "messages": [
        *BODIES["messages"]["messages"][:2],
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAg=="},
                text('[Called the tool Read with {"file_path":"/w/shot.png"}]'),
            ],
        },
        {
            "role": "user",
            "content": [{**text("[Result of the tool Read]"), "cache_control": EPHEMERAL}, IMAGE],
        },
    ],
    "responses": [
        *BODIES["responses"]["input"][:3],
        says("[Called the tool view_image with {}]"),
        hears("[Result of the tool view_image]", INPUT_IMAGE),
    ],
    "chat": [
        *BODIES["chat"]["messages"][:2],
        {"role": "assistant", "content": "[Called the tool ls with {}]"},
        {"role": "user", "content": "[Result of the tool ls]\na.css"},
    ],
    "gemini": [
        *BODIES["gemini"]["contents"][:2],
        content("model", {"text": '[Called the tool read_file with {"path":"shot.png"}]'}),
        content(
            "user",
            {"text": "[Result of the tool read_file]\nBinary content provided (1 item(s))."},
            INLINE,
        ),
    ],
}


@pytest.mark.parametrize("dialect", BODIES)
def test_what_coding_tools_send(dialect: str) -> None:
    before = parsed(BODIES[dialect])
    after = without_tools(dialect, before)
    assert after.value(FIELD[dialect]) == COPIES[dialect]
    assert "stream" not in after.fields or after.value("stream") is False
    others = before.fields.keys() - TOOL_FIELDS[dialect] - {FIELD[dialect], "stream"}
    assert after.fields.keys() - {FIELD[dialect], "stream"} == others
    assert all(bytes(after.fields[name]) == bytes(before.fields[name]) for name in others)


WORDS = st.text(max_size=8).map(lambda told: f"<{told}>")
OF_TOOLS = {
    "chat": re.compile(rb'"(?:tool_calls|function_call|tool|function)"'),
    "messages": re.compile(rb'"\w*tool_(?:use|result)"'),
    "responses": re.compile(rb'"(?:\w*_(?:call|output)|mcp_\w+)"'),
    "gemini": re.compile(rb'"(?:function(?:Call|Response)?|executableCode|codeExecutionResult)"'),
}


def step(dialect: str, one: str, name: str, given: str, said: str, listed: bool) -> list[Any]:
    """The items of a call and of its result."""
    match dialect:
        case "chat":
            return [calls((one, name, given)), tool(one, [text(said)] if listed else said)]
        case "messages":
            answer = result("tool_result", one, [text(said)] if listed else said)
            return [
                {"role": "assistant", "content": [use("tool_use", one, name, {"a": given})]},
                {"role": "user", "content": [answer]},
            ]
        case "responses":
            block = {"type": "input_text", "text": said}
            return [function(one, name, given), output(one, [block] if listed else said)]
    answer = {"functionResponse": {"name": name, "response": {"output": said}}}
    return [
        content("model", {"functionCall": {"name": name, "args": {"a": given}}}),
        content("function" if listed else "user", answer),
    ]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[Any], list[str], list[Any]]:
    """A dialect, items, all that tools were called for and said, and the items of no tool."""
    dialect = draw(st.sampled_from(sorted(FIELD)))
    items, words, others = [], [], []
    for at in range(draw(st.integers(0, 5))):
        name, given, said, other = (draw(WORDS) for _ in range(4))
        call, answer = step(
            dialect, f"c{draw(st.integers(0, at))}", name, given, said, draw(st.booleans())
        )
        if draw(st.booleans()):
            items.append(call)
            words += [f"[Called the tool {name} with ", given]
        if draw(st.booleans()):
            items.append(answer)
            words.append(said)
        if draw(st.booleans()):
            others.append({"role": "system", "content": other, "parts": [{"text": other}]})
            items.append(others[-1])
    return dialect, items, words, others


def texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for one in inner for found in texts_in(one)]


def escaped(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)[1:-1]


@given(conversations())
def test_no_tool_is_left_and_no_word_is_lost(
    made: tuple[str, list[Any], list[str], list[Any]],
) -> None:
    dialect, items, words, others = made
    after = without_tools(dialect, body(dialect, *items))
    assert not OF_TOOLS[dialect].search(after.raw)
    assert without_tools(dialect, after) is after
    left = after.value(FIELD[dialect])
    assert [item for item in left if item["role"] == "system"] == others
    said = "\0".join(texts_in(left))
    for word in words:
        assert word in said or escaped(word) in said
    for item in others:
        assert json.dumps(item).encode() in after.raw


ODD = st.recursive(
    WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["title", "url", "content", "output", "x"]), inner)
    ),
)


@given(st.sampled_from(sorted(FIELD)), ODD)
def test_a_result_of_any_form_can_be_read(dialect: str, said: Any) -> None:
    answer = {"functionResponse": {"name": "f", "response": said}}
    item = {
        "chat": tool("c", said),
        "messages": {"role": "user", "content": [result("tool_result", "c", said)]},
        "responses": output("c", said),
        "gemini": content("user", answer),
    }[dialect]
    left = "\0".join(texts_in(copied(dialect, item)))
    for word in texts_in(said):
        assert word in left or escaped(word) in left


KEYS = (
    "role type content parts tool_calls function_call function name arguments id call_id output"
    " tool_use_id input tool_call_id response functionCall functionResponse error text tools"
    " server_label images result outputs cache_control source data is_error outcome"
    " inlineData file_data executableCode codeExecutionResult image_url url"
).split()
VALUES = (
    "tool function assistant user model text tool_use tool_result web_search_tool_result"
    " function_call function_call_output mcp_call mcp_list_tools image_generation_call reasoning"
    " code_interpreter_call image document base64 computer_screenshot"
).split()
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=30,
)
ITEMS = st.lists(
    st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=6) | ANYTHING, max_size=5
)


@given(st.sampled_from(sorted(FIELD)), ITEMS | ANYTHING)
def test_any_json_is_taken(dialect: str, conversation: Any) -> None:
    raw = json.dumps({"tools": [], "m": 1, FIELD[dialect]: conversation})
    after = without_tools(dialect, Body.parse(raw.encode()))
    assert after.fields.keys() == {"m", FIELD[dialect]}
    assert_whole(after)
    assert without_tools(dialect, after) is after


def deep(depth: int) -> bytes:
    value = b'{"a":' * depth + b'"word"' + b"}" * depth
    blocks = b'{"type":"tool_use","name":"f","input":%s},{"type":"tool_result","content":[%s]}'
    return b'{"messages":[{"role":"user","content":[%s]}]}' % (blocks % (value, value))


def takes(raw: bytes) -> bool:
    try:
        return bool(Body.parse(raw))
    except BodyError:
        return False


def test_json_as_deep_as_a_body_may_be_is_taken() -> None:
    deepest = max(depth for depth in range(1000) if takes(deep(depth)))
    for depth in (31, 32, 33, 200, deepest - 100, *range(deepest - 60, deepest + 1)):
        after = without_tools("messages", Body.parse(deep(depth)))
        assert after.raw.count(b"word") == 2
        assert depth > deepest - 100 or b"tool_use" not in after.raw
        assert without_tools("messages", after) is after


def test_every_other_byte_of_the_conversation_stays() -> None:
    raw = (
        b'{ "n":1E0, "messages": [{"role":"user", "content":"\\u0041 \xc3\xa9", "x":1.50},'
        b'{"role":"tool","tool_call_id":"a","content":"b"}, {"role":"assistant","content":'
        b'"\\ud83d\\ude00" }], "top_p" :0.10 }'
    )
    assert without_tools("chat", Body.parse(raw)).raw == (
        b'{ "n":1E0, "messages": [{"role":"user", "content":"\\u0041 \xc3\xa9", "x":1.50},'
        b'{"role":"user","content":"[Result of the tool a]\\nb"},{"role":"assistant","content":'
        b'"\\ud83d\\ude00" }], "top_p" :0.10 }'
    )


def test_half_an_emoji_in_arguments_is_kept() -> None:
    before = body("chat", calls(("c", "f", '{"a": "\\ud83d"}')))
    left = without_tools("chat", before).value("messages")
    assert left[0]["content"] == '[Called the tool f with {"a": "\\ud83d"}]'
