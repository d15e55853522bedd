"""The error table, row by row, on real sockets: calls made, the caller's reply, locks."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from krouter.dialects import get
from krouter.wire import HttpWire
from tests.harness import Krouter, nowhere, params_of, provider_settings
from tests.upstream import Upstream

DAY = 86_400.0
HOUR = 3_600.0
SAID = "The provider's very own words."
ONE = ("one-a bad",)
BOTH = ("one-a bad", "one-b bad")
NO_WAIT = "never"
DIALECTS = ("chat", "messages", "responses")


class Row(NamedTuple):
    """A fault of the first provider, whose two accounts share it, and what must follow.

    `does` is in the upstream's words. `wait` is Retry-After, NO_WAIT for `x-should-retry: false`,
    or None for neither; `lock` in seconds, on `scope`.
    """

    name: str
    does: str
    number: int
    reason: str
    calls: tuple[str, ...]
    status: int
    chat: str
    messages: str
    message: str = SAID
    wait: int | str | None = None
    lock: float | None = None
    scope: str = "bad"
    seen: str = ""
    only: str = ""
    returned: bool = False
    timed: bool = False
    accounts: str = ""


def says(does: str, message: str = SAID) -> str:
    return f"{does};message={quote(message)}"


INVALID = "invalid_request_error"
CUT = "The provider's reply was cut short."
UNREADABLE = "The provider's reply could not be read."
SERVER = ("server_error", "api_error")

ROWS = (
    Row("413", says("status=413"), 3, "too large", ONE, 413, INVALID, "request_too_large",
        returned=True),
    Row("length-code", says("status=400;code=context_length_exceeded"), 3, "too large", ONE, 400,
        INVALID, INVALID, returned=True),
    Row("length-words", says("status=400", "prompt is too long: 9 tokens > 8 maximum"), 3,
        "too large", ONE, 400, INVALID, INVALID, "prompt is too long: 9 tokens > 8 maximum",
        returned=True),
    Row("barred", says("status=403", "Your account has been suspended."), 5, "account barred",
        BOTH, 403, "permission_error", "permission_error", "Your account has been suspended.",
        NO_WAIT, DAY, "*"),
    Row("402", says("status=402"), 6, "quota spent", BOTH, 402, "insufficient_quota",
        "billing_error", wait=NO_WAIT, lock=HOUR, scope="*"),
    Row("monthly", says("status=429", "Monthly limit reached"), 6, "quota spent", BOTH, 429,
        "rate_limit_error", "rate_limit_error", "Monthly limit reached", NO_WAIT, HOUR, "*"),
    Row("far-429", says("status=429;retry-after=7200"), 6, "quota spent", BOTH, 429,
        "rate_limit_error", "rate_limit_error", wait=NO_WAIT, lock=2 * HOUR, scope="*"),
    Row("401", says("status=401"), 7, "not signed in", BOTH, 401, INVALID,
        "authentication_error", wait=NO_WAIT, lock=120, scope="*"),
    Row("403", says("status=403"), 7, "not signed in", BOTH, 403, "permission_error",
        "permission_error", wait=NO_WAIT, lock=120, scope="*"),
    Row("429", says("status=429"), 8, "rate limited", BOTH, 429, "rate_limit_error",
        "rate_limit_error", wait=2, lock=2),
    Row("429-stated", says("status=429;retry-after=7"), 8, "rate limited", BOTH, 429,
        "rate_limit_error", "rate_limit_error", wait=7, lock=7),
    Row("429-long", says("status=429;retry-after=300"), 8, "rate limited", BOTH, 429,
        "rate_limit_error", "rate_limit_error", wait=NO_WAIT, lock=300),
    Row("529", says("status=529"), 9, "overloaded", BOTH, 529, SERVER[0], "overloaded_error",
        wait=2, lock=2),
    Row("503", says("status=503"), 9, "overloaded", BOTH, 503, *SERVER, wait=2, lock=2),
    Row("500-capacity", says("status=500", "No capacity left"), 9, "overloaded", BOTH, 500,
        *SERVER, "No capacity left", 2, 2),
    Row("500", says("status=500"), 10, "server error", BOTH, 500, *SERVER, wait=1),
    Row("504", says("status=504"), 10, "server error", BOTH, 504, SERVER[0], "timeout_error",
        wait=1),
    Row("redirect", "status=302;body=;header-location=http://127.0.0.1:1/", 10, "server error",
        BOTH, 502, *SERVER, "The provider redirects (status 302): its base_url is another.",
        wait=1),
    Row("reset-before-headers", "reset", 10, "server error", BOTH, 502, *SERVER,
        "The provider closed the connection before it had answered.", wait=1, seen="-"),
    Row("closed-before-headers", "close", 10, "server error", BOTH, 502, *SERVER,
        "The provider closed the connection before it had answered.", wait=1, seen="-"),
    Row("silent", "stall", 11, "timed out", ONE, 504, SERVER[0], "timeout_error",
        "The provider did not answer in time.", 2, 2, seen="-", timed=True),
    Row("refused", says("status=400;code=content_filter"), 12, "refused", ONE, 400, INVALID,
        INVALID),
    Row("400", says("status=400"), 14, "bad request", ONE, 400, INVALID, INVALID),
    Row("404", says("status=404"), 4, "model gone", ONE, 404, INVALID, "not_found_error",
        wait=NO_WAIT, lock=HOUR / 2, accounts="*"),
    Row("422", says("status=422"), 14, "bad request", ONE, 422, INVALID, INVALID),
    Row("error-inside-200", says("error=json;status=529"), 10, "server error", BOTH, 502,
        *SERVER, wait=1, seen="-"),
    Row("rate-limit-inside-200", says("error=json;status=429"), 10, "server error", BOTH, 502,
        *SERVER, wait=1, seen="-"),
    Row("html", "garbage=html", 10, "server error", BOTH, 502, *SERVER, "", wait=1, seen="-"),
    Row("text", "garbage=text", 10, "server error", BOTH, 502, *SERVER, "", wait=1, seen="-"),
    Row("other-json", "garbage=json", 10, "server error", BOTH, 502, *SERVER, "", wait=1,
        seen="-"),
    Row("no-bytes", "garbage=none", 10, "server error", BOTH, 502, *SERVER, "", wait=1,
        seen="-"),
    Row("cut-json", "garbage=cut", 10, "server error", BOTH, 502, *SERVER, "", wait=1, seen="-"),
    # A JSON reply counts as two events.
    Row("body-reset", "reset=1", 10, "server error", BOTH, 502, *SERVER, CUT, wait=1, seen="-",
        only="json"),
    Row("body-closed", "close=1", 10, "server error", BOTH, 502, *SERVER, CUT, wait=1, seen="-",
        only="json"),
    Row("body-short", "end=1", 10, "server error", BOTH, 502, *SERVER, UNREADABLE, wait=1,
        seen="-", only="json"),
    Row("body-stalls", "stall=1", 11, "timed out", ONE, 504, SERVER[0], "timeout_error",
        "The provider did not answer in time.", 2, 2, seen="-", only="json", timed=True),
    Row("error-event-first", says("error=0;status=529;type=overloaded_error"), 9, "overloaded",
        BOTH, 529, "overloaded_error", "overloaded_error", wait=2, lock=2, only="stream"),
    Row("bad-request-event-first", says(f"error=0;status=400;type={INVALID}"), 14, "bad request",
        ONE, 400, INVALID, INVALID, only="stream"),
    Row("end-before-any-event", "empty=events", 10, "server error", BOTH, 502, *SERVER, CUT,
        wait=1, seen="-", only="stream"),
    Row("only-comments", "empty=comments", 10, "server error", BOTH, 502, *SERVER, CUT, wait=1,
        seen="-", only="stream"),
    Row("reset-after-headers", "reset=0", 10, "server error", BOTH, 502, *SERVER, CUT, wait=1,
        seen="-", only="stream"),
    Row("half-an-event", "close=0;half", 10, "server error", BOTH, 502, *SERVER, CUT, wait=1,
        seen="-", only="stream"),
    Row("half-an-event-ended", "end=0;half", 10, "server error", BOTH, 502, *SERVER, CUT, wait=1,
        seen="-", only="stream"),
    Row("silent-after-headers", "stall=0", 11, "timed out", ONE, 504, SERVER[0], "timeout_error",
        "The provider did not answer in time.", 2, 2, seen="-", only="stream", timed=True),
)  # fmt: skip

EMPTY = ("missing", "list", "text", "null")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a b", two="x")
    with Krouter(
        tmp_path_factory.mktemp("home"), combos=combos_for("one/bad"), settings=settings, env=env
    ) as krouter:
        yield krouter


@pytest.fixture(scope="module")
def timed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    """One whose limits are reached."""
    settings, env = provider_settings(upstream.url, one="a b", two="x")
    combos = combos_for({"model": "one/bad", "timeouts": {"firstByte": 0.2, "attempt": 0.2}})
    home = tmp_path_factory.mktemp("timed")
    with Krouter(home, combos=combos, settings=settings, env=env, leaps=upstream) as krouter:
        yield krouter


def combos_for(bad: Any) -> dict[str, Any]:
    return {
        "first": {"models": [bad, "two/good"]},
        "only": {"models": [bad]},
        "last": {"models": ["two/unfit", bad]},
    }


@pytest.fixture
def krouter(request: pytest.FixtureRequest, upstream: Upstream) -> Krouter:
    upstream.clear()
    upstream.script("unfit", ["status=400;message=unfit"])
    row = params_of(request).get("row")
    served: Krouter = request.getfixturevalue("timed" if row and row.timed else "served")
    served.forget()
    return served


def is_stream(mode: str) -> bool:
    return mode == "stream"


def calls(upstream: Upstream) -> tuple[str, ...]:
    return tuple(f"{request.credential} {request.model}" for request in upstream.requests)


def expected_locks(row: Row) -> dict[str, tuple[int, float]]:
    if row.lock is None:
        return {}
    accounts = [call.split()[0].removeprefix("one-") for call in row.calls]
    accounts = tuple(row.accounts) or accounts
    return {f"one/{account}/{row.scope}": (row.number, row.lock) for account in accounts}


def tried(row: Row) -> str:
    return f"one/bad: {row.seen or row.does.partition('status=')[2][:3]}, {row.reason}"


def waiting(reply: httpx.Response) -> int | str | None:
    stated, retry = reply.headers.get("retry-after"), reply.headers.get("x-should-retry")
    assert not (stated and retry)
    if retry is not None:
        assert retry == "false"
        return NO_WAIT
    return None if stated is None else int(stated)


def cases() -> Iterator[Any]:
    for row in ROWS:
        for dialect in DIALECTS:
            for mode in ("json", "stream"):
                if row.only in ("", mode):
                    yield pytest.param(row, dialect, mode, id=f"{row.name}-{dialect}-{mode}")


@pytest.mark.parametrize(("row", "dialect", "mode"), list(cases()))
def test_fault_in_the_first_entry(
    krouter: Krouter, upstream: Upstream, row: Row, dialect: str, mode: str
) -> None:
    upstream.script("bad", [row.does])
    reply = krouter.ask(dialect, "first", is_stream(mode))

    following = () if row.returned else ("two-x good",)
    assert calls(upstream) == (*row.calls, *following)
    assert krouter.locks() == expected_locks(row)
    assert reply.headers["x-krouter-tried"] == tried(row)
    assert reply.headers["x-krouter-attempts"] == str(len(row.calls) + len(following))
    if row.returned:
        assert_error(reply, row, dialect)
    else:
        assert reply.status_code == 200
        assert reply.headers["x-krouter-model"] == "two/good"
        assert waiting(reply) is None
        assert_whole(reply, dialect, mode)
    attempts = [step for step in krouter.last_route["steps"] if step["step"] == "attempt"]
    assert [step["row"] for step in attempts[: len(row.calls)]] == [row.number] * len(row.calls)


@pytest.mark.parametrize("place", ["only", "last"])
@pytest.mark.parametrize(("row", "dialect", "mode"), list(cases()))
def test_fault_in_the_last_entry(
    krouter: Krouter, upstream: Upstream, row: Row, dialect: str, mode: str, place: str
) -> None:
    upstream.script("bad", [row.does])
    reply = krouter.ask(dialect, place, is_stream(mode))

    before = ("two-x unfit",) if place == "last" else ()
    assert calls(upstream) == (*before, *row.calls)
    assert krouter.locks() == expected_locks(row)
    trail = "two/unfit: 400, bad request; " if before else ""
    assert reply.headers["x-krouter-tried"] == trail + tried(row)
    assert reply.headers["x-krouter-attempts"] == str(len(before) + len(row.calls))
    assert_error(reply, row, dialect)


def assert_error(reply: httpx.Response, row: Row, dialect: str) -> None:
    assert reply.status_code == row.status
    assert reply.headers["content-type"] == "application/json"
    assert "x-krouter-model" not in reply.headers
    body = reply.json()
    error = body["error"]
    assert error["type"] == (row.messages if dialect == "messages" else row.chat)
    assert body.get("type") == ("error" if dialect == "messages" else None)
    assert error["message"].startswith(row.message.rstrip("."))
    assert error["krouter_tried"] == reply.headers["x-krouter-tried"]
    assert error["krouter_route"] == reply.headers["x-krouter-route"]
    assert waiting(reply) == row.wait


LAST = {
    "chat": "[DONE]",
    "messages": "event: message_stop",
    "responses": "event: response.completed",
}


def assert_whole(reply: httpx.Response, dialect: str, mode: str) -> None:
    if is_stream(mode):
        assert LAST[dialect] in reply.text
        assert '"error":{' not in reply.text
    elif dialect == "chat":
        assert reply.json()["choices"][0]["message"]["content"]
    else:
        whole = reply.json()
        message = whole if dialect == "messages" else whole["output"][0]
        assert message["content"][0]["text"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", EMPTY)
def test_row_15_an_empty_reply_goes_to_the_next_entry(
    krouter: Krouter, upstream: Upstream, kind: str, dialect: str
) -> None:
    upstream.script("bad", [f"empty={kind}"])
    reply = krouter.ask(dialect, "first")
    assert calls(upstream) == ("one-a bad", "two-x good")
    assert reply.headers["x-krouter-model"] == "two/good"
    assert reply.headers["x-krouter-tried"] == "one/bad: -, empty reply"
    assert krouter.last_route["steps"][0]["row"] == 15
    assert krouter.locks() == {}


@pytest.mark.native_garbage("an empty reply does not say why it ended")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", ["only", "last"])
@pytest.mark.parametrize("kind", EMPTY)
def test_row_15_the_last_entrys_empty_reply_is_passed_on(
    krouter: Krouter, upstream: Upstream, kind: str, place: str, dialect: str
) -> None:
    upstream.script("bad", [f"empty={kind}"])
    reply = krouter.ask(dialect, place)
    assert calls(upstream)[-1:] == ("one-a bad",)
    assert reply.status_code == 200
    assert reply.headers["x-krouter-model"] == "one/bad"
    assert reply.json()["x_upstream"] == {"kept": True}
    assert krouter.locks() == {}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("does", ["empty=done", "thinking=only", "tool=look"])
def test_a_reply_without_text_can_be_an_answer(
    krouter: Krouter, upstream: Upstream, does: str, dialect: str
) -> None:
    upstream.script("bad", [does])
    assert krouter.ask(dialect, "first").headers["x-krouter-model"] == "one/bad"
    assert calls(upstream) == ("one-a bad",)


@pytest.mark.native_garbage("an empty reply does not say why it ended")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", [*EMPTY, "done"])
def test_a_stream_is_not_inspected_for_emptiness(
    krouter: Krouter, upstream: Upstream, kind: str, dialect: str
) -> None:
    upstream.script("bad", [f"empty={kind}"])
    reply = krouter.ask(dialect, "first", True)
    assert reply.status_code == 200
    assert calls(upstream) == ("one-a bad",)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mode", ["json", "stream"])
@pytest.mark.parametrize("does", ["gate=never", "gate=never,1"])
def test_row_1_the_caller_leaves(
    krouter: Krouter, upstream: Upstream, dialect: str, mode: str, does: str
) -> None:
    upstream.script("bad", [does])
    (path,) = get(dialect).paths
    said = [{"role": "user", "content": "hello"}]
    call = {"model": "first", "messages": said, "input": said, "stream": is_stream(mode)}
    body = json.dumps(call).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    address = httpx.URL(krouter.url)
    with socket.create_connection((address.host, address.port or 80)) as caller:
        caller.sendall(head.encode() + body)
        assert upstream.gate("never").reached.wait(30)
        if is_stream(mode) and "," in does:
            assert caller.recv(10)
    assert upstream.requests[0].closed.wait(30)
    krouter.idle()
    assert calls(upstream) == ("one-a bad",)
    assert krouter.locks() == {}
    assert krouter.last_route["outcome"] == "caller gone"
    assert krouter.last_route["steps"][0]["row"] == 1


@pytest.fixture(scope="module")
def plain_server() -> Iterator[str]:
    """Answers every connection in words that are no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mode", ["json", "stream"])
@pytest.mark.parametrize("fault", ["refused", "dns", "tls"])
def test_row_10_no_connection(
    tmp_path: Path, upstream: Upstream, plain_server: str, dialect: str, mode: str, fault: str
) -> None:
    upstream.clear()
    places = {"refused": "http://127.0.0.1:1", "dns": "http://no.such.host.invalid"}
    settings, env = provider_settings(places.get(fault, plain_server), one="a b")
    more, env_two = provider_settings(upstream.url, two="x")
    combos = {"first": {"models": ["one/bad", "two/good"]}, "only": {"models": ["one/bad"]}}
    edges = {"wire": HttpWire(nowhere)} if fault == "dns" else {}
    home = Krouter(
        tmp_path, combos=combos, settings=settings + more, env=env | env_two, edges=edges
    )
    with home as krouter:
        reply = krouter.ask(dialect, "first", is_stream(mode))
        assert reply.headers["x-krouter-model"] == "two/good"
        assert reply.headers["x-krouter-attempts"] == "3"
        assert krouter.locks() == {}
        reply = krouter.ask(dialect, "only", is_stream(mode))
        assert (reply.status_code, waiting(reply)) == (502, 2)
        assert krouter.locks() == {"one/a/bad": (10, 2.0), "one/b/bad": (10, 2.0)}
