"""Environment variables as lines of a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _powershell(text: str) -> str:
    """Its four curly quotes end a string too."""
    return "'" + re.sub("(['\u2018-\u201b])", r"\1\1", text) + "'"


@dataclass(frozen=True, slots=True)
class Shell:
    """How a shell sets, unsets and quotes; `joined` puts parts of one value together."""

    set_line: str
    unset_line: str
    run_line: str
    variable: str
    quote: Callable[[str], str]
    joined: Callable[[Iterable[str]], str]

    def assign(self, name: str, value: str, known: Mapping[str, str]) -> str:
        """The line that sets `name`. Where `value` holds that of a variable in `known`, the line
        names the variable: a key is not shown again."""
        return self.set_line.format(name, self._value(value, known))

    def _value(self, value: str, known: Mapping[str, str]) -> str:
        for name, secret in known.items():
            if secret and secret in value:
                before, _, after = value.partition(secret)
                parts = (before and self.quote(before), self.variable.format(name))
                return self.joined(filter(None, (*parts, after and self.quote(after))))
        return self.quote(value)

    def unset(self, name: str) -> str:
        return self.unset_line.format(name)


def _in_brackets(parts: Iterable[str]) -> str:
    shown = list(parts)
    return shown[0] if len(shown) == 1 else f"({' + '.join(shown)})"


OWN = "powershell" if os.name == "nt" else "sh"
"""The shell that lines are for where nobody names one."""
SHELLS: Mapping[str, Shell] = MappingProxyType(
    {
        "sh": Shell("export {}={}", "unset {}", 'eval "$({})"', '"${}"', shlex.quote, "".join),
        "fish": Shell("set -gx {} {}", "set -e {}", "{} | source", '"${}"', _fish, "".join),
        "powershell": Shell(
            "$env:{} = {}",
            "Remove-Item -ErrorAction Ignore Env:{}",
            "{} | Out-String | Invoke-Expression",
            "$env:{}",
            _powershell,
            _in_brackets,
        ),
    }
)


def quoted(word: str) -> str:
    """`word` for a line that somebody may copy into the usual shell."""
    return SHELLS[OWN].quote(word)
