"""Nothing that the harness starts outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.clients import Place, Start
from tests.clients.processes import end, isolated, only_one, works
from tests.clients.run import run_command
from tests.clients.screen import shows

needs_namespaces = pytest.mark.skipif(
    not works(isolated([])), reason="this machine makes no namespaces for processes"
)
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
STRAY = """
import os, sys
told, tell = os.pipe()
if os.fork():
    os.read(told, 1)
    sys.exit(3)
os.setsid()
os.write(os.open(sys.argv[1], os.O_WRONLY), b"here")
os.write(tell, b"!")
os.read(os.pipe()[0], 1)
"""


@needs_namespaces
def test_a_process_in_a_session_of_its_own_ends_with_the_client(tmp_path: Path) -> None:
    fifo, inner = tmp_path / "fifo", tmp_path / "inner"
    os.mkfifo(fifo)
    inner.mkdir()
    read = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    start = Start([sys.executable, "-c", STRAY, str(fifo)])
    place = Place("", "", "", inner, inner)
    try:
        assert run_command(start, place)[0] == 3
        told = b"".join(iter(lambda: os.read(read, 64), b""))  # raises where a writer is left
    finally:
        os.close(read)
    assert told == b"here"


LEAVES = """
import subprocess, sys
from tests.clients.processes import isolated
waits = "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY), b'here'); os.read(0, 1)"
subprocess.run(isolated([sys.executable, "-c", waits, sys.argv[1]]))
"""


@needs_namespaces
def test_what_a_killed_harness_has_started_ends_with_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = [sys.executable, "-c", LEAVES, str(fifo)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as harness:
        try:
            assert select.select([read], [], [], 60)[0]
            assert os.read(read, 4) == b"here"
            harness.kill()
            assert select.select([read], [], [], 60)[0], "it has outlived the harness"
            assert os.read(read, 4) == b""
        finally:
            os.close(read)
            if harness.stdin:
                harness.stdin.close()


def test_a_process_that_does_not_listen_is_killed() -> None:
    command = [sys.executable, "-c", f"{DEAF}; import time; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        end(process, patience=0.1)
        assert process.returncode == -signal.SIGKILL


def test_sigterm_runs_what_finally_promises() -> None:
    script = (
        "from tests.clients.processes import leave_on_sigterm\n"
        "import time\nleave_on_sigterm()\n"
        "try:\n print('ready', flush=True); time.sleep(600)\nfinally:\n print('tidy', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"tidy\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_two_runs_do_not_share_a_cache(tmp_path: Path) -> None:
    lock = tmp_path / "cache" / "lock"
    with only_one(lock), pytest.raises(SystemExit, match="another run"), only_one(lock):
        pass
    with only_one(lock):
        assert lock.exists()


def test_a_program_that_cannot_start_leaves_no_second_harness(tmp_path: Path) -> None:
    """The fork must not come back from the call and go on as this process."""
    mark = tmp_path / "mark"
    script = (
        "import sys; from pathlib import Path; from tests.clients.screen import shows\n"
        "try:\n shows(['/no/such'], {}, Path('/'), [], 'never', 20)\n"
        f"finally:\n open({str(mark)!r}, 'a').write('x')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert mark.read_text() == "x"


def test_a_screen_is_typed_at_until_it_shows_what_is_wanted(tmp_path: Path) -> None:
    asking = "print('ask', flush=True); print('got', input())"
    found, seen = shows([sys.executable, "-c", asking], {}, tmp_path, ["this\n"], "got this", 60)
    assert found, seen
