"""Programs that krouter starts beside itself, as Windows wants it."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

BATCH = (".cmd", ".bat")
_BY_CMD = re.compile(r"([()\[\]%!^\"`<>&|;, *?])")


def windows_command(program: str, args: Sequence[str], shell: str = "cmd.exe") -> str | list[str]:
    """What to start for a program of Windows. One that npm has installed is a batch file, which
    cmd.exe runs: every word is quoted twice, for it and for the line in that file which reads it
    again. Raises ValueError for a word that no batch file can be given.

    Source: Microsoft, "Everyone quotes command line arguments the wrong way"; npm's cmd-shim."""
    if not program.lower().endswith(BATCH):
        return [program, *args]
    if any(set("\r\n\0") & set(word) for word in args):
        raise ValueError(f"a line break in an argument cannot be passed through {program}")
    words = (_escaped(_escaped(_quoted(word))) for word in args)
    return f'{shell} /d /s /v:off /c "{" ".join((_escaped(program), *words))}"'


def _quoted(word: str) -> str:
    """As a program of C splits its command line."""
    inner = re.sub(r'(\\*)"', r'\1\1\\"', word)
    return '"' + re.sub(r"(\\+)$", r"\1\1", inner) + '"'


def _escaped(text: str) -> str:
    """As cmd.exe reads it once."""
    return _BY_CMD.sub(r"^\1", text)


def run_beside(command: str | Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a program to its end; its exit code. Ctrl-C is for it alone: it has the terminal."""
    with subprocess.Popen(command, env=dict(env)) as process:  # noqa: S603
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
