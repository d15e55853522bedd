"""The program of `tokenizer.py`: texts come in, token counts go out, until its input ends."""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path

import tiktoken

# How o200k_base cuts a text before it looks words up. Letters of one word, with what is said in
# short behind it; up to three digits; signs; line ends; blanks.
_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_LENGTH = 8

# A run without a blank takes the square of its length: cut, it is told a token more for each cut.
_RUN = re.compile(r"\S{400}")


def load(vocabulary: Path) -> tiktoken.Encoding:
    """From a file of lines: a token in base64, a blank, its rank."""
    lines = (line.split() for line in vocabulary.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding(
        "o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )


def main() -> None:
    encoding = load(Path(sys.argv[1]))
    while head := sys.stdin.buffer.read(_LENGTH):
        text = sys.stdin.buffer.read(int.from_bytes(head, "big")).decode("utf-8", "replace")
        count = len(encoding.encode_ordinary(_RUN.sub(r"\g<0>\n", text)))
        sys.stdout.buffer.write(count.to_bytes(_LENGTH, "big"))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
