"""Many wrong keys slow down who sends them, and nobody else."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import httpx
import pytest

from krouter.keys import add_key
from krouter.serve.strangers import (
    AT_ONCE,
    HOLD_SECONDS,
    MOST_HELD,
    MOST_SENDERS,
    STEP_SECONDS,
    Proxies,
    Strangers,
    sender_of,
)
from tests.harness import Clock, Krouter

BODY = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
CHAT = "/v1/chat/completions"


class Held:
    """Answers that are held back until they are let go."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.go = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.go.wait()


def test_a_sender_may_present_some_and_then_one_at_a_time() -> None:
    clock = Clock()
    strangers = Strangers(clock)
    assert [strangers.note("a") for _ in range(AT_ONCE)] == [0] * AT_ONCE
    assert strangers.note("a") == STEP_SECONDS
    assert strangers.note("b") == 0
    clock.forward(STEP_SECONDS)
    assert strangers.note("a") == 0
    assert strangers.note("a") == STEP_SECONDS
    clock.forward(STEP_SECONDS * AT_ONCE)
    assert [strangers.note("a") for _ in range(AT_ONCE)] == [0] * AT_ONCE


def test_as_many_senders_as_there_are_take_no_more_room() -> None:
    strangers = Strangers(Clock())
    for number in range(MOST_SENDERS * 2):
        strangers.note(str(number))
    assert len(strangers) == MOST_SENDERS


@pytest.mark.parametrize(
    ("client", "sender"),
    [
        (("127.0.0.2", 5), "127.0.0.2"),
        (("::ffff:10.0.0.1", 5), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5), "fe80::/64"),
        (("x" * 99, 5), "x" * 64),
        (None, ""),
    ],
)
def test_a_sender_is_an_address(client: object, sender: str) -> None:
    assert sender_of({"client": client, "headers": []}, Proxies()) == sender


def test_only_so_many_answers_are_held_back() -> None:
    async def main() -> None:
        held = Held()
        strangers = Strangers(Clock(), held)
        tasks = [asyncio.create_task(strangers.hold()) for _ in range(MOST_HELD)]
        while not strangers.is_full:
            await asyncio.sleep(0)
        await strangers.hold()
        assert held.seconds == [HOLD_SECONDS] * MOST_HELD
        held.go.set()
        await asyncio.wait(tasks)
        assert not strangers.is_full

    asyncio.run(main())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def client(krouter: Krouter, address: str, **headers: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(
        local_address=address,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    )
    return httpx.AsyncClient(base_url=krouter.url, transport=transport, headers=headers, timeout=60)


async def ask(client: httpx.AsyncClient, key: str) -> httpx.Response:
    return await client.post(CHAT, json=BODY, headers={"authorization": f"Bearer {key}"})


def test_64_wrong_keys_slow_down_their_sender_alone(home: Path) -> None:
    key = add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:
        clock, held = Clock(), Held()
        krouter.served.app.guard.strangers = Strangers(clock, held)

        async def main() -> None:
            async with client(krouter, "127.0.0.2") as bad, client(krouter, "127.0.0.1") as good:
                wrong = [asyncio.create_task(ask(bad, f"kr-{n}")) for n in range(64)]
                for number in itertools.count():
                    assert (await ask(good, key)).status_code == 200
                    if len(held.seconds) == 64 - AT_ONCE:
                        break
                    assert number < 1000, "the answers are not held back"
                # A good key from the same address, and a wrong one from another.
                assert (await ask(bad, key)).status_code == 200
                assert (await ask(good, "kr-wrong")).status_code == 401
                assert sum(each.done() for each in wrong) <= AT_ONCE
                krouter.loop.call_soon_threadsafe(held.go.set)
                replies = await asyncio.gather(*wrong)
                assert Counter(each.status_code for each in replies) == {
                    401: AT_ONCE,
                    429: 64 - AT_ONCE,
                }
                for reply in replies:
                    if reply.status_code == 429:
                        assert reply.headers["retry-after"] == str(int(STEP_SECONDS))
                        assert reply.headers["x-should-retry"] == "false"
                        assert reply.json()["error"]["code"] == "rate_limit_exceeded"
                clock.forward(STEP_SECONDS * AT_ONCE)
                assert (await ask(bad, "kr-wrong")).status_code == 401

        asyncio.run(main())


def test_every_path_counts_and_each_answers_in_its_dialect(home: Path) -> None:
    key = add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:

        async def at_once(seconds: float) -> None:
            """Holds nothing back."""

        krouter.served.app.guard.strangers = Strangers(Clock(), at_once)
        wrong = {"x-api-key": "kr-wrong"}
        paths = ("/v1/models", "/api/routes", "/metrics", "/v1beta/models")
        for path in paths * (AT_ONCE // len(paths)):
            assert krouter.http.get(path, headers=wrong).status_code == 401
        for path in paths:
            assert krouter.http.get(path, headers=wrong).status_code == 429
        told = krouter.http.post("/v1/messages", json=BODY, headers=wrong)
        assert (told.status_code, told.json()["error"]["type"]) == (429, "rate_limit_error")
        google = krouter.http.get("/v1beta/models", params={"key": "wrong"})
        assert google.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
        assert krouter.http.get("/v1/models", headers={"x-api-key": key}).status_code == 200
        assert krouter.http.get("/v1/models").status_code == 401  # none is no wrong one
        assert krouter.http.get("/health", headers=wrong).status_code == 200


@pytest.mark.parametrize(
    ("allowed", "client", "forwarded", "sender"),
    [
        ("", "127.0.0.1", ["203.0.113.7"], "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", [" , "], "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", "127.0.0.1", ["made-up, 203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", "127.0.0.1", ["made-up", "203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", "127.0.0.1", ["203.0.113.7:5000"], "203.0.113.7"),
        ("127.0.0.1", "127.0.0.1", ["[2001:db8:1:2::3]:5000"], "2001:db8:1:2::/64"),
        ("127.0.0.1", "127.0.0.1", ["2001:db8:1:2::3"], "2001:db8:1:2::/64"),
        ("127.0.0.1", "127.0.0.1", ["unknown"], "unknown"),
        ("127.0.0.1", "::ffff:127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", "10.0.0.1", ["203.0.113.7"], "10.0.0.1"),
        ("::1, 10.0.0.0/8", "10.2.3.4", ["made-up, 203.0.113.7, 10.9.9.9"], "203.0.113.7"),
        ("10.0.0.0/8", "10.2.3.4", ["10.1.1.1, 10.9.9.9"], "10.1.1.1"),
        ("a-proxy", "127.0.0.1", ["203.0.113.7"], "127.0.0.1"),
        ("*", "10.0.0.1", ["made-up, 203.0.113.7"], "203.0.113.7"),
    ],
)
def test_a_proxy_names_the_sender_where_it_is_believed(
    allowed: str, client: str, forwarded: list[str], sender: str
) -> None:
    headers = [(b"x-a", b"b"), *((b"x-forwarded-for", each.encode()) for each in forwarded)]
    scope = {"client": (client, 5), "headers": headers}
    assert sender_of(scope, Proxies.read(allowed)) == sender


@pytest.mark.parametrize(("allowed", "last"), [("", 429), ("127.0.0.1", 401)])
def test_nobody_is_believed_unless_the_environment_says_so(
    home: Path, allowed: str, last: int
) -> None:
    add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home, env={"FORWARDED_ALLOW_IPS": allowed}) as krouter:

        def status(number: int) -> int:
            headers = {"x-api-key": "kr-wrong", "x-forwarded-for": f"203.0.113.{number}"}
            return krouter.http.get("/v1/models", headers=headers).status_code

        assert [status(number) for number in range(AT_ONCE)] == [401] * AT_ONCE
        assert status(AT_ONCE) == last


def test_beyond_what_is_held_back_the_connection_is_closed(home: Path) -> None:
    add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:
        held = Held()
        strangers = krouter.served.app.guard.strangers = Strangers(Clock(), held)

        async def main() -> None:
            async with client(krouter, "127.0.0.2") as bad:
                for _ in range(AT_ONCE):
                    await ask(bad, "kr-wrong")
                waiting = [asyncio.create_task(ask(bad, "kr-x")) for _ in range(MOST_HELD)]
                async with client(krouter, "127.0.0.1") as good:
                    while not strangers.is_full:
                        await good.get("/health")
                last = await ask(bad, "kr-x")
                assert last.status_code == 429
                assert last.headers["connection"] == "close"
                krouter.loop.call_soon_threadsafe(held.go.set)
                assert {each.status_code for each in await asyncio.gather(*waiting)} == {429}

        asyncio.run(main())
