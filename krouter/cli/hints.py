"""Commands in hints, as they must be typed to be about the same krouter."""

from __future__ import annotations

import re
from collections.abc import Mapping

from krouter.cli.shells import quoted

_AT_URL = frozenset(("env", "code", "doctor", "quota"))
_COMMAND = re.compile(r"\bkrouter (env|code|doctor|quota|models|combos|check|explain|keys \w+)\b")


def placed(hint: str, given: Mapping[str, str | None]) -> str:
    """`hint` with the options `--home` and `--url` that were given behind each command that takes
    them."""

    def with_options(found: re.Match[str]) -> str:
        words = [
            f" {name} {quoted(value)}"
            for name, value in given.items()
            if value and (name == "--home" or found[1] in _AT_URL)
        ]
        return found[0] + "".join(words)

    return _COMMAND.sub(with_options, hint)
