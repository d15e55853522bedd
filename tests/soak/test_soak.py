"""A minute of `make soak`: one round of each."""

from __future__ import annotations

from pathlib import Path

from tests.soak.rounds import MIXED, STREAMS, crowd, furnish, is_all_told, mixed, problems, settled
from tests.soak.server import serving
from tests.upstream import Upstream


def test_every_caller_gets_its_own_answer_or_one_clear_error(tmp_path: Path) -> None:
    with Upstream() as upstream, serving(tmp_path, furnish(tmp_path, upstream)) as server:
        assert not problems(mixed(server.url, upstream, seed=1, count=100), 100)
        assert not problems(crowd(server.url, upstream, seed=2)[0], STREAMS)
        before = server.holds()
        many = mixed(server.url, upstream, seed=3)
        assert not problems(many, MIXED)
        streams, at_once = crowd(server.url, upstream, seed=4)
        assert not problems(streams, STREAMS)
        settled(before, server.holds())
        assert at_once > STREAMS // 3
        server.kill()
    with Upstream() as upstream, serving(tmp_path, furnish(tmp_path, upstream)) as server:
        assert server.health()["status"] == "ok"
        many.routes |= streams.routes
        assert is_all_told(many, tmp_path) == set()
        assert not problems(mixed(server.url, upstream, seed=5, count=50), 50)
        assert server.end() == 0
