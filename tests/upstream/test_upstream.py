from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import pytest

from tests.upstream import Behaviour, Upstream, parse
from tests.upstream.script import named

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
MESSAGES_TOOL = {"name": "weather", "input_schema": SCHEMA}
ARGUMENTS = {"city": "x", "days": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def up(server: Upstream) -> Upstream:
    server.clear()
    return server


@pytest.fixture(scope="module")
def client(server: Upstream) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as opened:
        yield opened


@pytest.fixture(scope="module")
def chat_sdk(server: Upstream) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-fake", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def messages_sdk(server: Upstream) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="sk-fake", max_retries=0) as opened:
        yield opened


def body(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello"}], **more}


def data_of(text: str) -> list[Any]:
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def stream_text(client: httpx.Client, path: str, model: str) -> str:
    return client.post(path, json=body(model, stream=True)).text


def received(client: httpx.Client, path: str, model: str, stream: bool) -> tuple[bytes, Exception]:
    """What came before the break, and the break."""
    came = bytearray()
    asked = client.build_request("POST", path, json=body(model, stream=stream))
    with pytest.raises(httpx.TransportError) as broken:
        extend(came, client, asked)
    return bytes(came), broken.value


def extend(came: bytearray, client: httpx.Client, asked: httpx.Request) -> None:
    reply = client.send(asked, stream=True)
    with contextlib.closing(reply):
        for piece in reply.iter_raw():
            came += piece


def finishes(path: str, reply: dict[str, Any]) -> tuple[Any, Any]:
    if path == MESSAGES:
        return reply.get("content", "missing"), reply.get("stop_reason")
    choices = reply.get("choices", "missing")
    if not choices or choices == "missing":
        return choices, None
    return choices[0]["message"]["content"], choices[0]["finish_reason"]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ok", Behaviour()),
            ("", Behaviour()),
            ("glm:ok", Behaviour()),
            ("glm:", Behaviour()),
            ("text=a%2Fb%3Bc:d", Behaviour(text="a/b;c:d")),
            ("ok;text=a:b", Behaviour(text="a:b")),
            (
                "a:status=429;retry-after=7;header-x-a=b",
                Behaviour(status=429, headers=(("retry-after", "7"), ("x-a", "b"))),
            ),
            ("reset", Behaviour(broken=parse("reset").broken)),
            ("no=done,finish", Behaviour(no=frozenset({"done", "finish"}))),
            ("usage=10,20", Behaviour(usage=(10, 20))),
            ("tool", Behaviour(tool="")),
            ("error=json", Behaviour(error="json")),
        ],
    )
    def test_meaning(self, text: str, expected: Behaviour) -> None:
        assert parse(text) == expected

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("rest", "rest: unknown word"),
            ("status=many", "status: invalid literal"),
            ("reset;close", "close: broken is said twice"),
            ("empty=all", "empty: is one of"),
            ("half", "half: needs"),
            ("end", "end: needs a value"),
            ("slow-each=-1", "slow-each: must not be negative"),
            ("gzip=1", "gzip: takes no value"),
            ("split=0", "split: must be 1 or more"),
        ],
    )
    def test_wrong_word(self, text: str, reason: str) -> None:
        with pytest.raises(ValueError, match=f"^{reason}"):
            parse(text)

    @pytest.mark.parametrize("name", ["claude-sonnet-4-6", "glm-5.1", "ok"])
    def test_plain_name_answers_well(self, name: str) -> None:
        assert named(name) == Behaviour()


class TestOpenAI:
    def test_reply(self, chat_sdk: Any) -> None:
        reply = chat_sdk.chat.completions.create(**body("text=Hi there;usage=5,7"))
        assert reply.choices[0].message.content == "Hi there"
        assert reply.choices[0].finish_reason == "stop"
        assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (5, 12)
        assert reply.system_fingerprint == "fp_upstream"
        assert reply.model_extra == {"x_upstream": {"kept": True}}

    @pytest.mark.parametrize("shape", ["", ";sse=crlf,comments,tight", ";split=1", ";sse=bom,open"])
    def test_stream(self, chat_sdk: Any, shape: str) -> None:
        chunks = list(chat_sdk.chat.completions.create(**body(f"chunks=20{shape}", stream=True)))
        pieces = [chunk.choices[0].delta.content for chunk in chunks]
        assert len([piece for piece in pieces if piece]) == 20
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert all(chunk.usage is None for chunk in chunks)

    def test_usage_is_streamed_on_demand(self, chat_sdk: Any) -> None:
        asked = body("ok", stream=True, stream_options={"include_usage": True})
        *_, last = chat_sdk.chat.completions.create(**asked)
        assert last.choices == []
        assert last.usage.prompt_tokens > 0
        assert last.usage.completion_tokens > 0

    def test_stream_helper(self, chat_sdk: Any) -> None:
        with chat_sdk.chat.completions.stream(**body("tool;thinking", tools=[CHAT_TOOL])) as stream:
            final = stream.get_final_completion()
        call = final.choices[0].message.tool_calls[0]
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)
        assert final.choices[0].finish_reason == "tool_calls"

    def test_tool_then_answer(self, chat_sdk: Any) -> None:
        asked = body("tool", tools=[CHAT_TOOL])
        said = chat_sdk.chat.completions.create(**asked).choices[0].message
        assert said.content is None
        call = said.tool_calls[0]
        asked["messages"] += [
            said.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ]
        assert (
            chat_sdk.chat.completions.create(**asked)
            .choices[0]
            .message.content.startswith("All is")
        )

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, openai.BadRequestError),
            (401, openai.AuthenticationError),
            (404, openai.NotFoundError),
            (429, openai.RateLimitError),
            (503, openai.InternalServerError),
            (529, openai.InternalServerError),
        ],
    )
    def test_error(self, chat_sdk: Any, status: int, kind: type[openai.APIError]) -> None:
        with pytest.raises(kind, match="too bad"):
            chat_sdk.chat.completions.create(**body(f"status={status};message=too bad"))

    @pytest.mark.parametrize("place", [0, 3])
    def test_error_event(self, chat_sdk: Any, place: int) -> None:
        seen: list[Any] = []
        asked = body(f"error={place};message=too bad", stream=True)
        with pytest.raises(openai.APIError, match="too bad"):
            seen.extend(chat_sdk.chat.completions.create(**asked))
        assert len(seen) == place


class TestAnthropic:
    def test_reply(self, messages_sdk: Any) -> None:
        reply = messages_sdk.messages.create(**body("thinking;text=Hi;usage=5,7", max_tokens=9))
        assert [block.type for block in reply.content] == ["thinking", "text"]
        assert reply.content[0].signature
        assert reply.content[1].text == "Hi"
        assert reply.stop_reason == "end_turn"
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (5, 7)

    @pytest.mark.parametrize("shape", ["", ";sse=crlf,tight", ";split=1", ";sse=multiline"])
    def test_stream(self, messages_sdk: Any, shape: str) -> None:
        asked = body(f"tool;thinking;text=Look{shape}", max_tokens=9, tools=[MESSAGES_TOOL])
        with messages_sdk.messages.stream(**asked) as stream:
            final = stream.get_final_message()
        assert [block.type for block in final.content] == ["thinking", "text", "tool_use"]
        assert final.content[1].text == "Look"
        assert final.content[2].input == ARGUMENTS
        assert final.stop_reason == "tool_use"
        assert final.usage.input_tokens > 0
        assert final.usage.output_tokens > 1

    def test_stream_and_reply_say_the_same(self, messages_sdk: Any) -> None:
        asked = body("thinking;chunks=9", max_tokens=9)
        whole = messages_sdk.messages.create(**asked)
        with messages_sdk.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        assert [block.to_dict() for block in streamed.content] == [
            block.to_dict() for block in whole.content
        ]

    def test_tool_then_answer(self, messages_sdk: Any) -> None:
        asked = body("tool", max_tokens=9, tools=[MESSAGES_TOOL])
        call = messages_sdk.messages.create(**asked).content[0]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        asked["messages"] += [
            {"role": "assistant", "content": [call.to_dict()]},
            {"role": "user", "content": [result]},
        ]
        assert messages_sdk.messages.create(**asked).content[0].type == "text"

    def test_count_tokens(self, messages_sdk: Any) -> None:
        assert messages_sdk.messages.count_tokens(**body("ok")).input_tokens > 0

    @pytest.mark.parametrize("status", [400, 401, 413, 429, 500, 529])
    def test_error(self, messages_sdk: Any, status: int) -> None:
        with pytest.raises(anthropic.APIStatusError, match="too bad") as refused:
            messages_sdk.messages.create(**body(f"status={status};message=too bad", max_tokens=9))
        assert refused.value.status_code == status

    @pytest.mark.parametrize("place", [0, 3])
    def test_error_event(self, messages_sdk: Any, place: int) -> None:
        asked = body(f"error={place};status=529;message=too bad", max_tokens=9, stream=True)
        with pytest.raises(anthropic.APIError, match="overloaded_error"):
            list(messages_sdk.messages.create(**asked))


class TestErrors:
    def test_status_headers_and_body(self, client: httpx.Client) -> None:
        words = "status=418;retry-after=7;header-x-should-retry=false;body=short%20and stout"
        reply = client.post(CHAT, json=body(words))
        assert reply.status_code == 418
        assert reply.headers["retry-after"] == "7"
        assert reply.headers["x-should-retry"] == "false"
        assert reply.text == "short and stout"

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("path", [CHAT, MESSAGES])
    def test_error_under_200(self, client: httpx.Client, path: str, stream: bool) -> None:
        words = "error=json;type=oops;code=bad"
        reply = client.post(path, json=body(words, stream=stream))
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["error"].items() >= {"type": "oops", "code": "bad"}.items()

    def test_wrong_word_is_told(self, client: httpx.Client) -> None:
        reply = client.post(CHAT, json=body("a:rest"))
        assert reply.status_code == 400
        assert reply.json()["error"]["message"] == "not a behaviour: rest: unknown word"

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("POST", "/chat/completions", 200),
            ("POST", "/api/paas/v4/chat/completions", 200),
            ("POST", "/v1/messages?beta=true", 200),
            ("POST", "/v1/v1/messages", 404),
            ("POST", "/messages", 404),
            ("POST", "/v1/moderations", 404),
            ("GET", "/v1/messages", 404),
            ("HEAD", "/api/hello", 404),
        ],
    )
    def test_paths(
        self, client: httpx.Client, up: Upstream, method: str, path: str, status: int
    ) -> None:
        reply = client.request(method, path, json=body("ok"))
        assert reply.status_code == status
        assert up.requests[-1].path == path

    @pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key"])
    def test_keys(self, header: str) -> None:
        with Upstream(keys={"right"}) as up, httpx.Client(base_url=up.url) as client:
            for key, status in (("right", 200), ("wrong", 401)):
                value = f"Bearer {key}" if header == "authorization" else key
                reply = client.post(CHAT, json=body("ok"), headers={header: value})
                assert reply.status_code == status
                assert up.requests[-1].credential == key
            assert client.post(MESSAGES, json=body("ok")).status_code == 401


class TestNothingUsable:
    @pytest.mark.parametrize(
        ("path", "kind", "expected"),
        [
            (CHAT, "missing", ("missing", None)),
            (CHAT, "list", ([], None)),
            (CHAT, "text", ("", None)),
            (CHAT, "null", (None, None)),
            (CHAT, "done", ("", "stop")),
            (MESSAGES, "missing", ("missing", None)),
            (MESSAGES, "list", ([], None)),
            (MESSAGES, "text", ([{"type": "text", "text": ""}], None)),
            (MESSAGES, "null", (None, None)),
            (MESSAGES, "done", ([], "end_turn")),
        ],
    )
    def test_reply(self, client: httpx.Client, path: str, kind: str, expected: Any) -> None:
        reply = client.post(path, json=body(f"empty={kind}")).json()
        assert finishes(path, reply) == expected
        assert reply["usage"]

    @pytest.mark.parametrize("kind", ["missing", "list", "text", "null", "done"])
    @pytest.mark.parametrize("path", [CHAT, MESSAGES])
    def test_stream_is_whole(self, client: httpx.Client, path: str, kind: str) -> None:
        *events, last = data_of(stream_text(client, path, f"empty={kind}"))
        assert last == ("[DONE]" if path == CHAT else {"type": "message_stop"})
        assert "All is" not in json.dumps(events)
        assert ('"stop"' in json.dumps(events) or "end_turn" in json.dumps(events)) == (
            kind == "done"
        )

    def test_stream_without_events(self, client: httpx.Client) -> None:
        assert stream_text(client, CHAT, "empty=events") == ""
        assert client.post(CHAT, json=body("empty=events")).text == ""

    def test_stream_of_comments(self, client: httpx.Client) -> None:
        text = stream_text(client, CHAT, "empty=comments;chunks=4")
        assert text == ": keep-alive\n\n" * 4
        assert '{"type":"ping"}' in stream_text(client, MESSAGES, "empty=comments")

    @pytest.mark.parametrize("path", [CHAT, MESSAGES])
    def test_thinking_only(self, client: httpx.Client, path: str) -> None:
        reply = client.post(path, json=body("thinking=only;no=finish")).json()
        if path == MESSAGES:
            assert [block["type"] for block in reply["content"]] == ["thinking"]
            assert reply["stop_reason"] is None
        else:
            assert reply["choices"][0]["message"]["content"] is None
            assert reply["choices"][0]["message"]["reasoning_content"]
            assert reply["choices"][0]["finish_reason"] is None

    @pytest.mark.parametrize("path", [CHAT, MESSAGES])
    def test_tool_only(self, client: httpx.Client, path: str) -> None:
        text = client.post(path, json=body('tool=find;args={"a":1}')).text
        assert '"find"' in text
        assert "All is" not in text

    @pytest.mark.parametrize(
        ("words", "kind", "start"),
        [
            ("garbage=html", "text/html; charset=utf-8", "<!DOCTYPE html>"),
            ("garbage=text", "text/plain; charset=utf-8", "upstream connect error"),
            ("garbage=json", "application/json", '{"ok":true'),
            ("garbage=none", "application/json", ""),
            ("garbage=cut", "application/json", '{"id":"chatcmpl-'),
            ("content-type=text/plain", "text/plain", '{"id":"chatcmpl-'),
            ("status=502;garbage=html", "text/html; charset=utf-8", "<!DOCTYPE html>"),
        ],
    )
    def test_garbage(self, client: httpx.Client, words: str, kind: str, start: str) -> None:
        reply = client.post(CHAT, json=body(words))
        assert reply.headers["content-type"] == kind
        assert reply.text.startswith(start)
        assert reply.status_code == (502 if "502" in words else 200)

    def test_cut_json_is_no_json(self, client: httpx.Client) -> None:
        with pytest.raises(json.JSONDecodeError):
            client.post(CHAT, json=body("garbage=cut")).json()

    @pytest.mark.parametrize("stream", [False, True])
    def test_gzip(self, client: httpx.Client, stream: bool) -> None:
        headers = {"accept-encoding": "identity"}
        reply = client.post(CHAT, json=body("gzip", stream=stream), headers=headers)
        assert reply.headers["content-encoding"] == "gzip"
        assert '"finish_reason":"stop"' in reply.text

    @pytest.mark.parametrize(
        ("path", "part", "gone"),
        [
            (CHAT, "done", "[DONE]"),
            (CHAT, "finish", '"finish_reason":"stop"'),
            (MESSAGES, "done", "message_stop"),
            (MESSAGES, "finish", "message_delta"),
            (MESSAGES, "event", "event:"),
            (MESSAGES, "usage", '"usage":'),
        ],
    )
    def test_left_out(self, client: httpx.Client, path: str, part: str, gone: str) -> None:
        assert gone in stream_text(client, path, "ok")
        assert gone not in stream_text(client, path, f"no={part}")


class TestBreaks:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("path", [CHAT, MESSAGES])
    @pytest.mark.parametrize(
        ("words", "error"),
        [
            ("reset", httpx.ReadError),
            ("reset=0", httpx.ReadError),
            ("reset=1", httpx.ReadError),
            ("close", httpx.RemoteProtocolError),
            ("close=0", httpx.RemoteProtocolError),
            ("close=1", httpx.RemoteProtocolError),
            ("status=500;close=1;half", httpx.RemoteProtocolError),
        ],
    )
    def test_broken(
        self,
        client: httpx.Client,
        up: Upstream,
        words: str,
        error: type[Exception],
        path: str,
        stream: bool,
    ) -> None:
        came, broken = received(client, path, words, stream)
        assert type(broken) is error
        assert bool(came) == ("=1" in words)
        assert not up.requests[-1].completed.is_set()
        assert not up.requests[-1].closed.is_set()

    @pytest.mark.parametrize("kind", ["reset", "close"])
    def test_events_before_the_break(self, client: httpx.Client, kind: str) -> None:
        came, _ = received(client, CHAT, f"{kind}=3", stream=True)
        assert len(data_of(came.decode())) == 3
        halved, _ = received(client, CHAT, f"{kind}=3;half", stream=True)
        assert halved.count(b"\n\n") == 3
        assert halved.split(b"\n\n")[3].startswith(b'data: {"id"')

    def test_reset_is_a_reset(self, up: Upstream) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(raw_request("reset"))
            with pytest.raises(ConnectionResetError):
                raw.recv(1)

    def test_close_is_a_close(self, up: Upstream) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(raw_request("close"))
            assert raw.recv(1) == b""

    @pytest.mark.parametrize("path", [CHAT, MESSAGES])
    def test_proper_end(self, client: httpx.Client, path: str) -> None:
        assert len(data_of(stream_text(client, path, "end=3"))) == 3
        half = client.post(path, json=body("end=1"))
        assert half.headers["content-length"] == str(len(half.content))
        with pytest.raises(json.JSONDecodeError):
            half.json()

    @pytest.mark.parametrize("words", ["stall", "stall=0", "stall=2", "stall=99"])
    def test_stall_until_the_peer_goes(self, up: Upstream, words: str) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(raw_request(words, stream=True))
            if words != "stall":
                assert raw.recv(1) == b"H"
            (request,) = up.wait()
            assert not request.closed.is_set()
        assert request.closed.wait(30)
        assert request.closed_at is not None
        assert request.closed_at >= request.time
        assert not request.completed.is_set()

    def test_peer_resets(self, up: Upstream) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(raw_request("stall=1", stream=True))
            assert raw.recv(1) == b"H"
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert up.requests[-1].closed.wait(30)


class TestTime:
    @pytest.mark.parametrize(
        ("words", "least"),
        [("slow-headers=0.05", 0.05), ("slow-first=0.05", 0.05), ("slow-each=0.02", 0.1)],
    )
    def test_slow(self, client: httpx.Client, up: Upstream, words: str, least: float) -> None:
        assert "[DONE]" in stream_text(client, CHAT, words)
        request = up.requests[-1]
        assert request.completed.wait(30)
        assert request.completed_at is not None
        assert least <= request.completed_at - request.time < least + 2

    def test_slow_headers_hold_the_headers_back(self, client: httpx.Client) -> None:
        with pytest.raises(httpx.ReadTimeout):
            client.post(CHAT, json=body("slow-headers=30"), timeout=0.05)

    def test_slow_first_sends_the_headers(self, client: httpx.Client) -> None:
        asked = body("slow-first=30", stream=True)
        with client.stream("POST", CHAT, json=asked, timeout=0.5) as reply:
            assert reply.status_code == 200
            with pytest.raises(httpx.ReadTimeout):
                reply.read()

    def test_gate_before_the_headers(self, client: httpx.Client, up: Upstream) -> None:
        replies: list[httpx.Response] = []
        caller = threading.Thread(
            target=lambda: replies.append(client.post(CHAT, json=body("gate=a")))
        )
        caller.start()
        assert up.gate("a").reached.wait(30)
        assert not replies
        up.gate("a").open()
        caller.join(5)
        assert replies[0].status_code == 200

    def test_gate_in_a_stream(self, client: httpx.Client, up: Upstream) -> None:
        with client.stream("POST", CHAT, json=body("gate=b,2;reset=2", stream=True)) as reply:
            lines = reply.iter_lines()
            came = [next(lines) for _ in range(4)]
            assert up.gate("b").reached.wait(30)
            up.gate("b").open()
            with pytest.raises(httpx.ReadError):
                came += lines
        assert len(data_of("\n".join(came))) == 2

    def test_gate_after_the_last_event(self, client: httpx.Client, up: Upstream) -> None:
        with client.stream("POST", CHAT, json=body("gate=c,99", stream=True)) as reply:
            for line in reply.iter_lines():
                if line == "data: [DONE]":
                    break
            assert not up.requests[-1].completed.is_set()
        assert up.requests[-1].closed.wait(30)


class TestShapes:
    def test_split(self, up: Upstream) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(raw_request("split=1", stream=True))
            reply = raw.makefile("rb").read()
        chunks = reply.split(b"\r\n\r\n", 1)[1]
        assert chunks.startswith(b"1\r\nd\r\n1\r\na\r\n1\r\nt\r\n")

    @pytest.mark.parametrize(
        ("shape", "start", "end"),
        [
            ("crlf", b'data: {"', b"data: [DONE]\r\n\r\n"),
            ("comments", b": keep-alive\n\ndata: ", b": keep-alive\n\ndata: [DONE]\n\n"),
            ("multiline", b'data: {\ndata:  "id": "', b"data: [DONE]\n\n"),
            ("bom", b"\xef\xbb\xbfdata: {", b"data: [DONE]\n\n"),
            ("tight", b'data:{"', b"data:[DONE]\n\n"),
            ("open", b'data: {"', b"data: [DONE]"),
        ],
    )
    def test_shape(self, client: httpx.Client, shape: str, start: bytes, end: bytes) -> None:
        content = client.post(CHAT, json=body(f"sse={shape}", stream=True)).content
        assert content.startswith(start)
        assert content.endswith(end)


class TestScripts:
    def test_fails_once_then_recovers(self, client: httpx.Client, up: Upstream) -> None:
        up.script("glm-5.1", ["status=429", Behaviour(text="Back.")])
        replies = [client.post(CHAT, json=body("glm-5.1")) for _ in range(3)]
        assert [reply.status_code for reply in replies] == [429, 200, 200]
        assert "Back." in replies[2].text

    def test_one_key(self, client: httpx.Client, up: Upstream) -> None:
        up.script("glm-5.1", ["status=402"], key="spent")
        up.script("*", ["status=201"])
        statuses = [
            client.post(MESSAGES, json=body("glm-5.1"), headers={"x-api-key": key}).status_code
            for key in ("spent", "full")
        ]
        assert statuses == [402, 201]

    def test_header_wins(self, client: httpx.Client, up: Upstream) -> None:
        up.script("m", ["status=500"])
        reply = client.post(CHAT, json=body("m"), headers={"x-upstream": "status=403"})
        assert reply.status_code == 403

    def test_wrong_script_is_refused(self, up: Upstream) -> None:
        with pytest.raises(ValueError, match="rest: unknown word"):
            up.script("m", ["rest"])
        with pytest.raises(ValueError, match="at least one"):
            up.script("m", [])


class TestRecords:
    def test_request(self, client: httpx.Client, up: Upstream) -> None:
        raw = json.dumps(body("ok")).encode()
        client.post(
            f"{MESSAGES}?beta=true", content=raw, headers=[("X-Api-Key", "k"), ("X-Two", "2")]
        )
        (request,) = up.wait()
        assert (request.method, request.path) == ("POST", "/v1/messages?beta=true")
        assert ("X-Two", "2") in request.headers
        assert request.header["x-two"] == "2"
        assert (request.body, request.json["model"], request.model) == (raw, "ok", "ok")
        assert request.credential == "k"
        assert request.completed.wait(30)
        assert not request.closed.is_set()

    def test_chunked_body(self, client: httpx.Client, up: Upstream) -> None:
        raw = json.dumps(body("ok")).encode()
        reply = client.post(CHAT, content=iter([raw[:5], raw[5:]]))
        assert reply.status_code == 200
        assert up.requests[-1].body == raw

    def test_body_that_is_no_json(self, client: httpx.Client, up: Upstream) -> None:
        assert client.post(CHAT, content=b"\xff{").status_code == 400
        assert up.requests[-1].json is None

    def test_bytes_that_are_no_http(self, up: Upstream) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(b"\x16\x03\x01\r\n\r\n")
            assert raw.makefile("rb").read().startswith(b"HTTP/1.1 400 ")

    def test_two_requests_in_one_packet(self, up: Upstream) -> None:
        with socket.create_connection(address(up), timeout=30) as raw:
            first = raw_request("slow-headers=0.01").replace(b"connection: close\r\n", b"")
            raw.sendall(first + raw_request("ok"))
            assert raw.makefile("rb").read().count(b"HTTP/1.1 200 OK") == 2

    def test_expect_continue(self, up: Upstream) -> None:
        head, _, rest = raw_request("ok").partition(b"\r\n\r\n")
        with socket.create_connection(address(up), timeout=30) as raw:
            raw.sendall(head + b"\r\nexpect: 100-continue\r\n\r\n")
            assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            raw.sendall(rest)
            assert raw.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")

    def test_big_reply_to_a_slow_reader(self, up: Upstream) -> None:
        text = "x" * 20_000_000
        up.script("big", [Behaviour(text=text)])
        connection = http.client.HTTPConnection(*address(up), timeout=30)
        connection.request("POST", CHAT, json.dumps(body("big")))
        (request,) = up.wait()
        assert not request.completed.wait(0.02)
        assert len(connection.getresponse().read()) > len(text)
        connection.close()
        assert request.completed.wait(30)

    def test_wait_tells_what_came(self, up: Upstream) -> None:
        with pytest.raises(TimeoutError, match="0 of 1 requests came"):
            up.wait(timeout=0)


class TestLife:
    def test_open_connections(self) -> None:
        with Upstream() as up:
            assert up.open_connections == 0
            with httpx.Client(base_url=up.url) as client:
                client.post(CHAT, json=body("ok"))
                assert up.open_connections == 1

    def test_nothing_is_left(self) -> None:
        before = count_descriptors()
        threads = threading.active_count()
        with Upstream() as up:
            raw = socket.create_connection(address(up), timeout=30)
            raw.sendall(raw_request("stall=1", stream=True))
            idle = socket.create_connection(address(up), timeout=30)
            up.wait()
        assert not up.requests[0].closed.is_set()
        with raw, idle:
            pass
        assert threading.active_count() == threads
        assert count_descriptors() <= before

    def test_port_in_use(self, up: Upstream) -> None:
        with pytest.raises(OSError, match="in use"), Upstream(port=address(up)[1]):
            pass

    def test_by_hand(self) -> None:
        command = [sys.executable, "-m", "tests.upstream", "--port", "0", "--key", "k"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split("/v1/")[0]
            reply = httpx.post(url + CHAT, json=body("ok"), headers={"x-api-key": "k"})
            process.terminate()
            printed = process.stdout.read()
        assert reply.status_code == 200
        assert "glm:status=429;retry-after=7" in printed
        assert printed.endswith("POST /v1/chat/completions ok\n")
        assert process.returncode == 0


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def address(up: Upstream) -> tuple[str, int]:
    host, _, port = urlsplit(up.url).netloc.partition(":")
    return host, int(port)


def raw_request(model: str, **more: Any) -> bytes:
    content = json.dumps(body(model, **more)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}"
    return f"{head}\r\n\r\n".encode() + content
