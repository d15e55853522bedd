"""How the items of tools in Responses, and their parts in Gemini, read as text in a copy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krouter.body import Body
from krouter.dialects.toolless import without_tools
from tests.dialects.test_client_bodies import PNG
from tests.dialects.test_toolless import (
    DATA,
    INLINE,
    INPUT_IMAGE,
    USER,
    content,
    copied,
    function,
    hears,
    output,
    reasoning,
    says,
    text,
)

SAID = {"type": "message", "role": "assistant", "id": "msg_1", "content": [text("so")]}
SAID_ANEW = {key: value for key, value in SAID.items() if key != "id"}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
SEARCHED = '[Called the tool web_search with {"type":"search","query":"q"}]'
RESPONSES: list[tuple[list[Any], list[Any]]] = [
    (
        [
            function("1", "ls", '{"a": 1}'),
            function("2", "list", "{}", namespace="mcp__docs"),
            output("2", "two"),
            output("1", [{"type": "input_text", "text": "one"}, INPUT_IMAGE]),
        ],
        [
            says('[Called the tool ls with {"a": 1}]', "[Called the tool mcp__docs.list with {}]"),
            hears(
                "[Result of the tool mcp__docs.list]\ntwo",
                "[Result of the tool ls]\none",
                INPUT_IMAGE,
            ),
        ],
    ),
    (
        [
            {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "*** a"},
            output("1", "ok", "custom_tool_call_output"),
            USER,
        ],
        [says("[Called the tool patch with *** a]"), hears("[Result of the tool patch]\nok"), USER],
    ),
    (
        [reasoning("a"), reasoning("b"), function("1", "ls", "{}")],
        [says("[Called the tool ls with {}]")],
    ),
    (
        [reasoning("a"), SAID, function("1", "ls", ""), reasoning("b")],
        [reasoning("a"), SAID, says("[Called the tool ls]"), reasoning("b")],
    ),
    ([reasoning("a"), SEARCH, SAID, USER, SAID], [says(SEARCHED), SAID_ANEW, USER, SAID]),
    (
        [reasoning("a"), SEARCH, reasoning("b"), SAID],
        [says(SEARCHED), reasoning("b"), SAID],
    ),
    ([SEARCH, SAID], [says(SEARCHED), SAID]),
    (
        [reasoning("a"), function("1", "a", ""), output("1", "one"), SAID],
        [says("[Called the tool a]"), hears("[Result of the tool a]\none"), SAID],
    ),
    (
        [function("1", "a", ""), reasoning("a"), function("2", "b", "")],
        [says("[Called the tool a]", "[Called the tool b]")],
    ),
    (
        [
            {
                "type": "local_shell_call",
                "call_id": "1",
                "status": "completed",
                "action": {"type": "exec", "command": ["ls"]},
            },
            {"type": "local_shell_call_output", "call_id": "1", "output": "a"},
            {"type": "shell_call", "call_id": "2", "action": {"commands": ["ls"]}},
            output(
                "2",
                [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
                "shell_call_output",
            ),
        ],
        [
            says('[Called the tool local_shell with {"type":"exec","command":["ls"]}]'),
            hears("[Result of the tool local_shell]\na"),
            says('[Called the tool shell with {"commands":["ls"]}]'),
            hears("[Result of the tool shell]\nstdout: a\noutcome:\nexit_code: 0"),
        ],
    ),
    (
        [
            {
                "type": "apply_patch_call",
                "call_id": "1",
                "operation": {"type": "delete_file", "path": "a"},
            },
            {
                "type": "apply_patch_call_output",
                "call_id": "1",
                "status": "failed",
                "output": "no a",
            },
        ],
        [
            says('[Called the tool apply_patch with {"type":"delete_file","path":"a"}]'),
            hears("[The tool apply_patch failed]\nno a"),
        ],
    ),
    (
        [
            {
                "type": "mcp_list_tools",
                "id": "l",
                "server_label": "wiki",
                "tools": [
                    {"name": "ask", "description": "Asks.", "input_schema": {}},
                    {"name": "read"},
                ],
            },
            {
                "type": "mcp_approval_request",
                "id": "r",
                "name": "ask",
                "server_label": "wiki",
                "arguments": "{}",
            },
            {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True},
            {
                "type": "mcp_call",
                "id": "c",
                "approval_request_id": "r",
                "name": "ask",
                "server_label": "wiki",
                "arguments": '{"q": 1}',
                "output": "answer",
                "error": None,
            },
            {"type": "mcp_call", "name": "ask", "output": None, "error": "gone"},
        ],
        [
            says(
                "[The tools of wiki]\nask: Asks.\nread",
                "[Called the tool wiki.ask with {}]",
            ),
            hears("[Result of the tool wiki.ask]\napprove: true"),
            says(
                '[Called the tool wiki.ask with {"q": 1}]',
                "[Result of the tool wiki.ask]\nanswer",
                "[Called the tool ask]",
                "[The tool ask failed]\ngone",
            ),
        ],
    ),
    (
        [
            {
                "type": "code_interpreter_call",
                "id": "ci",
                "container_id": "cntr",
                "code": "print(1)",
                "outputs": [{"type": "logs", "logs": "1"}, {"type": "image", "url": DATA}],
            },
            {"type": "image_generation_call", "id": "ig", "status": "completed", "result": PNG},
            {
                "type": "file_search_call",
                "id": "fs",
                "queries": ["q"],
                "results": [{"file_id": "f", "filename": "a.md", "text": "found", "score": 0.5}],
            },
        ],
        [
            says(
                "[Called the tool code_interpreter with print(1)]",
                "[Result of the tool code_interpreter]\nlogs: 1",
            ),
            hears("[Result of the tool code_interpreter]", INPUT_IMAGE),
            says("[Called the tool image_generation]"),
            hears("[Result of the tool image_generation]", INPUT_IMAGE),
            says(
                '[Called the tool file_search with ["q"]]',
                "[Result of the tool file_search]\n"
                "file_id: f\nfilename: a.md\ntext: found\nscore: 0.5",
            ),
        ],
    ),
    (
        [
            {"type": "computer_call", "call_id": "1", "action": {"type": "screenshot"}},
            output("1", {"type": "computer_screenshot", "image_url": DATA}, "computer_call_output"),
            {"type": "tool_search_call", "call_id": "2", "arguments": {"query": "x"}},
            {"type": "tool_search_output", "call_id": "2", "tools": [{"name": "found"}]},
        ],
        [
            says('[Called the tool computer with {"type":"screenshot"}]'),
            hears("[Result of the tool computer]", INPUT_IMAGE),
            says('[Called the tool tool_search with {"query":"x"}]'),
            hears("[Result of the tool tool_search]\ntools:\nname: found"),
        ],
    ),
]


@pytest.mark.parametrize(("items", "left"), RESPONSES)
def test_responses(items: list[Any], left: list[Any]) -> None:
    assert copied("responses", USER, *items) == [USER, *left]


def test_a_lone_input_stays() -> None:
    before = Body.parse(b'{"input": "\\u0041 function_call", "tools": []}')
    assert without_tools("responses", before).raw == b'{"input": "\\u0041 function_call"}'


GEMINI: list[tuple[list[Any], list[Any]]] = [
    (
        [
            content(
                "model",
                {"text": "hm", "thought": True, "thoughtSignature": "CiQA"},
                {
                    "functionCall": {"id": "1", "name": "read", "args": {"path": "a"}},
                    "thoughtSignature": "CiQB",
                },
            ),
            content(
                "user",
                {
                    "functionResponse": {
                        "id": "1",
                        "name": "read",
                        "response": {"output": "a\nb"},
                        "parts": [INLINE],
                    }
                },
            ),
        ],
        [
            content(
                "model",
                {"text": "hm", "thought": True, "thoughtSignature": "CiQA"},
                {"text": '[Called the tool read with {"path":"a"}]'},
            ),
            content("user", {"text": "[Result of the tool read]\na\nb"}, INLINE),
        ],
    ),
    (
        [
            content("function", {"functionResponse": {"name": "a", "response": {"n": 1, "m": 2}}}),
            content("function", {"function_response": {"name": "b", "response": {"error": "no"}}}),
            content("user", {"text": "hi"}),
        ],
        [
            content(
                "user",
                {"text": '[Result of the tool a]\n{"n":1,"m":2}'},
                {"text": "[The tool b failed]\nno"},
            ),
            content("user", {"text": "hi"}),
        ],
    ),
    (
        [
            content(
                "model",
                {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
                {"executable_code": {"code": "x"}},
                {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "no x"}},
                {"toolCall": {"toolType": "GOOGLE_MAPS", "args": {"q": 1}, "id": "m"}},
                {"toolResponse": {"response": {"a": 1, "b": 2}, "id": "m"}},
            )
        ],
        [
            content(
                "model",
                {"text": "[Called the tool code_execution with print(1)]"},
                {"text": "[Result of the tool code_execution]\n1\n"},
                {"text": "[Called the tool code_execution with x]"},
                {"text": "[The tool code_execution failed]\nno x"},
                {"text": '[Called the tool GOOGLE_MAPS with {"q":1}]'},
                {"text": '[Result of the tool GOOGLE_MAPS]\n{"a":1,"b":2}'},
            )
        ],
    ),
    (
        [
            content(
                "model",
                {"text": "both", "functionCall": {"name": "f"}, "thought_signature": "s"},
                {"text": "one", "functionCall": None},
            )
        ],
        [content("model", {"text": "both"}, {"text": "[Called the tool f]"}, {"text": "one"})],
    ),
]


@pytest.mark.parametrize(("items", "left"), GEMINI)
def test_gemini(items: list[Any], left: list[Any]) -> None:
    first = content("user", {"text": "hi"})
    assert copied("gemini", first, *items) == [first, *left]


def test_a_lone_content_of_gemini() -> None:
    before = Body.parse(
        json.dumps({"contents": content("user", {"functionResponse": {"name": "f"}})}).encode()
    )
    left = without_tools("gemini", before).value("contents")
    assert left == [content("user", {"text": "[Result of the tool f]"})]


def test_the_output_of_a_local_shell_is_known_by_the_id_of_its_call() -> None:
    body = Body.parse(
        json.dumps(
            {
                "input": [
                    {"type": "local_shell_call", "id": "sh_1", "call_id": "c", "action": {}},
                    {"type": "local_shell_call_output", "id": "sh_1", "output": "done"},
                ]
            }
        ).encode()
    )
    assert "[Result of the tool local_shell]" in json.dumps(
        without_tools("responses", body).value("input")
    )
