"""`python -m tests.clients [CLIENT...]`: installs the clients, runs them, writes the tables."""

from __future__ import annotations

import sys

from tests.clients import book, install, loopback
from tests.clients.cases import CASES, LANES
from tests.clients.clients import CLIENTS
from tests.clients.features import run_features
from tests.clients.processes import leave_on_sigterm, only_one
from tests.clients.run import run_client

DOCUMENT = install.ROOT / "docs" / "clients.md"
COLUMNS = {
    "results": ("client", "provider", *(case.title for case in CASES.values())),
    "features": ("client", "what", *LANES),
}
Rows = dict[tuple[str, str], list[str]]


def main(wanted: list[str]) -> int:
    chosen = [name for name in CLIENTS if not wanted or name.startswith(tuple(wanted))]
    if not chosen:
        print(f"no such client; there are {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    leave_on_sigterm()
    if not loopback.is_inside():
        with only_one(install.CACHE / "lock"):
            for place in sorted({CLIENTS[name].place for name in chosen}):
                install.install(place)
            return loopback.run_inside(wanted)
    loopback.raise_loopback()
    results = [cells for name in chosen for cells in run(name)]
    return 0 if all(book.is_well(cell) for cells in results for cell in cells) else 1


def run(name: str) -> list[list[str]]:
    """Runs one client and writes what came of it."""
    client, keep = CLIENTS[name], install.CACHE / "logs" / name
    title = title_of(name)
    results: Rows = {}
    for lane, cells in run_client(client, keep):
        results[title, lane] = cells
        print(f"{name:24} {lane:10} {' | '.join(cells)}", flush=True)
    features: Rows = {}
    for feature, cells in run_features(name, client, keep):
        features[title, feature] = cells
        print(f"{name:24} {feature}: {' | '.join(cells)}", flush=True)
    order = [title_of(other) for other in CLIENTS]
    text = DOCUMENT.read_text()
    for table, rows in (("results", results), ("features", features)):
        text = book.update(text, table, COLUMNS[table], rows, order)
    DOCUMENT.write_text(text)
    return [*results.values(), *features.values()]


def title_of(name: str) -> str:
    client = CLIENTS[name]
    return f"{client.title} {install.version(client.place, client.package)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
