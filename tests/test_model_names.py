"""Names without a provider, as LiteLLM resolves them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from krouter_adapters.litellm_lane.load import load_litellm
from krouter_adapters.model_names import known_names, provider_of

from krouter.naming import UnknownModel, resolve
from tests.harness import Krouter


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("gpt-4o", "openai"),
        ("o3", "openai"),
        ("ft:gpt-4o-mini-2024-07-18:me::1", "openai"),
        ("claude-sonnet-4-6", "anthropic"),
        ("claude-sonnet-latest", "anthropic"),
        ("gpt-mini-latest", "openai"),
        ("claude-newfamily-9", "anthropic"),
        ("anthropic.claude-newfamily-9-v1:0", "bedrock"),
        ("gemini-2.5-pro", "vertex_ai"),
        ("claude-daily", None),
        ("gpt-oh-no", None),
        ("text-embedding-3-small", None),
        ("", None),
    ],
)
def test_the_provider_of_a_name(name: str, provider: str | None) -> None:
    assert provider_of(name) == provider


def test_every_name_is_resolved_as_litellm_resolves_it() -> None:
    resolved = load_litellm().get_llm_provider
    assert len(known_names()) > 300
    assert [n for n in known_names() if resolved(n)[1] != provider_of(n)] == []


def test_combos_come_first_and_bare_names_last(tmp_path: Path) -> None:
    combos = {"gpt-4o": {"models": ["demo/x"]}, "sonnet-4-6": {"models": ["demo/x"]}}
    settings = '[aliases]\n"o3" = "gpt-4o"\n"quick" = "gpt-4o-mini"\n'
    with Krouter(tmp_path, combos=combos, settings=settings) as served:
        world = served.router.world
        assert resolve("gpt-4o", world).found_by == "combo"
        assert resolve("o3", world).found_by == "alias"
        assert resolve("claude-sonnet-4-6", world).found_by == "claude-name"
        bare = resolve("claude-opus-4-6", world)
        assert (bare.found_by, bare.direct) == ("bare-name", True)
        assert bare.combo.models[0].model == "anthropic/claude-opus-4-6"
        assert resolve("quick", world).combo.models[0].model == "openai/gpt-4o-mini"
        with pytest.raises(UnknownModel):
            resolve("gpt-oh-no", world)
        reply = served.chat("gpt-4o-mini")
        assert reply.status_code == 503
        assert "set OPENAI_API_KEY" in reply.json()["error"]["message"]


def test_a_name_that_no_model_can_have(tmp_path: Path) -> None:
    with Krouter(tmp_path) as served:
        for name in ("openai/" + "x" * 400, "x" * 400, "openai/two words", "two words"):
            reply = served.chat(name)
            assert reply.status_code == 404
            assert "a name h" in reply.json()["error"]["message"]


def test_looking_a_name_up_imports_no_litellm() -> None:
    code = (
        "import sys; from krouter.adapter import provider_of;"
        "print(provider_of('gpt-4o'), 'litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["openai", "False"]
