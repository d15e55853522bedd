"""The error table between callers and providers of every dialect: whatever the provider speaks,
the same fault has the same outcome, told in the caller's dialect."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY

from tests.harness import Krouter, params_of
from tests.responses_validator import check_responses_stream
from tests.test_walk_table import NO_WAIT, ROWS, Row, waiting
from tests.upstream import Upstream
from tests.validators import Heard, check_chat_stream, check_gemini_stream, check_messages_stream

CALLERS = ("chat", "messages", "gemini", "responses")
SPOKEN = ("chat", "messages", "gemini", "responses")
PAIRINGS = tuple(product(CALLERS, SPOKEN))
MODES = ("json", "stream")
CHECKS = {
    "chat": check_chat_stream,
    "messages": check_messages_stream,
    "gemini": check_gemini_stream,
    "responses": check_responses_stream,
}
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:{method}",
    "responses": "/v1/responses",
}
MESSAGES_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
GEMINI_STATUSES = {
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
}
BASES = {"chat": "/v1", "messages": "", "gemini": "", "responses": ""}


def settings_for(url: str) -> tuple[str, dict[str, str]]:
    """For each dialect a provider `one-…` with two accounts, and a sound one, `two-…`."""
    text, env = [], {}
    for spoken in SPOKEN:
        for name, accounts in ((f"one-{spoken}", "ab"), (f"two-{spoken}", "x")):
            text.append(
                f'[provider.{name}]\nspeaks = ["{spoken}"]\n'
                f'base_urls = {{ {spoken} = "{url}{BASES[spoken]}" }}\n'
            )
            for account in accounts:
                variable = f"{name}_{account}".upper().replace("-", "_")
                env[variable] = secret_of(name, account)
                text.append(
                    f'[[account]]\nprovider = "{name}"\nname = "{account}"\n'
                    f'key = "env:{variable}"\n'
                )
    return "".join(text), env


def secret_of(provider: str, account: str) -> str:
    return f"secret-{provider}-{account}"


def combos_for(spoken: str) -> dict[str, Any]:
    bad, good = f"one-{spoken}/bad", f"two-{spoken}/good"
    hasty = {"model": bad, "timeouts": {"firstByte": 0.2, "attempt": 0.2}}
    combos: dict[str, Any] = {
        "first": {"models": [bad, good]},
        "last": {"models": [f"two-{spoken}/unfit", bad]},
        "first-hasty": {"models": [hasty, good]},
        "last-hasty": {"models": [f"two-{spoken}/unfit", hasty]},
        "stalls": {"models": [bad, good], "timeouts": {"stall": 0.2}},
        "held": {"models": [bad, good], "timeouts": {"firstToken": 5}},
        "larger": {
            "models": [
                {"model": bad, "contextWindow": 1000},
                {"model": f"two-{spoken}/small", "contextWindow": 900},
                {"model": good, "contextWindow": 2000},
            ],
            "onTooLarge": "larger",
        },
        "returns": {"models": [bad, good], "onRefusal": "return"},
        "again": {"models": [bad, good], "retries": 1},
    }
    return {f"{name}-{spoken}": combo for name, combo in combos.items()}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@contextmanager
def serving(upstream: Upstream, home: Path, leaps: Upstream | None = None) -> Iterator[Krouter]:
    LIBRARY.get()  # no test is the one that waits for LiteLLM
    settings, env = settings_for(upstream.url)
    combos = {name: combo for spoken in SPOKEN for name, combo in combos_for(spoken).items()}

    async def at_once(seconds: float) -> None:
        """The wait before the same account is tried again."""

    edges = {"sleep": at_once}
    with Krouter(
        home, combos=combos, settings=settings, env=env, edges=edges, leaps=leaps
    ) as krouter:
        yield krouter


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    with serving(upstream, tmp_path_factory.mktemp("home")) as krouter:
        yield krouter


@pytest.fixture(scope="module")
def timed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    """One whose limits are reached."""
    with serving(upstream, tmp_path_factory.mktemp("timed"), upstream) as krouter:
        yield krouter


def stalls(params: Mapping[str, Any]) -> bool:
    case = params.get("row") or params.get("broken")
    return "stall" in (case.does if case else params.get("does", ""))


@pytest.fixture
def krouter(request: pytest.FixtureRequest, upstream: Upstream) -> Krouter:
    timed = stalls(params_of(request))
    served: Krouter = request.getfixturevalue("timed" if timed else "served")
    upstream.clear()
    upstream.script("unfit", ["status=400;message=unfit"])
    served.forget()
    served.router.routes.clear()
    return served


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SPOKEN)
def spoken(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def calls(upstream: Upstream) -> list[str]:
    """`account model` of every request, in their order."""
    found = [(request.credential or "", request.model) for request in upstream.requests]
    return [f"{credential.rpartition('-')[2]} {model}" for credential, model in found]


def steps(krouter: Krouter) -> list[dict[str, Any]]:
    return [step for step in krouter.last_route["steps"] if step["step"] == "attempt"]


def lane(caller: str, spoken: str) -> str:
    return "native" if caller == spoken else "litellm"


def heard(reply: httpx.Response, caller: str) -> Heard:
    assert reply.headers["content-type"].startswith("text/event-stream")
    return CHECKS[caller](reply.content)


def assert_error(error: Any, status: int, caller: str, message: str) -> None:
    """An error body, or the data of an error event, of the caller's dialect."""
    inner = error["error"]
    assert inner["message"].startswith(message.rstrip("."))
    if caller == "messages":
        assert error["type"] == "error"
        own = MESSAGES_TYPES.get(status, "api_error")
        assert inner["type"] in (own, "api_error") if status >= 500 else inner["type"] == own
    elif caller == "gemini":
        assert isinstance(inner["code"], int)
        own = GEMINI_STATUSES.get(status, "INVALID_ARGUMENT")
        told = inner["status"].islower()  # by a provider, which was told to say so
        assert status >= 500 or told or inner["status"] == own
    else:
        assert "type" not in error
        assert isinstance(inner["type"], str)


def last_error(reply: httpx.Response, caller: str) -> Any:
    """What the last event tells of an error, in the form of an error body."""
    told = json.loads(reply.text.strip().split("\n\n")[-1].rpartition("data: ")[2])
    return {"error": told["response"]["error"]} if caller == "responses" else told


def assert_whole(reply: httpx.Response, caller: str, mode: str) -> None:
    assert reply.status_code == 200
    if mode == "stream":
        found = heard(reply, caller)
        assert (found.ending, bool(found.text)) == ("complete", True)
    else:
        assert read(reply.json(), caller).text


def odd(name: str, status: int, body: str, number: int, reason: str, message: str) -> Row:
    """An error whose body has not the form of the provider's dialect."""
    both = number in (7, 8, 9, 10)
    accounts = ("a bad", "b bad") if both else ("a bad",)
    wait: Any = {7: NO_WAIT, 8: 2, 9: 2, 10: 1}.get(number)
    lock = {7: 120.0, 8: 2.0, 9: 2.0}.get(number)
    does = f"status={status};body={quote(body)}"
    return Row(name, does, number, reason, accounts, status, "", "", message, wait, lock,
        "*" if number == 7 else "bad", returned=number == 3)  # fmt: skip


ODD = (
    odd("page", 502, "<html><h1>Bad gateway</h1></html>", 10, "server error", "Bad gateway"),
    odd("no-body", 500, "", 10, "server error", "The provider answered with status 500"),
    odd("words", 503, "upstream is down", 9, "overloaded", "upstream is down"),
    odd("detail", 422, '{"detail": "x is missing"}', 14, "bad request", "x is missing"),
    odd("plain-text", 429, '{"error": "slow down"}', 8, "rate limited", "slow down"),
    odd("list", 401, '[{"error": {"message": "who?"}}]', 7, "not signed in", "who?"),
    odd("outer", 400, '{"message": "no, thanks", "code": 1}', 14, "bad request", "no, thanks"),
    odd("foreign-chat", 401, '{"error": {"message": "no key", "type": "invalid_request_error",'
        ' "param": null, "code": "invalid_api_key"}}', 7, "not signed in", "no key"),
    odd("foreign-messages", 529, '{"type": "error", "error": {"type": "overloaded_error",'
        ' "message": "busy"}, "request_id": "req_1"}', 9, "overloaded", "busy"),
    odd("foreign-gemini", 400, '{"error": {"code": 400, "message": "bad", "status":'
        ' "INVALID_ARGUMENT"}}', 14, "bad request", "bad"),
    odd("word-for-word", 400, json.dumps({"error": {"type": "invalid_request_error", "message":
        'tools.0.custom.x: "naïve" <b>\n  is\tnot ' + "ok " * 300 + "."}}), 14, "bad request",
        'tools.0.custom.x: "naïve" <b>\n  is\tnot ' + "ok " * 300 + "."),
)  # fmt: skip


def modes(row: Row, caller: str, spoken: str, turn: int) -> tuple[str, ...]:
    """An error status is read alike for both modes: where it is translated, they take turns."""
    if row.only:
        return (row.only,)
    if caller == spoken or "status=" not in row.does or "error=" in row.does:
        return MODES
    turn += CALLERS.index(caller) + SPOKEN.index(spoken)
    return (MODES[turn % 2],)


def table(*rows: Row, turn: int) -> list[Any]:
    """Rows for every pairing; an error of gemini's has no `code` of its own."""
    found = []
    for place, (row, caller, spoken) in enumerate(product(rows, CALLERS, SPOKEN)):
        if spoken == "gemini" and ";code=" in row.does:
            continue
        for mode in modes(row, caller, spoken, turn + place // len(PAIRINGS)):
            case = f"{row.name}-{caller}-{spoken}-{mode}"
            found.append(pytest.param(row, caller, spoken, mode, id=case))
    return found


def attempts(row: Row) -> list[str]:
    return [call.replace("one-", "") for call in row.calls]


def place(name: str, row: Row, spoken: str) -> str:
    return f"{name}-hasty-{spoken}" if row.timed else f"{name}-{spoken}"


def expected_locks(row: Row, spoken: str) -> dict[str, tuple[int, float]]:
    if row.lock is None:
        return {}
    accounts = tuple(row.accounts) or [call.split()[0] for call in attempts(row)]
    return {f"one-{spoken}/{account}/{row.scope}": (row.number, row.lock) for account in accounts}


def tried(row: Row, spoken: str) -> str:
    seen = row.seen or row.does.partition("status=")[2][:3]
    return f"one-{spoken}/bad: {seen}, {row.reason}"


def assert_booked(krouter: Krouter, row: Row, spoken: str, which: slice) -> None:
    assert krouter.locks() == expected_locks(row, spoken)
    booked = {(step["row"], step["outcome"]) for step in steps(krouter)[which]}
    assert booked == {(row.number, row.reason)}


@pytest.mark.parametrize(("row", "caller", "spoken", "mode"), table(*ROWS, turn=0))
def test_a_fault_of_the_first_entry(
    krouter: Krouter, upstream: Upstream, row: Row, caller: str, spoken: str, mode: str
) -> None:
    upstream.script("bad", [row.does])
    reply = krouter.ask(caller, place("first", row, spoken), mode == "stream")

    following = [] if row.returned else ["x good"]
    assert calls(upstream) == attempts(row) + following
    assert reply.headers["x-krouter-tried"] == tried(row, spoken)
    if row.returned:
        assert reply.status_code == row.status
        assert_error(reply.json(), row.status, caller, row.message)
    else:
        assert reply.headers["x-krouter-model"] == f"two-{spoken}/good"
        assert_whole(reply, caller, mode)
    krouter.idle()
    assert_booked(krouter, row, spoken, slice(len(row.calls)))
    assert {step["lane"] for step in steps(krouter)} == {lane(caller, spoken)}


@pytest.mark.parametrize(("row", "caller", "spoken", "mode"), table(*ROWS, *ODD, turn=1))
def test_a_fault_of_the_last_entry(
    krouter: Krouter, upstream: Upstream, row: Row, caller: str, spoken: str, mode: str
) -> None:
    upstream.script("bad", [row.does])
    reply = krouter.ask(caller, place("last", row, spoken), mode == "stream")

    assert calls(upstream) == ["x unfit", *attempts(row)]
    trail = f"two-{spoken}/unfit: 400, bad request; {tried(row, spoken)}"
    assert reply.headers["x-krouter-tried"] == trail
    assert reply.status_code == row.status
    assert reply.headers["content-type"] == "application/json"
    assert_error(reply.json(), row.status, caller, row.message)
    assert reply.json()["error"]["krouter_tried"] == trail
    assert waiting(reply) == row.wait
    assert_booked(krouter, row, spoken, slice(1, None))


QUOTED = "Error: rate limit exceeded, too many requests per minute."


def test_a_quoted_prompt_does_not_flip_the_class(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str
) -> None:
    upstream.script("bad", [f"status=400;message={quote('Cannot read: ' + QUOTED)}"])
    text = f"What does this mean?\n{QUOTED}"
    said: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if caller == "gemini":
        said = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    elif caller == "responses":
        said = {"input": text}
    reply = krouter.ask(caller, f"first-{spoken}", **said)
    assert reply.headers["x-krouter-model"] == f"two-{spoken}/good"
    assert [step["row"] for step in steps(krouter)] == [14, None]


@pytest.mark.parametrize("mode", MODES)
def test_the_credential_is_blotted_out_of_an_error(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, mode: str
) -> None:
    faults = ["status=400", "status=401", "error=json;status=400"]
    if mode == "stream":
        faults += [at(f"error={place};status=400", spoken) for place in ("0", "{middle}")]
    for fault in faults:
        for secret in (secret_of(f"one-{spoken}", account) for account in "ab"):
            told = quote(f"The key {secret} is odd.")
            upstream.script("bad", [f"{fault};message={told}"], key=secret)
        reply = krouter.ask(caller, f"last-{spoken}", mode == "stream")
        krouter.idle()
        assert "The key [credential] is odd." in reply.text
        assert "secret-" not in reply.text + str(reply.headers) + json.dumps(krouter.last_route)
        krouter.forget()


FOREIGN = {
    "chat": {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
    },
    "messages": {
        "object": "chat.completion",
        "id": "chatcmpl-1",
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
        ],
    },
}
FOREIGN["gemini"] = FOREIGN["responses"] = FOREIGN["messages"]


def test_a_reply_of_another_dialect_is_garbage(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str
) -> None:
    upstream.script("bad", [f"body={quote(json.dumps(FOREIGN[spoken]))}"])
    reply = krouter.ask(caller, f"first-{spoken}")
    assert reply.headers["x-krouter-model"] == f"two-{spoken}/good"
    assert [step["row"] for step in steps(krouter)] == [10, 10, None]


EMPTY = ("missing", "list", "text", "null")


@pytest.mark.native_garbage("an empty reply does not say why it ended")
@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_reply(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, kind: str
) -> None:
    upstream.script("bad", [f"empty={kind}"])
    reply = krouter.ask(caller, f"first-{spoken}")
    assert reply.headers["x-krouter-model"] == f"two-{spoken}/good"
    assert [step["row"] for step in steps(krouter)] == [15, None]
    assert reply.headers["x-krouter-tried"] == f"one-{spoken}/bad: -, empty reply"

    reply = krouter.ask(caller, f"last-{spoken}")
    assert reply.status_code == 200
    assert reply.headers["x-krouter-model"] == f"one-{spoken}/bad"
    body = reply.json()
    if caller == spoken == "gemini":
        assert body["responseId"].startswith("resp0000")
    elif caller == spoken:
        assert body["x_upstream"] == {"kept": True}
    elif caller == "gemini":
        assert body["candidates"][0]["content"]["parts"] == [{"text": ""}]
        assert "finishReason" not in body["candidates"][0]
    elif caller == "chat":
        (choice,) = body["choices"]
        assert (choice["message"]["content"] or "", choice["finish_reason"]) == ("", None)
    elif caller == "responses":
        assert (body["object"], body["output"], body["status"]) == ("response", [], "incomplete")
    else:
        assert (body["type"], body["content"], body["stop_reason"]) == ("message", [], None)
    assert krouter.locks() == {}


@pytest.mark.native_garbage("an empty reply does not say why it ended")
@pytest.mark.parametrize("kind", EMPTY)
def test_a_stream_is_not_inspected_for_emptiness(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, kind: str
) -> None:
    upstream.script("bad", [f"empty={kind}"])
    reply = krouter.ask(caller, f"first-{spoken}", True)
    assert reply.status_code == 200
    assert calls(upstream) == ["a bad"]
    krouter.idle()
    if spoken == "responses" and kind != "missing":  # whose last event is the end in itself
        assert caller == spoken or heard(reply, caller).ending == "complete"
        assert [step["outcome"] for step in steps(krouter)] == ["answered"]
        return
    assert caller == spoken or heard(reply, caller).ending == "error"
    assert_error(last_error(reply, caller), 502, caller, CUT)
    assert [step["row"] for step in steps(krouter)] == [10]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("does", ["empty=done", "thinking=only", "tool=look"])
def test_a_reply_without_text_can_be_an_answer(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, does: str, mode: str
) -> None:
    upstream.script("bad", [does])
    reply = krouter.ask(caller, f"first-{spoken}", mode == "stream")
    assert reply.headers["x-krouter-model"] == f"one-{spoken}/bad"
    assert mode == "json" or heard(reply, caller).ending == "complete"
    krouter.idle()
    assert [step["outcome"] for step in steps(krouter)] == ["answered"]


@pytest.mark.parametrize("mode", MODES)
def test_what_a_combo_says_of_a_class(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, mode: str
) -> None:
    upstream.script("bad", ["status=413"])
    reply = krouter.ask(caller, f"larger-{spoken}", mode == "stream")
    assert reply.headers["x-krouter-model"] == f"two-{spoken}/good"
    assert calls(upstream) == ["a bad", "x good"]

    filtered = quote("Output blocked by content filtering policy")
    upstream.script("bad", [f"status=400;message={filtered}"])
    reply = krouter.ask(caller, f"returns-{spoken}", mode == "stream")
    assert reply.status_code == 400
    assert_error(reply.json(), 400, caller, "Output blocked by content filtering policy")

    upstream.script("bad", ["status=503;retry-after=3", "ok"])
    reply = krouter.ask(caller, f"again-{spoken}", mode == "stream")
    assert reply.headers["x-krouter-model"] == f"one-{spoken}/bad"
    krouter.idle()
    assert [(s["row"], s["account"]) for s in steps(krouter)] == [(9, "a"), (None, "a")]


def test_a_refused_credential_is_read_anew(tmp_path: Path, upstream: Upstream) -> None:
    key = tmp_path / "key"
    settings = "".join(
        f'[provider.own-{spoken}]\nspeaks = ["{spoken}"]\n'
        f'base_urls = {{ {spoken} = "{upstream.url}{BASES[spoken]}" }}\n'
        f'[[account]]\nprovider = "own-{spoken}"\nname = "a"\nkey = "command:cat {key}"\n'
        for spoken in SPOKEN
    )
    key.write_text("key-0")
    with Krouter(tmp_path, settings=settings) as krouter:
        krouter.chat("own-chat/m")
        for turn, (caller, spoken, mode) in enumerate(product(CALLERS, SPOKEN, MODES)):
            upstream.clear()
            upstream.script("m", ["status=401"], key=f"key-{turn}")
            key.write_text(f"key-{turn + 1}")
            assert krouter.ask(caller, f"own-{spoken}/m", mode == "stream").status_code == 200
            used = [request.credential for request in upstream.requests]
            assert used == [f"key-{turn}", f"key-{turn + 1}"]
            krouter.idle()
            assert krouter.locks() == {}


# After so many of the provider's events: its first, one piece of text, all of the text.
HEAD = {"chat": 1, "messages": 1, "gemini": 0, "responses": 1}
MIDDLE = {"chat": 2, "messages": 4, "gemini": 1, "responses": 5}
TEXT = {"chat": 4, "messages": 6, "gemini": 3, "responses": 7}
END = {"chat": 5, "messages": 9, "gemini": 4, "responses": 11}
WORDS = "All is well at the upstream provider."


def at(does: str, spoken: str) -> str:
    return does.format(head=HEAD[spoken], middle=MIDDLE[spoken], text=TEXT[spoken], end=END[spoken])


def texts(reply: httpx.Response, caller: str) -> str:
    """The text that has come, be its block closed or not."""
    found = []
    for line in reply.text.split("\n"):
        if not line.startswith("data: {"):
            continue
        data = json.loads(line[6:])
        if caller == "messages":
            found.append(data.get("delta", {}).get("text"))
        elif caller == "gemini":
            for candidate in data.get("candidates", ()):
                found += [part.get("text") for part in candidate["content"].get("parts", ())]
        elif caller == "responses":
            found += [data["delta"]] if data["type"] == "response.output_text.delta" else []
        else:
            found += [choice["delta"].get("content") for choice in data.get("choices", ())]
    return "".join(filter(None, found))


class Broken(NamedTuple):
    """How a stream goes wrong once its first event has gone to the caller."""

    does: str
    number: int
    status: int
    message: str
    text: str
    lock: float | None = None


CUT = "The provider's reply was cut short."
SILENT = "The provider did not answer in time."
PIECE = "All is well "
OWN = quote('It is "too much":\n naïve.')
TOLD = 'It is "too much":\n naïve.'

BROKEN = (
    *(Broken(f"{kind}={{middle}}{half}", 10, 502, CUT, PIECE)
      for kind in ("reset", "close", "end") for half in ("", ";half")),
    *(Broken(f"stall={{middle}}{half}", 11, 504, SILENT, PIECE, 2) for half in ("", ";half")),
    *(Broken(f"{kind}={{text}}", 10, 502, CUT, WORDS) for kind in ("reset", "close", "end")),
    Broken("no=finish", 10, 502, CUT, WORDS),
    Broken("no=finish,done", 10, 502, CUT, WORDS),
    Broken(f"error={{middle}};status=529;type=overloaded_error;message={OWN}", 9, 529, TOLD, PIECE,
           2),
    Broken(f"error={{middle}};status=429;type=rate_limit_error;message={OWN}", 8, 429, TOLD, PIECE,
           2),
    Broken(f"error={{middle}};status=400;type=invalid_request_error;message={OWN}", 14, 400, TOLD,
           PIECE),
)  # fmt: skip


WITHOUT_USAGE = Broken("no=finish,usage;slow-each=0", 10, 502, CUT, WORDS)


@pytest.mark.parametrize(
    "broken",
    [
        *BROKEN,
        pytest.param(WITHOUT_USAGE, marks=pytest.mark.native_garbage("message_start lacks usage")),
    ],
    ids=lambda broken: broken.does,
)
def test_a_stream_that_breaks_ends_with_an_error_event(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, broken: Broken
) -> None:
    upstream.script("bad", [at(broken.does, spoken)])
    combo = "stalls" if "stall" in broken.does else "first"
    reply = krouter.ask(caller, f"{combo}-{spoken}", True)
    assert reply.status_code == 200
    assert reply.headers["x-krouter-model"] == f"one-{spoken}/bad"
    assert (caller == spoken and "usage" in broken.does) or heard(reply, caller).ending == "error"
    assert texts(reply, caller) == broken.text
    assert_error(last_error(reply, caller), broken.status, caller, broken.message)
    krouter.idle()
    assert calls(upstream) == ["a bad"]
    assert [step["row"] for step in steps(krouter)] == [broken.number]
    locks = {f"one-{spoken}/a/bad": (broken.number, broken.lock)} if broken.lock else {}
    assert krouter.locks() == locks


@pytest.mark.parametrize(
    ("does", "number"),
    [
        ("reset={head}", 10),
        ("close={head}", 10),
        ("end={head}", 10),
        ("error={head};status=529;type=overloaded_error", 9),
        ("error={head};status=402;type=billing_error;message=no%20credit", 6),
        ("error={head};status=401;type=authentication_error", 7),
        ("error={head};status=403;type=permission_error", 7),
        ("error={head};status=503;type=service_unavailable_error", 9),
    ],
)
def test_a_stream_that_is_held_back_falls_over(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, does: str, number: int
) -> None:
    upstream.script("bad", [at(does, spoken)])
    reply = krouter.ask(caller, f"held-{spoken}", True)
    assert reply.headers["x-krouter-model"] == f"two-{spoken}/good"
    assert_whole(reply, caller, "stream")
    krouter.idle()
    assert [step["row"] for step in steps(krouter)] == [number, number, None]


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("context_length_exceeded", 3),
        ("insufficient_quota", 6),
        ("invalid_api_key", 7),
        ("rate_limit_exceeded", 8),
        ("server_is_overloaded", 9),
        ("content_filter", 12),
        ("503", 9),
    ],
)
@pytest.mark.parametrize("held", [False, True])
def test_the_code_of_an_error_event_counts(
    krouter: Krouter, upstream: Upstream, caller: str, code: str, number: int, held: bool
) -> None:
    found = []
    for spoken in ("chat", "messages", "responses"):
        upstream.script("bad", [f"error=0;status=500;code={code};message=no"])
        reply = krouter.ask(caller, f"held-{spoken}" if held else f"first-{spoken}", True)
        krouter.idle()
        found.append((reply.status_code, steps(krouter)[0]["row"], steps(krouter)[0]["status"]))
    assert found[0] == found[1] == found[2]
    assert found[0][1] == number


@pytest.mark.parametrize(
    ("spoken", "does"),
    [
        ("chat", "no=done"),
        *((spoken, f"{how}={{end}}") for spoken in SPOKEN for how in ("reset", "close", "end")),
        *((spoken, "stall={end}") for spoken in SPOKEN),
    ],
)
def test_a_stream_that_has_come_to_its_end_is_whole(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, does: str
) -> None:
    upstream.script("bad", [at(does, spoken)])
    combo = "stalls" if "stall" in does else "first"
    reply = krouter.ask(caller, f"{combo}-{spoken}", True)
    found = heard(reply, caller)
    assert (found.ending, found.text) == ("complete", WORDS)
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    assert krouter.locks() == {}


def test_message_stop_belongs_to_the_end_of_messages(
    krouter: Krouter, upstream: Upstream, caller: str
) -> None:
    upstream.script("bad", ["no=done"])
    reply = krouter.ask(caller, "first-messages", True)
    assert heard(reply, caller).ending == "error"


REASONS = {
    "stop": ("stop", "end_turn", "STOP", "completed"),
    "tool": ("tool_calls", "tool_use", "STOP", "completed"),
    "length": ("length", "max_tokens", "MAX_TOKENS", "max_output_tokens"),
    "filter": ("content_filter", "refusal", "SAFETY", "content_filter"),
}
THOUGHT = "The caller wants an answer, so I give one."


class Whole(NamedTuple):
    """A sound reply, and what a client must make of it."""

    does: str
    text: str = WORDS
    thinking: str = ""
    calls: tuple[Any, ...] = ()
    reason: str = "stop"


LOOK = ("look", {"at": ["a", {"b": 1}], "x": "é"})
WHOLE = (
    Whole("ok"),
    Whole("chunks=40", "All is well at the upstream provider, " * 5 + "All is well at the."),
    Whole("thinking", thinking=THOUGHT),
    Whole("thinking=only", "", THOUGHT),
    Whole(f"tool=look;args={quote(json.dumps(LOOK[1]))}", "", calls=(LOOK,), reason="tool"),
    Whole("tool=look;args=%7B%7D;text=First", "First", calls=(("look", {}),), reason="tool"),
    Whole("text=cut;length", "cut", reason="length"),
    Whole("text=no;filter", "no", reason="filter"),
    Whole("split=1;text=naïve%20🙂", "naïve 🙂"),
    *(Whole(f"sse={shape}") for shape in ("crlf", "comments", "multiline", "tight", "bom")),
)


def finished(does: str, spoken: str) -> str:
    head, _, word = does.rpartition(";")
    cut = word in ("length", "filter")
    return f"{head};finish={REASONS[word][SPOKEN.index(spoken)]}" if cut else does


@pytest.mark.parametrize("whole", WHOLE, ids=lambda whole: whole.does)
@pytest.mark.parametrize("mode", MODES)
def test_a_sound_reply_is_the_same_in_every_pairing(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, mode: str, whole: Whole
) -> None:
    upstream.script("bad", [f"{finished(whole.does, spoken)};usage=11,5"])
    given = asking_for_all(caller, mode)
    reply = krouter.ask(caller, f"first-{spoken}", mode == "stream", **given)
    found = heard(reply, caller) if mode == "stream" else read(reply.json(), caller)
    reason = REASONS[whole.reason][CALLERS.index(caller)]
    assert (found.ending, found.reason) == ("complete", reason)
    assert (found.text, found.thinking) == (whole.text, whole.thinking)
    assert found.calls == list(whole.calls)
    assert tuple(sum(found.usage.get(n, 0) for n in names) for names in COUNTS[caller]) == (11, 5)
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    usage = krouter.last_route["usage"]
    assert (usage["input"], usage["output"]) == (11, 5)
    named = f"first-{spoken}" if caller == "messages" else "bad"
    field = "modelVersion" if caller == "gemini" else "model"
    assert f'"{field}":"{named}"' in reply.text.replace(" ", "")


COUNTS = {
    "chat": (("prompt_tokens",), ("completion_tokens",)),
    "messages": (("input_tokens",), ("output_tokens",)),
    "gemini": (("promptTokenCount",), ("candidatesTokenCount", "thoughtsTokenCount")),
    "responses": (("input_tokens",), ("output_tokens",)),
}


def asking_for_all(caller: str, mode: str) -> dict[str, Any]:
    """What a caller must say to be told of thoughts and counts."""
    if caller == "gemini":
        return {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    asks = caller == "chat" and mode == "stream"
    return {"stream_options": {"include_usage": True}} if asks else {}


def test_usage_is_kept_from_a_caller_that_did_not_ask(
    krouter: Krouter, upstream: Upstream, spoken: str
) -> None:
    upstream.script("bad", ["usage=11,5"])
    reply = krouter.chat(f"first-{spoken}", True)
    assert "prompt_tokens" not in reply.text
    assert heard(reply, "chat").ending == "complete"
    krouter.idle()
    assert krouter.last_route["usage"]["input"] == 11


def read(reply: Any, caller: str) -> Heard:
    """What a client makes of a whole reply."""
    if caller == "messages":
        blocks = reply["content"]
        return Heard(
            ending="complete",
            text="".join(b["text"] for b in blocks if b["type"] == "text"),
            thinking="".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
            calls=[(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"],
            reason=reply["stop_reason"],
            usage=reply["usage"],
        )
    if caller == "gemini":
        return check_gemini_stream(b"data: " + json.dumps(reply).encode() + b"\n\n")
    if caller == "responses":
        return read_response(reply)
    (choice,) = reply["choices"]
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return Heard(
        ending="complete",
        text=message["content"] or "",
        thinking=message.get("reasoning_content") or "",
        calls=[(function["name"], json.loads(function["arguments"])) for function in functions],
        reason=choice["finish_reason"],
        usage=reply["usage"],
    )


def read_response(reply: Any) -> Heard:
    output, cut = reply["output"], reply["incomplete_details"]
    assert reply["status"] == ("incomplete" if cut else "completed")
    said = [part for item in output if item["type"] == "message" for part in item["content"]]
    thoughts = [part for item in output for part in item.get("summary", ())]
    calls = [item for item in output if item["type"] == "function_call"]
    return Heard(
        ending="complete",
        text="".join(part["text"] for part in said),
        thinking="".join(part["text"] for part in thoughts),
        calls=[(call["name"], json.loads(call["arguments"])) for call in calls],
        reason=cut["reason"] if cut else "completed",
        usage=reply["usage"],
    )


class Caller:
    """A caller on a bare socket, which can leave."""

    def __init__(self, krouter: Krouter, caller: str, model: str, stream: bool) -> None:
        said = [{"role": "user", "content": "hello"}]
        call = {"model": model, "max_tokens": 9, "messages": said, "stream": stream}
        if caller == "gemini":
            call = {"contents": [{"parts": [{"text": "hello"}]}]}
        elif caller == "responses":
            call = {"model": model, "input": "hello", "stream": stream}
        body = json.dumps(call).encode()
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        url = httpx.URL(krouter.url)
        self._socket = socket.create_connection((url.host, url.port or 80), 30)
        path = PATHS[caller].format(model=model, method=method)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n"
        self._socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def read_until(self, words: bytes) -> None:
        got = b""
        while words not in got:
            piece = self._socket.recv(65536)
            assert piece, got
            got += piece

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leaves."""
        self._socket.close()


@pytest.mark.parametrize(
    ("does", "mode"),
    [
        ("gate=more", "json"),
        ("gate=more,0", "json"),
        ("gate=more", "stream"),
        ("gate=more,0", "stream"),
        ("gate=more,{middle}", "stream"),
    ],
)
def test_a_caller_that_leaves_cancels_the_upstream_call(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, does: str, mode: str
) -> None:
    upstream.script("bad", [at(does, spoken)])
    with Caller(krouter, caller, f"first-{spoken}", mode == "stream") as client:
        assert upstream.gate("more").reached.wait(30)
        if "{middle}" in does:
            client.read_until(PIECE.encode())
    assert upstream.requests[0].closed.wait(30), "the upstream call runs on"
    krouter.idle()
    assert calls(upstream) == ["a bad"]
    assert krouter.locks() == {}
    assert krouter.last_route["outcome"] == "caller gone"
    assert [step["row"] for step in steps(krouter)] == [1]


ENDS = {
    "chat": b'"finish_reason":"stop"',
    "messages": b'"message_stop"',
    "gemini": b'"finishReason":"STOP"',
    "responses": b'"response.completed"',
}


@pytest.mark.parametrize("spoken", ["chat", "messages", "responses"])
def test_a_caller_that_leaves_after_the_end_has_its_answer(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str
) -> None:
    upstream.script("bad", ["gate=more,99"])
    with Caller(krouter, caller, f"first-{spoken}", True) as client:
        client.read_until(ENDS[caller])
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    assert krouter.locks() == {}
