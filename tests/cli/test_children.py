"""Programs started beside krouter. What cmd.exe makes of a line is told here by its rules, since
it is not there when the tests run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from krouter.cli.children import windows_command

WORDS = [
    *("-p", "", "a b", "a\tb", "100%", "%PATH%", "%%", "a&b", "a|b", "<in>", "a^b", "^^", "!x!"),
    *(
        '"',
        'say "hi"',
        'a"&calc&"b',
        "\\",
        "C:\\x y\\",
        '\\"',
        'a\\\\"b',
        "(a)",
        "a;b,c=d",
        "it's",
        "ü",
    ),
    *('" & calc "', "*?", "`x`", "[1]", "--model=daily"),
]


def read_by_cmd(line: str) -> str:
    """A caret hides the next character; what is not hidden has its meaning."""
    bare = re.sub(r"\^(.)", "", line)
    assert not set(bare) & set('&|<>%!"()'), f"{bare!r} means something to cmd.exe"
    return re.sub(r"\^(.)", r"\1", line)


def split_by_c(line: str) -> list[str]:
    """Arguments as CommandLineToArgvW splits them."""
    words, word, quoted, slashes, begun = [], "", False, 0, False
    for char in line + " ":
        if char == "\\":
            slashes, begun = slashes + 1, True
            continue
        if char == '"':
            word += "\\" * (slashes // 2)
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
            begun = True
        else:
            word += "\\" * slashes
            if char in " \t" and not quoted:
                if begun:
                    words.append(word)
                word, begun = "", False
            else:
                word, begun = word + char, True
        slashes = 0
    return words


@pytest.mark.parametrize("words", [[word] for word in WORDS] + [WORDS, []])
def test_a_batch_file_is_given_every_word_as_it_is(words: list[str]) -> None:
    program = "C:\\Program Files (x86)\\npm\\claude.CMD"
    line = windows_command(program, words)
    assert isinstance(line, str)
    found = re.fullmatch(r'cmd\.exe /d /s /v:off /c "(.*)"', line)
    assert found
    once = read_by_cmd(found[1])
    assert once.startswith(program)
    passed_on = once.removeprefix(program).lstrip(" ")
    assert split_by_c(read_by_cmd(passed_on)) == words


@pytest.mark.parametrize("word", ["a\nb", "a\r", "\0"])
def test_a_word_that_no_batch_file_takes_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="cannot be passed"):
        windows_command("claude.cmd", ["-p", word])
    assert windows_command("claude.exe", ["-p", word]) == ["claude.exe", "-p", word]


BESIDE = """
import os, sys
from krouter.cli.children import run_beside
child = (
    "import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(7));"
    " print('ready', flush=True); signal.pause()"
)
code = run_beside([sys.executable, "-c", child], os.environ)
print(code, flush=True)
try:
    os.kill(os.getpid(), 2)
except KeyboardInterrupt:
    print("its own again")
"""


@pytest.mark.skipif(os.name != "posix", reason="there are no signals of a group here")
def test_ctrl_c_is_for_the_program_alone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BESIDE], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.read() == "7\nits own again\n"
    assert process.returncode == 0
