"""Bodies as coding tools send them, shortened: what they need, and what a strip leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krouter.body import Body
from krouter.dialects.needs import needs
from krouter.dialects.session import session_key
from krouter.dialects.strip import without_images
from krouter.dialects.thinking import digest, thinking_digests

PNG = "iVBORw0KGgoAAAANSUhEUg=="
SESSION = "3f2b1c9e-1111-4222-8333-944455566677"
EPHEMERAL = {"type": "ephemeral", "ttl": "1h"}

CLAUDE_CODE: dict[str, Any] = {
    "model": "daily",
    "max_tokens": 32000,
    "stream": True,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"},
        {"type": "text", "text": "You are Claude Code.", "cache_control": EPHEMERAL},
        {"type": "text", "text": "Read images with Read.", "cache_control": EPHEMERAL},
    ],
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": SESSION})},
    "tools": [
        {
            "name": "Read",
            "description": 'Reads a file; an "image" is shown.',
            "input_schema": {"type": "object", "properties": {"image": {"type": "string"}}},
        },
        {"name": "Rare", "defer_loading": True, "input_schema": {"type": "object"}},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>today</system-reminder>"},
                {"type": "text", "text": "What does shot.png show?"},
            ],
        },
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAg=="},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "Read",
                    "input": {"file_path": "/w/shot.png"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                        }
                    ],
                    "cache_control": EPHEMERAL,
                }
            ],
        },
    ],
}
CODEX: dict[str, Any] = {
    "model": "daily",
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": SESSION,
    "parallel_tool_calls": True,
    "tools": [{"type": "function", "name": "view_image", "strict": False, "parameters": {}}],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<env/>"}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": '<image name="shot.png">'},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_text", "text": "</image>"},
                {"type": "input_text", "text": "What is wrong here?"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA=="},
        {"type": "function_call", "call_id": "call_1", "name": "view_image", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}],
        },
    ],
}
CURSOR: dict[str, Any] = {
    "model": "daily",
    "stream": True,
    "user": "u1",
    "tools": [{"type": "custom", "name": "ApplyPatch", "format": {"type": "grammar"}}],
    "messages": [
        {"role": "system", "content": "You are a coding assistant."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Make it look like this."},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        },
        {
            "role": "assistant",
            "content": [],
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "a.css"},
    ],
}
GEMINI_CLI: dict[str, Any] = {
    "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "context"}]},
        {"role": "user", "parts": [{"text": "Look at shot.png"}]},
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"name": "read_file", "args": {"path": "shot.png"}},
                    "thoughtSignature": "CiQB",
                }
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "read_file-1",
                        "name": "read_file",
                        "response": {"output": "Binary content provided (1 item(s))."},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
                    }
                }
            ],
        },
    ],
    "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
}
BODIES = {
    "messages": CLAUDE_CODE,
    "responses": CODEX,
    "chat": CURSOR,
    "gemini": GEMINI_CLI,
}


def parsed(told: Any) -> Body:
    return Body.parse(json.dumps(told).encode())


@pytest.mark.parametrize("dialect", BODIES)
def test_a_screenshot_stays_in_force_through_the_steps_that_answer_it(dialect: str) -> None:
    assert needs(dialect, parsed(BODIES[dialect])) == {"image"}


def test_a_new_prompt_ends_it() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "A window."}]}
    later = [*CLAUDE_CODE["messages"], said, {"role": "user", "content": "Thanks. Fix the test."}]
    assert needs("messages", parsed({**CLAUDE_CODE, "messages": later})) == set()


def test_stripped_bodies() -> None:
    left = {name: json.loads(without_images(name, parsed(BODIES[name])).raw) for name in BODIES}
    for name, told in left.items():
        assert PNG not in json.dumps(told)
        field = {"responses": "input", "gemini": "contents"}.get(name, "messages")
        assert {**told, field: 0} == {**BODIES[name], field: 0}
    result = left["messages"]["messages"][3]["content"][0]
    assert result == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "[image omitted]"}],
        "cache_control": EPHEMERAL,
    }
    assert left["messages"]["messages"][:3] == CLAUDE_CODE["messages"][:3]
    assert [block["text"] for block in left["responses"]["input"][2]["content"]] == [
        '<image name="shot.png">',
        "</image>",
        "What is wrong here?",
    ]
    assert left["responses"]["input"][5] == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_text", "text": "[image omitted]"}],
    }
    assert left["chat"]["messages"][1] == {"role": "user", "content": "Make it look like this."}
    answer = left["gemini"]["contents"][3]["parts"][0]["functionResponse"]
    assert answer == {
        "id": "read_file-1",
        "name": "read_file",
        "response": {"output": "Binary content provided (1 item(s))."},
    }


def test_sessions_and_signatures() -> None:
    assert session_key("messages", parsed(CLAUDE_CODE), []) == SESSION
    assert session_key("responses", parsed(CODEX), []) == SESSION
    assert thinking_digests("messages", parsed(CLAUDE_CODE)) == {digest("EqQBCgIYAg==")}
    assert thinking_digests("responses", parsed(CODEX)) == {digest("gAAAA==")}
    assert thinking_digests("gemini", parsed(GEMINI_CLI)) == {digest("CiQB")}
