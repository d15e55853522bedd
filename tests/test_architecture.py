"""The arrows between the rooms point one way, and the heavy packages stay where they belong."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Each room may import the rooms before it.
LAYERS = (
    ("_version", "virtual", "written"),
    ("problems", "resets", "errortext", "tokens", "blot", "allowance", "spending", "private"),
    ("settings", "errors", "body", "sse", "accepts", "cases"),
    ("script",),
    (
        "features",
        "image_refusals",
        "estimate",
        "http_reply",
        "http_request",
        "http_dial",
        "error_table",
    ),
    ("http_coding", "http_connection", "verdict", "featureless"),
    ("http_pool",),
    ("limit", "paths", "secrets", "keys", "providers", "combos", "wire", "dialects"),
    ("accounts", "combostore", "strategies", "board", "headers", "stream", "catalog", "reporter"),
    ("adapter", "families", "plan", "health", "quota", "sessions", "callers", "faults", "vectors"),
    ("ranking", "costs", "quorum"),
    ("vocabulary",),
    ("pool", "route"),
    ("world", "records", "arguments", "shapes", "metrics", "metric_series", "refusals"),
    ("answer", "attempt", "standing", "poller", "embeddable", "late", "judging"),
    ("naming",),
    ("unanswerable",),
    ("ledger", "ledger_file", "ledger_filter", "ledger_journal", "ledger_reader", "ledger_schema"),
    ("ledger_records",),
    ("lineup", "present", "restarts"),
    ("coverage",),
    ("progress", "bounds"),
    ("sendable", "no_answer", "room"),
    ("tries", "voices"),
    ("walk", "panel", "worst"),
    ("meaning",),
    ("changes",),
    ("fusion",),
    ("router",),
    ("load",),
    ("adapterfaults", "replay", "asking", "flow", "counting"),
    ("engine",),
    ("sdk_stream",),
    ("serve", "sdk"),
    ("rehearsal",),
    ("drill", "simulation", "whatif"),
    ("trial",),
    ("cli",),
)
LEVEL = {room: level for level, layer in enumerate(LAYERS) for room in layer}

# What an adapter may know of krouter: the protocol, and the types it is made of.
OPEN_TO_ADAPTERS = frozenset(
    "adapter blot catalog reporter errors errortext dialects settings providers problems body sse"
    " headers wire resets shapes script".split()
)


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "krouter").parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages = ("krouter", "krouter_adapters")
            inner = node.module in packages
            yield from (f"{node.module}.{a.name}" for a in node.names) if inner else (node.module,)


@pytest.mark.parametrize("path", modules("krouter"), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    used = [name.split(".")[1] for name in imports(path) if name.startswith("krouter.")]
    above = [other for other in used if other != room and LEVEL[other] >= LEVEL[room]]
    same = [other for other in above if LEVEL[other] == LEVEL[room]]
    assert set(above) <= set(same), f"{room} imports {above}, which stand above it"
    assert not any(name.startswith("krouter_adapters") for name in imports(path))


def test_rooms_of_one_level_do_not_import_each_other_in_a_circle() -> None:
    edges = {
        (room_of(path), name.split(".")[1])
        for path in modules("krouter")
        for name in imports(path)
        if name.startswith("krouter.")
    }
    assert not {(a, b) for a, b in edges if a != b and (b, a) in edges}


@pytest.mark.parametrize("path", modules("adapters"), ids=lambda p: p.name)
def test_adapters_know_no_combo_and_no_walk(path: Path) -> None:
    used = {name.split(".")[1] for name in imports(path) if name.startswith("krouter.")}
    assert used <= OPEN_TO_ADAPTERS


OPEN_TO_LITELLM = frozenset(("litellm_lane/classes.py", "litellm_lane/load.py", "sdk.py"))


def test_three_files_import_litellm() -> None:
    found = {
        path.relative_to(ROOT / "adapters/krouter_adapters").as_posix()
        for path in modules("adapters")
        if any(name.split(".")[0] == "litellm" for name in (*imports(path), *named(path)))
    }
    assert found == OPEN_TO_LITELLM
    assert not any(name.startswith("litellm") for p in modules("krouter") for name in imports(p))


def named(path: Path) -> Iterator[str]:
    """Modules that are imported by their name in a text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        (
            "import krouter",
            ("litellm", "fastapi", "aiohttp", "pydantic", "rich", "click", "prometheus_client"),
        ),
        ("import krouter.sdk", ("fastapi", "prometheus_client")),
        (
            "import krouter.cli",
            ("litellm", "fastapi", "aiohttp", "pydantic", "rich", "prometheus_client"),
        ),
        ("import krouter.cli.route, krouter.cli.usage", ("litellm", "fastapi", "rich")),
        ("import krouter.cli.log", ("litellm", "fastapi", "rich")),
        ("import krouter.cli.env, krouter.cli.code", ("litellm", "fastapi", "aiohttp", "rich")),
        ("import krouter.cli.doctor", ("litellm", "fastapi", "aiohttp", "rich")),
        ("import krouter.serve.run", ("litellm", "httpx", "openai", "rich")),
    ],
)
def test_what_an_import_leaves_out(program: str, absent: tuple[str, ...]) -> None:
    code = f"{program}; import sys; print(*[m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_commands_print_through_one_door() -> None:
    """Which lets nothing pass that steers a terminal."""
    files = [path for path in (ROOT / "krouter/cli").glob("*.py") if path.name != "output.py"]
    found = [path.name for path in files if re.search(r"\b(echo|print)\(", path.read_text())]
    assert files
    assert found == ["drawing.py"]  # into the picture, which output.py prints
