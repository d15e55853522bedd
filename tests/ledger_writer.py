"""A process that writes a ledger: `python -m tests.ledger_writer FILE PREFIX COUNT`, 0 for ever.

It says `put ID` before and `written ID` after a request is in the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from krouter.ledger import Ledger
from tests.ledger_routes import an_attempt, made


def main(path: str, prefix: str, count: str) -> None:
    ledger = Ledger(Path(path), days=30, megabytes=200, warn=lambda line: print(line, flush=True))
    number = 0
    while not int(count) or number < int(count):
        number += 1
        id = f"{prefix}{number:08}"
        print("put", id, flush=True)
        ledger.put(made(id, an_attempt(), an_attempt(seen=True)))
        if number % 3 == 0 and ledger.flush(60):
            print("written", id, flush=True)
    assert ledger.flush(60)
    assert ledger.close(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
