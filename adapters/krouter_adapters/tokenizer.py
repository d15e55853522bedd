"""Counts tokens with tiktoken and the vocabulary that LiteLLM ships, in a process of its own:
building the tokenizer, in this one, would hold up the event loop for a few hundred milliseconds.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

VOCABULARY = "litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
"""OpenAI's o200k_base, under the name that tiktoken gives it."""
LENGTH = 8
"""Bytes of the number in front of a text, and of the answer."""


class Tokenizer:
    """One process that counts one text after the other. It begins with the first, and again after
    it has died. It ends with this process, whose end of its pipe closes."""

    def __init__(self, vocabulary: Path) -> None:
        self.vocabulary = vocabulary
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int | None:
        """Of the process that counts, if there is one."""
        return self._process.pid if self._process else None

    def count(self, text: str) -> int:
        """Waits for its turn and for the answer. Raises OSError where the process gives none."""
        with self._lock:
            process = self._running()
            try:
                return _ask(process, text.encode("utf-8", "replace"))
            except (OSError, ValueError) as error:
                self._process = None
                _end(process)
                raise OSError("the tokenizer gave no answer") from error

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - the program is krouter's own
                [sys.executable, "-I", str(PROGRAM), str(self.vocabulary)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process to act on
            )
            weakref.finalize(self, _end, self._process)
        return self._process


PROGRAM = Path(__file__).with_name("tokenizer_process.py")


def _ask(process: subprocess.Popen[bytes], text: bytes) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(len(text).to_bytes(LENGTH, "big") + text)
    process.stdin.flush()
    answer = process.stdout.read(LENGTH)
    if len(answer) < LENGTH:
        raise ValueError("the process has ended")
    return int.from_bytes(answer, "big")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):  # something may still be to be written to it
            pipe.close()


@cache
def load_tokenizer() -> Tokenizer | None:
    """One for the process; None where tiktoken or the vocabulary is not installed."""
    litellm = importlib.util.find_spec("litellm")
    if importlib.util.find_spec("tiktoken") is None or litellm is None or litellm.origin is None:
        return None
    vocabulary = Path(litellm.origin).with_name(VOCABULARY.partition("/")[0])
    vocabulary = vocabulary.joinpath(*VOCABULARY.split("/")[1:])
    return Tokenizer(vocabulary) if vocabulary.is_file() else None
