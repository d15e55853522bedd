"""What LiteLLM is known to do wrong, and that it does not happen here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY
from krouter_adapters.litellm_lane.ways import load_ways

from krouter.adapter import Unsendable, load_lanes
from krouter.dialects.base import Kind
from krouter.providers import Provider
from krouter.vocabulary import OTHER
from krouter.wire import WireError
from tests.adapters.lanes import FakeWire, ask, call, own, provider
from tests.adapters.test_litellm_lane import image
from tests.harness import Krouter
from tests.upstream import Upstream


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def _clean(up: Upstream) -> None:
    up.clear()


def targets(up: Upstream) -> dict[str, Provider]:
    """One provider for each kind of body."""
    return {
        "chat": own(chat=f"{up.url}/v1"),
        "messages": own(messages=up.url),
        "gemini": provider("gemini", f"{up.url}/v1beta"),
    }


PAIRS = [
    ("messages", "chat"),
    ("chat", "messages"),
    ("chat", "gemini"),
    ("messages", "gemini"),
]
pairs = pytest.mark.parametrize(("dialect", "body"), PAIRS, ids="-to-".join)


class TestSilentSuccess:
    """A 200 that is no reply was read as an empty answer."""

    @pairs
    @pytest.mark.parametrize("fault", ["garbage=html", "garbage=cut", "garbage=json"])
    def test_garbage_in_place_of_a_reply(
        self, up: Upstream, dialect: str, body: str, fault: str
    ) -> None:
        got = ask(call(dialect), targets(up)[body], fault)
        assert got.reading.kind is Kind.GARBAGE

    @pairs
    def test_an_error_in_place_of_a_reply(self, up: Upstream, dialect: str, body: str) -> None:
        got = ask(call(dialect), targets(up)[body], "error=json;message=no luck")
        assert got.reading.kind is Kind.ERROR
        assert b"no luck" in got.reading.error

    @pairs
    @pytest.mark.parametrize(
        "fault",
        ["garbage=html", "garbage=cut", "garbage=json", "garbage=none", "empty=events", "end=1",
         "end=2;half", "close=2", "reset=2", "no=finish", "no=finish,done", "error=json"],
    )  # fmt: skip
    def test_a_stream_without_its_end(
        self, up: Upstream, dialect: str, body: str, fault: str
    ) -> None:
        """None of them may end properly, whatever the events that did come."""
        with contextlib.suppress(WireError):
            got = ask(call(dialect, True), targets(up)[body], fault)
            assert not got.tracker.complete

    @pairs
    @pytest.mark.parametrize("after", [0, 2])
    def test_an_error_in_a_stream(self, up: Upstream, dialect: str, body: str, after: int) -> None:
        got = ask(call(dialect, True), targets(up)[body], f"error={after};message=no luck")
        assert b"no luck" in got.tracker.error
        assert not got.tracker.complete

    @pairs
    def test_an_empty_reply(self, up: Upstream, dialect: str, body: str) -> None:
        got = ask(call(dialect), targets(up)[body], "empty=text")
        assert got.reading.kind is Kind.EMPTY


@pytest.mark.parametrize("name", ["openai", "zai", "nvidia_nim", "azure", "gemini", "anthropic"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_hidden_retries(up: Upstream, name: str, status: int) -> None:
    base = {"gemini": f"{up.url}/v1beta", "anthropic": up.url}.get(name, f"{up.url}/v1")
    up.script("*", [f"status={status}"])
    for stream in (False, True):
        assert ask(call("chat", stream), provider(name, base)).status == status
    assert len(up.requests) == 2


@pytest.mark.parametrize("body", ["chat", "messages", "gemini"])
def test_lost_retry_after(up: Upstream, body: str) -> None:
    got = ask(call("chat"), targets(up)[body], "status=529;retry-after=7;header-x-own=1")
    assert (got.status, got.headers["retry-after"], got.headers["x-own"]) == (529, "7", "1")


LEAKS = """
import os, json
from krouter_adapters.litellm_lane.ways import load_ways
for way in load_ways().values():
    for name in way.env:
        os.environ[name] = "canary-" + name
for name in ("OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL", "OPENAI_API_BASE",
             "LITELLM_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
             "AWS_BEARER_TOKEN_BEDROCK", "AZURE_API_BASE",
             "GROQ_API_BASE", "DEEPSEEK_API_BASE", "ANTHROPIC_BASE_URL", "GEMINI_API_BASE"):
    os.environ[name] = "canary-" + name
os.environ["AWS_REGION"] = os.environ["AWS_REGION_NAME"] = "ca-nary-1"
from tests.adapters.lanes import FakeWire, ask, call, provider, AWS_KEY
from krouter.adapter import Unsendable, load_lanes
models = {"ragflow": "chat/1/m", "clarifai": "a.b.c", "vertex_ai": "gemini-x",
          "vertex_ai_beta": "gemini-x"}
for name, way in load_ways().items():
    if way.way == "classes":
        signed = name.startswith("sagemaker")
        secrets = (AWS_KEY,) if signed else ("own", None)
        for secret in (*secrets, AWS_KEY) if name == "bedrock" else secrets:
            wire = FakeWire(b"{}", status=500)
            base = "http://h.example/us-east-1"
            ask(call("chat"), provider(name, base), models.get(name, "m"), secret, wire)
            (sent,) = wire.sent
            assert "canary" not in repr(sent).replace("ca-nary", "canary"), (name, sent)
            assert "//h.example" in sent.url, (name, sent.url)
"""


def test_leaked_keys() -> None:
    """With every variable of every provider set, none is in any request to anyone."""
    done = subprocess.run([sys.executable, "-c", LEAKS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_dotenv_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=canary\n")
    code = (
        "import os; from krouter_adapters.litellm_lane.lane import LIBRARY; LIBRARY.get();"
        " assert 'OPENAI_API_KEY' not in os.environ"
    )
    env = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def document(text: str) -> dict[str, Any]:
    return {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": text},
    }


@pytest.mark.parametrize("body", ["chat", "gemini"])
def test_lost_documents(up: Upstream, body: str) -> None:
    said = [
        {"role": "user", "content": [document("the vault code"), {"type": "text", "text": "?"}]}
    ]
    got = ask(call("messages", messages=said), targets(up)[body])
    assert got.status == 200
    assert b"the vault code" in up.requests[0].body


@pytest.mark.parametrize("body", ["chat", "gemini"])
def test_lost_is_error(up: Upstream, body: str) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": "no such town",
        "is_error": True,
    }
    said = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    ask(call("messages", messages=said, tools=tools), targets(up)[body])
    sent = up.requests[0].body
    assert b"no such town" in sent
    assert b"error" in sent.lower()


class Downloads:
    """A server that counts who comes."""

    def __enter__(self) -> Downloads:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/image.png"
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def came(self) -> bool:
        try:
            self._socket.accept()
        except TimeoutError:
            return False
        return True


LINKED = [
    name
    for name, way in load_ways().items()
    if way.way == "classes" and way.body in ("gemini", "messages", "other")
]


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("name", LINKED)
def test_blocking_downloads(name: str, dialect: str) -> None:
    """A link in a request is fetched by nobody here."""
    with Downloads() as server:
        if dialect == "chat":
            said = image(server.url)
        else:
            picture = {"type": "image", "source": {"type": "url", "url": server.url}}
            said = [{"role": "user", "content": [picture, {"type": "text", "text": "?"}]}]
        model = "gemini-x" if name.startswith("vertex") else "m"
        wire = FakeWire(b"{}")
        dropped, refusal = (), ""
        try:
            dropped = ask(
                call(dialect, messages=said), provider(name, "http://h/v1"), model, wire=wire
            ).dropped
        except Unsendable as refused:
            refusal = str(refused)
        passed_on = bool(wire.sent) and server.url in json.dumps(wire.body)
        assert ["URLs must be" in refusal, "image" in dropped, passed_on].count(True) == 1
        assert not server.came()


@pytest.mark.parametrize("tail", ["a.pdf", "a.png"])
def test_a_link_that_anthropic_takes_is_passed_on(tail: str) -> None:
    url = f"https://files.invalid/{tail}"
    wire = FakeWire(b"{}")
    ask(call("chat", messages=image(url)), own(messages="http://h"), wire=wire)
    assert url in json.dumps(wire.body)


HEARTBEAT = """
import asyncio, time
from krouter_adapters.litellm_lane.ways import Aim
from krouter_adapters.litellm_lane.lane import LIBRARY

async def main():
    beats, longest, last = 0, 0.0, time.perf_counter()
    waiting = asyncio.ensure_future(LIBRARY.ready())
    while not waiting.done():
        await asyncio.sleep(0.005)
        now = time.perf_counter()
        beats, longest, last = beats + 1, max(longest, now - last), now
    library = waiting.result()
    for name in ("mistral", "cohere_chat", "ollama", "dashscope", "gigachat"):
        chat = {"messages": [{"role": "user", "content": "hello"}]}
        library.plan(Aim(name, "http://127.0.0.1:9", "other"), "m", chat, "key", False)
    print(beats, round(longest, 3))

asyncio.run(main())
"""


def test_the_loop_runs_on_while_litellm_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", HEARTBEAT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "LiteLLM or pydantic speaks to the user"
    beats, _ = done.stdout.split()
    assert int(beats) > 20


def test_whoever_asks_meanwhile_waits_and_one_that_leaves_harms_nobody() -> None:
    async def run() -> int:
        first, second = (asyncio.create_task(LIBRARY.ready()) for _ in range(2))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return id(await second)

    assert asyncio.run(run()) == id(LIBRARY.get())


CHAT_ONLY = '[provider.c]\nbase_urls = {{ chat = "{url}/v1" }}\nkey = "env:KEY"\n'
MESSAGES_ONLY = '[provider.m]\nbase_urls = {{ messages = "{url}" }}\nkey = "env:KEY"\n'


@pytest.fixture(scope="module")
def krouter(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    text = (CHAT_ONLY + MESSAGES_ONLY).format(url=up.url)
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, settings=text, env={"KEY": "secret"}) as served:
        yield served


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("to", ["c", "m"])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
class TestThePairings:
    """Callers of both dialects, providers of both, through the whole server."""

    def combo(self, krouter: Krouter, to: str, fault: str) -> str:
        krouter.forget()
        krouter.write_combo("both", {"models": [f"{to}/{fault}", f"{to}/good"]})
        krouter.served.house.refresh()
        return "both"

    def lane(self, dialect: str, to: str) -> str:
        return "native" if (dialect, to) in (("chat", "c"), ("messages", "m")) else "litellm"

    @pytest.mark.parametrize(
        ("fault", "row", "locked"),
        [
            ("status=429;retry-after=7", 8, True),
            ("status=529", 9, True),
            ("status=500", 10, False),
            ("status=400", 14, False),
            ("reset", 10, False),
            ("garbage=html", 10, False),
            ("error=0;status=529", None, None),
        ],
    )
    def test_a_failure_before_anything_has_come_falls_over(
        self,
        krouter: Krouter,
        dialect: str,
        to: str,
        stream: bool,
        fault: str,
        row: int | None,
        locked: bool | None,
    ) -> None:
        reply = krouter.ask(dialect, self.combo(krouter, to, fault), stream)
        assert reply.status_code == 200
        assert "All" in reply.text
        krouter.idle()
        first, second = [s for s in krouter.last_route["steps"] if s["step"] == "attempt"]
        assert first["lane"] == second["lane"] == self.lane(dialect, to)
        if row is not None:
            assert first["row"] == row
            assert (f"{to}/default/{fault}" in krouter.locks()) == locked

    @pytest.mark.parametrize("fault", ["reset=3", "end=3", "error=3", "no=finish,done"])
    def test_a_stream_that_breaks_ends_with_an_error(
        self, krouter: Krouter, dialect: str, to: str, stream: bool, fault: str
    ) -> None:
        if not stream:
            pytest.skip("a whole reply has no middle")
        reply = krouter.ask(dialect, self.combo(krouter, to, fault), True)
        assert reply.status_code == 200
        krouter.idle()
        assert '"error"' in reply.text
        assert "message_stop" not in reply.text
        assert '"finish_reason":"stop"' not in reply.text.replace(" ", "")
        assert krouter.last_route["outcome"] != "answered"

    def test_an_empty_reply_falls_over(
        self, krouter: Krouter, dialect: str, to: str, stream: bool
    ) -> None:
        if stream:
            pytest.skip("a stream is not looked into")
        reply = krouter.ask(dialect, self.combo(krouter, to, "empty=text"))
        assert "All is well" in reply.text
        first = krouter.last_route["steps"][0]
        assert first["row"] == 15

    def test_the_last_error_comes_back(
        self, krouter: Krouter, dialect: str, to: str, stream: bool
    ) -> None:
        krouter.forget()
        reply = krouter.ask(dialect, f"{to}/status=429;retry-after=7;message=slow%20down", stream)
        assert reply.status_code == 429
        assert reply.headers["retry-after"] == "7"
        assert "slow down" in reply.json()["error"]["message"]
        if dialect == "messages":
            assert reply.json()["error"]["type"] == "rate_limit_error"

    def test_usage_is_counted(self, krouter: Krouter, dialect: str, to: str, stream: bool) -> None:
        krouter.forget()
        krouter.ask(dialect, f"{to}/usage=30,4", stream)
        krouter.idle()
        usage = krouter.last_route["usage"]
        assert (usage["input"], usage["output"]) == (30, 4)


def test_what_was_dropped_is_in_the_header_and_the_route(krouter: Krouter) -> None:
    krouter.forget()
    reply = krouter.chat("m/good", seed=1, logprobs=True)
    assert reply.headers["x-krouter-dropped"] == "seed, logprobs"
    route = krouter.last_route
    assert route["dropped"] == ["seed", "logprobs"]
    assert route["steps"][0]["dropped"] == ["seed", "logprobs"]


def test_a_long_list_of_what_was_dropped_fits_into_a_header(krouter: Krouter) -> None:
    krouter.forget()
    reply = krouter.messages("c/good", **{f"field_{n}": n for n in range(3000)})
    told = reply.headers["x-krouter-dropped"]
    assert len(told) <= 1020
    assert told.startswith("field_0, field_1, ")
    kept = told.count("field_")
    assert told.endswith(f"and {3000 - kept} more")
    assert krouter.last_route["dropped"] == [OTHER]


def test_a_request_that_cannot_be_carried_goes_to_the_next_entry(
    up: Upstream, tmp_path: Path
) -> None:
    text = CHAT_ONLY.format(url=up.url) + (
        f'[provider.gemini]\nspeaks = ["gemini"]\nbase_url = "{up.url}"\nkey = "env:KEY"\n'
    )
    combos = {"two": {"models": ["gemini/g", "c/good"]}}
    said = image("https://files.invalid/a.png")
    with Krouter(tmp_path, combos=combos, settings=text, env={"KEY": "secret"}) as served:
        reply = served.chat("two", messages=said)
        assert reply.headers["x-krouter-model"] == "c/good"
        first = served.last_route["steps"][0]
        assert (first["row"], first["lock"]) == (14, None)
        assert served.locks() == {}
        direct = served.chat("gemini/g", messages=said)
        assert direct.status_code == 400
        assert "image URLs must be data URIs" in direct.json()["error"]["message"]


def test_a_name_that_cannot_be_reached_says_why(krouter: Krouter) -> None:
    reply = krouter.chat("deepgram/nova")
    assert reply.status_code == 501
    assert "Speech recognition only" in reply.json()["error"]["message"]


def test_a_name_without_an_address_says_what_to_give(krouter: Krouter) -> None:
    reply = krouter.chat("azure/gpt")
    assert reply.status_code == 503
    assert "give [provider.azure] a base_url" in reply.json()["error"]["message"]


def test_a_pdf_reaches_gemini(up: Upstream) -> None:
    data = base64.b64encode(b"%PDF-1.4 x").decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    said = [{"role": "user", "content": [{"type": "document", "source": source}]}]
    got = ask(call("messages", messages=said), targets(up)["gemini"])
    assert got.status == 200
    assert data.encode() in up.requests[0].body


def test_the_library_is_loaded_once() -> None:
    assert LIBRARY.get() is LIBRARY.get()


class Waiting:
    """A lane that counts how often it is told to get ready."""

    name = "waiting"

    def __init__(self) -> None:
        self.calls = 0

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return provider.name == "cohere_chat" or (provider.name == "groq" and dialect == "messages")

    async def ready(self) -> None: ...

    async def send(self, call: Any, target: Any, wire: Any) -> Any:
        raise NotImplementedError

    def warm_up(self) -> None:
        self.calls += 1


@pytest.mark.parametrize(
    ("models", "settings", "env", "calls"),
    [
        (["cohere_chat/c"], "", {"CO_API_KEY": "k"}, 1),
        (["cohere_chat/c"], "", {}, 0),
        (["groq/g"], "", {"GROQ_API_KEY": "k"}, 0),
        (["demo/a"], '[aliases]\n"x" = "cohere_chat/c"\n', {"CO_API_KEY": "k"}, 1),
    ],
    ids=["entry", "no account", "spoken natively", "alias"],
)
def test_it_is_loaded_after_start_where_an_entry_needs_it(
    tmp_path: Path, models: list[str], settings: str, env: dict[str, str], calls: int
) -> None:
    lane = Waiting()
    demo, native, _ = load_lanes()
    with Krouter(
        tmp_path,
        combos={"one": {"models": models}},
        settings=settings,
        env=env,
        edges={"lanes": (demo, native, lane)},
    ) as served:
        before = lane.calls
        served.served.house.warm_up()
        assert lane.calls - before == calls
