from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.upstream import Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """Plays back bytes to the SDKs."""
    with Upstream() as running:
        yield running
