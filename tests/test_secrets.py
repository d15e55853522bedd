from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from krouter.secrets import COMMAND_PAUSE, EXPIRY_LEAD, SecretError, SecretRef, Secrets


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Runner:
    """Answers commands with a number that counts its runs."""

    def __init__(self, status: int = 0, raises: Exception | None = None) -> None:
        self.runs = 0
        self.status = status
        self.raises = raises

    async def __call__(self, command: str, env: Mapping[str, str]) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        self.runs += 1
        if self.raises:
            raise self.raises
        return self.status, f" secret-{self.runs}\n".encode()


def reveal(secrets: Secrets, ref: str) -> str:
    return asyncio.run(secrets.reveal(ref))


def mend(secrets: Secrets) -> None:
    asyncio.run(secrets.mend())


def test_parse() -> None:
    assert SecretRef.parse("env:A") == SecretRef("env", "A")
    with pytest.raises(SecretError) as caught:
        SecretRef.parse("sk-hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_variable_is_stripped() -> None:
    assert reveal(Secrets({"A": " x\n"}), "env:A") == "x"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, "the environment variable A is not set"),
        ({"A": " "}, "the environment variable A is empty"),
        ({"A": "hunter2\nhunter3"}, "more than one line"),
        ({"A": "hunter2…"}, "plain characters"),
    ],
)
def test_a_bad_variable_is_named_and_not_shown(env: dict[str, str], says: str) -> None:
    secrets = Secrets(env)
    with pytest.raises(SecretError, match=says) as caught:
        reveal(secrets, "env:A")
    assert "hunter" not in str(caught.value)
    assert secrets.present("env:A") == str(caught.value)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("one\n")
    secrets = Secrets({}, folder=tmp_path)
    assert reveal(secrets, "file:key") == "one"
    path.write_text("two\n")
    os.utime(path, ns=(1, 1))
    assert reveal(secrets, f"file:{path}") == "two"


def test_the_home_of_a_file_is_that_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("one")
    assert reveal(Secrets({"HOME": str(tmp_path)}), "file:~/key") == "one"


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("one")
    secrets = Secrets({"A": "x"}, folder=tmp_path)
    assert not secrets.has_changed("file:key")  # nobody has used it
    reveal(secrets, "file:key")
    assert not secrets.has_changed("file:key")
    path.write_text("other")
    assert secrets.has_changed("file:key")
    path.unlink()
    assert not any(map(secrets.has_changed, ("file:key", "env:A", "command:x")))


@pytest.mark.parametrize("name", ["none", "."])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str) -> None:
    secrets = Secrets({}, folder=tmp_path)
    with pytest.raises(SecretError, match="cannot be read"):
        reveal(secrets, f"file:{name}")
    assert str(tmp_path) in (secrets.present(f"file:{name}") or "")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(SecretError, match="not text"):
        reveal(Secrets({}, folder=tmp_path), "file:key")


def test_a_command_is_kept_for_five_minutes_and_renewed_while_nobody_waits() -> None:
    clock, run = Clock(), Runner()
    secrets = Secrets({}, run, clock=clock)
    found = []
    for at in (0, 299, 300, 301):
        clock.now = at
        found.append(reveal(secrets, "command:op read x"))
        mend(secrets)
    assert found == ["secret-1", "secret-1", "secret-1", "secret-2"]
    secrets.forget("command:op read x")
    assert reveal(secrets, "command:op read x") == "secret-3"


def test_what_nobody_has_renewed_for_long_is_waited_for() -> None:
    clock, run = Clock(), Runner()
    secrets = Secrets({}, run, clock=clock)
    reveal(secrets, "command:x")
    clock.now = 10_000
    assert reveal(secrets, "command:x") == "secret-2"
    clock.now = 20_000
    mend(secrets)
    assert run.runs == 2  # nobody has used it since


class Tokens(Runner):
    """Prints a token that expires `lives` seconds after `clock`, as JSON."""

    def __init__(self, clock: Clock, lives: float) -> None:
        super().__init__()
        self.clock, self.lives = clock, lives

    async def __call__(self, command: str, env: Mapping[str, str]) -> tuple[int, bytes]:
        self.runs += 1
        told = {"access_token": f"token-{self.runs}", "expires_at": self.clock.now + self.lives}
        return 0, json.dumps(told, indent=2).encode()


def test_a_command_is_run_again_before_its_token_expires() -> None:
    clock = Clock()
    clock.now = 1_000_000.0
    run = Tokens(clock, EXPIRY_LEAD + 100)
    secrets = Secrets({}, run, clock=clock, now=clock)
    tokens = []
    for _ in range(4):
        tokens.append(reveal(secrets, "command:x"))
        mend(secrets)
        clock.now += 60
    assert tokens == ["token-1", "token-1", "token-1", "token-2"]


def test_a_command_whose_tokens_are_always_short_is_not_run_each_time() -> None:
    clock = Clock()
    clock.now = 1_000_000.0
    secrets = Secrets({}, Tokens(clock, 20), clock=clock, now=clock)
    tokens = []
    for _ in range(5):
        tokens.append(reveal(secrets, "command:x"))
        mend(secrets)
        clock.now += COMMAND_PAUSE / 2
    assert tokens == ["token-1", "token-1", "token-1", "token-2", "token-2"]


def test_an_expired_token_is_not_sent(tmp_path: Path) -> None:
    clock = Clock()
    clock.now = 1_800_000_000.0
    path = tmp_path / "token"
    path.write_text('{"claudeAiOauth": {"accessToken": "hunter2", "expiresAt": 1800000100000}}')
    secrets = Secrets({}, Tokens(clock, 0), folder=tmp_path, clock=clock, now=clock)
    assert reveal(secrets, "file:token") == "hunter2"
    assert secrets.present("file:token") is None
    clock.now += 100
    for ref in ("file:token", "command:x"):
        with pytest.raises(SecretError, match="expired at 2027-01-15 08:01 UTC") as caught:
            reveal(secrets, ref)
        assert "hunter2" not in str(caught.value)
    assert "expired" in (secrets.present("file:token") or "")


def test_a_file_is_read_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = Clock()
    clock.now = 1_000_000.0
    path = tmp_path / "token"
    secrets = Secrets({}, folder=tmp_path, now=clock)

    def write(token: str, expires: int) -> None:
        path.write_text(json.dumps({"token": token, "expires_at": expires}))
        os.utime(path, ns=(1, 1))  # as where time is coarse

    write("one", 1_000_400)
    assert reveal(secrets, "file:token") == "one"
    write("two", 1_009_000)
    assert reveal(secrets, "file:token") == "one"
    clock.now += 200
    assert reveal(secrets, "file:token") == "two"


def test_json_without_a_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text('{"password": "hunter2"}')
    with pytest.raises(SecretError, match="JSON without an access token") as caught:
        reveal(Secrets({}, folder=tmp_path), "file:token")
    assert "hunter2" not in str(caught.value)


def test_a_command_wanted_twice_at_once_runs_once() -> None:
    run = Runner()
    secrets = Secrets({}, run)

    async def both() -> list[str]:
        return await asyncio.gather(*(secrets.reveal("command:x") for _ in range(5)))

    assert asyncio.run(both()) == ["secret-1"] * 5


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (Runner(status=3), "failed with status 3"),
        (Runner(raises=TimeoutError()), "more than 10 s"),
        (Runner(raises=OSError(2, "No such file")), "No such file"),
    ],
)
def test_a_failing_command_names_its_program_only(run: Runner, says: str) -> None:
    with pytest.raises(SecretError, match=says) as caught:
        reveal(Secrets({}, run), "command:K=hunter2 op --token hunter2")
    assert "'op'" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("A='Bearer hunter2' op x", "the command 'op'"),
        ("A=\"Bearer hunter2\" B='x hunter2' ~/bin/op", "the command '~/bin/op'"),
        ("A=Bearer\\ hunter2; op", "the command 'op'"),
        ("'/my tools/op' hunter2", "the command"),
        ("A='Bearer hunter2 op", "the command"),
        ("A=$(echo hunter2 | base64) op", "the command"),
        ("A=`echo hunter2` op", "the command"),
        ("<<<hunter2 op", "the command"),
        ("curl|hunter2 op", "the command"),
        ("A='hunter2 x'", "the command"),
    ],
)
def test_of_a_command_line_nothing_but_the_program_is_shown(line: str, shown: str) -> None:
    with pytest.raises(SecretError) as caught:
        reveal(Secrets({}, Runner(status=3)), f"command:{line}")
    assert str(caught.value) == f"{shown} failed with status 3"


def test_a_command_that_failed_is_tried_again_while_nobody_waits() -> None:
    clock, run = Clock(), Runner(status=1)
    secrets = Secrets({}, run, clock=clock)
    ran_at = []
    for clock.now in range(60):
        with pytest.raises(SecretError) as caught:
            reveal(secrets, "command:x")
        before = run.runs
        mend(secrets)
        if run.runs > before:
            ran_at.append(clock.now)
    assert ran_at == [2, 6, 14, 30]
    assert caught.value.wait == 3
    assert secrets.present("command:x") == "the command 'x' failed with status 1"
    clock.now, run.status = 62.0, 0
    mend(secrets)
    assert reveal(secrets, "command:x") == "secret-6"
    assert secrets.present("command:x") is None


def test_a_failing_command_that_nobody_wants_is_left_alone() -> None:
    clock, run = Clock(), Runner(status=1)
    secrets = Secrets({}, run, clock=clock)
    with pytest.raises(SecretError):
        reveal(secrets, "command:x")
    for clock.now in range(100):
        mend(secrets)
    assert run.runs == 2  # once more for the one who has waited


def test_the_last_key_stays_in_use_while_its_command_fails() -> None:
    clock, run = Clock(), Runner()
    secrets = Secrets({}, run, clock=clock)
    reveal(secrets, "command:x")
    run.status, clock.now = 1, 300.0
    for _ in range(2):
        assert reveal(secrets, "command:x") == "secret-1"
        mend(secrets)
        clock.now += 1000
    assert "status 1" in (secrets.present("command:x") or "")
    secrets.forget("command:x")
    with pytest.raises(SecretError):
        reveal(secrets, "command:x")


def test_nobody_waits_while_a_failing_command_runs_again() -> None:
    clock, started, finish = Clock(), asyncio.Event(), asyncio.Event()

    async def run(command: str, env: Mapping[str, str]) -> tuple[int, bytes]:
        if clock.now:
            started.set()
            await finish.wait()
        return int(not clock.now), b"secret"

    async def all_at_once() -> str:
        secrets = Secrets({}, run, clock=clock)
        with pytest.raises(SecretError):
            await secrets.reveal("command:x")
        clock.now = 5.0
        mending = asyncio.create_task(secrets.mend())
        await started.wait()
        with pytest.raises(SecretError):
            await secrets.reveal("command:x")
        finish.set()
        await mending
        return await secrets.reveal("command:x")

    assert asyncio.run(all_at_once()) == "secret"


def test_a_command_that_callers_do_not_wait_for_hangs() -> None:
    clock = Clock()

    async def run(command: str, env: Mapping[str, str]) -> tuple[int, bytes]:
        clock.now += 3
        raise asyncio.CancelledError

    secrets = Secrets({}, run, clock=clock)
    with pytest.raises(asyncio.CancelledError):
        reveal(secrets, "command:x")
    with pytest.raises(SecretError, match="'x' had not ended after 3 s"):
        reveal(secrets, "command:x")


def test_present_runs_no_command() -> None:
    run = Runner()
    assert Secrets({}, run).present("command:x") is None
    assert run.runs == 0


needs_posix = pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")


@needs_posix
@pytest.mark.parametrize(
    ("command", "expected"),
    [("echo ' token '", "token"), ("printf %s $NAME", "value"), ("echo a | tr a b", "b")],
)
def test_a_real_command(command: str, expected: str) -> None:
    env = {"NAME": "value", "PATH": os.environ["PATH"]}
    assert reveal(Secrets(env), f"command:{command}") == expected


@needs_posix
@pytest.mark.parametrize(
    ("command", "says"),
    [("exit 4", "status 4"), ("true", "is empty"), ("echo out; echo err >&2; exit 1", "status 1")],
)
def test_a_real_command_that_fails(command: str, says: str) -> None:
    with pytest.raises(SecretError, match=says):
        reveal(Secrets({"PATH": os.environ["PATH"]}), f"command:{command}")


@needs_posix
def test_a_command_of_a_cancelled_request_is_stopped(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    secrets = Secrets({"PATH": os.environ["PATH"]})

    async def cancelled() -> None:
        task = asyncio.create_task(secrets.reveal(f"command:echo $$ > {pid}; exec sleep 60"))
        await until(lambda: pid.exists() and bool(pid.read_text().strip()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.005)
