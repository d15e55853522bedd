"""Files are written whole or not at all, whatever ends the process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from krouter.written import replace_whole, target_of

WRITER = """
import sys
from pathlib import Path
from krouter.written import replace_whole
path, texts = Path(sys.argv[1]), [b"a" * 200_000, b"b" * 300_000]
for number in range(1_000_000):
    replace_whole(path, texts[number % 2])
    print(number, flush=True)
"""


def test_a_kill_in_the_midst_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    whole = {b"old", b"a" * 200_000, b"b" * 300_000}
    path.write_bytes(b"old")
    for lines in range(1, 9):
        command = [sys.executable, "-S", "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        assert writer.returncode == -signal.SIGKILL
        assert path.read_bytes() in whole


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_the_mode_is_as_given_from_the_first_moment(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    replace_whole(path, b"x", mode)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_bytes() == b"x"


def test_what_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_whole(folder, b"x")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert target_of(tmp_path / "link") == tmp_path.resolve() / "file"
