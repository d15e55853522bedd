"""One profile for all property tests: the machine may be busy, so no deadline. And a krouter with a
provider behind it, both on real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.emitted import JOURNAL
from tests.harness import Krouter, Start, provider_settings
from tests.upstream import Upstream

settings.register_profile("krouter", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("krouter")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    garbage = item.get_closest_marker("native_garbage")
    JOURNAL.excuse = garbage.args[0] if garbage else None
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test fails for a reply that no strict client could read, whatever else it looks at."""
    try:
        done = yield
    except BaseException:
        JOURNAL.clear()
        raise
    JOURNAL.check()
    return done


@pytest.fixture(scope="module")
def shared() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(shared: Upstream) -> Iterator[Upstream]:
    shared.clear()
    yield shared
    shared.clear()


@pytest.fixture
def start(upstream: Upstream, tmp_path: Path) -> Iterator[Start]:
    """Starts a krouter: `one` has the accounts a and b, `two` has x, unless said otherwise.
    With `leaps`, its time passes only while the provider stalls."""
    with ExitStack() as stack:

        def begin(
            *models: Any, settings: str = "", accounts: dict[str, str] | None = None, **more: Any
        ) -> Krouter:
            given = accounts if accounts is not None else {"one": "a b", "two": "x"}
            text, env = provider_settings(upstream.url, **given)
            env |= more.pop("env", {})
            combos = more.pop("combos", {})
            edges, ledger = more.pop("edges", None), more.pop("ledger", False)
            leaps = upstream if more.pop("leaps", False) else None
            if models:
                combos["daily"] = {"models": list(models), **more}
            return stack.enter_context(
                Krouter(
                    tmp_path,
                    combos=combos,
                    settings=text + settings,
                    env=env,
                    edges=edges,
                    ledger=ledger,
                    leaps=leaps,
                )
            )

        yield begin
