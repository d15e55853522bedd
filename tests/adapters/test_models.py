"""The model table as it ships: what is known of real models at real providers."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from functools import cache

import pytest
from krouter_adapters.model_data import load_models, load_table

from krouter.adapter import load_rows
from krouter.catalog import MEDIA, Correction, Facts, Glob, Known, Spellings, build_catalog
from krouter.providers import Provider, Registry, build_registry
from krouter.settings import parse_settings

OWN = """
[provider.local]
base_url = "http://127.0.0.1:8000/v1"
"""


@cache
def registry() -> Registry:
    return build_registry(load_rows(), parse_settings(OWN, "krouter.toml"))


CATALOG = build_catalog(load_models)


def provider_called(name: str) -> Provider:
    provider = registry().find(name)
    assert provider
    return provider


def facts(name: str) -> Facts:
    provider, _, model = name.partition("/")
    return CATALOG.facts(provider_called(provider), model)


def shown(facts: Facts) -> str:
    """What is read, what may be; "text" for nothing else, "?" for nothing known."""
    marks = {Known.YES: "", Known.UNKNOWN: "?"}
    words = [f"{medium}{marks[known]}" for medium, known in facts.reads.items() if known in marks]
    return "?" if len(words) == 4 and words[0] == "image?" else " ".join(words) or "text"


READS = """
glm/glm-5.1                                             text
glm/glm-5                                               text
glm/glm-5.2                                             text
zai/glm-4.7                                             text
glm/glm-4.6                                             text
glm/glm-4.5-air                                         text
glm/glm-4.5v                                            image pdf? video?
glm/glm-4.6v                                            image pdf? video?
glm/glm-5v-turbo                                        image pdf? video?
openrouter/z-ai/glm-4.6:free                            text
openrouter/z-ai/glm-4.5v                                image pdf? video?
cerebras/zai-glm-4.7                                    text
local/GLM-4.6V-Flash                                    image pdf? video?
ds/deepseek-v4-pro                                      text
deepseek/deepseek-chat                                  text
deepseek/deepseek-reasoner                              text
openrouter/deepseek/deepseek-r1:free                    text
together/deepseek-ai/DeepSeek-V3                        text
fireworks/accounts/fireworks/models/deepseek-v3p1       text
bedrock/us.deepseek.r1-v1:0                             text
ollama/deepseek-r1:14b                                  text
openrouter/deepseek/deepseek-v4-pro                     text
cc/claude-sonnet-4-6                                    image pdf
cc/claude-opus-4-8                                      image pdf
anthropic/claude-haiku-4-5-20251001                     image pdf
anthropic/claude-3-5-sonnet-20241022                    image pdf
anthropic/claude-newfamily-9                            image pdf
openrouter/anthropic/claude-sonnet-4.5                  image pdf
openrouter/anthropic/claude-3.7-sonnet:thinking         image pdf
bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0    image pdf
bedrock/anthropic.claude-opus-4-8                       image pdf
vertex_ai/claude-sonnet-4@20250514                      image pdf
databricks/databricks-claude-opus-4-6                   image pdf
gemini/gemini-2.5-flash                                 image pdf audio video
gemini/gemini-2.5-pro                                   image pdf audio video
gemini/gemini-3-pro-preview                             image pdf audio video
google/gemini-flash-latest                              image pdf audio video
openrouter/google/gemini-2.5-pro                        image pdf audio video
vertex_ai/gemini-3.5-flash                              image pdf audio video
openrouter/google/gemini-2.5-flash-image                image pdf?
gemini/gemma-3-27b-it                                   image audio? video?
ollama/gemma3:4b                                        image audio? video?
openai/gpt-4o                                           image pdf
openai/gpt-4o-2024-08-06                                image pdf
openai/gpt-4.1-mini                                     image pdf
openai/gpt-5                                            image pdf
openai/gpt-5.1-codex                                    image pdf
openai/gpt-6.9                                          image pdf
openai/o3                                               image pdf
openai/o3-mini                                          text
openai/gpt-3.5-turbo                                    text
openai/gpt-4                                            text
openai/gpt-4-turbo                                      image pdf
openai/gpt-audio                                        audio
azure/gpt-4.1                                           image pdf
openrouter/openai/gpt-5.1                               image pdf
groq/openai/gpt-oss-120b                                text
openrouter/openai/gpt-oss-20b:free                      text
bedrock/openai.gpt-oss-120b-1:0                         text
xai/grok-4                                              image pdf?
xai/grok-3                                              text
kimi/kimi-k2.5                                          image video
fireworks/accounts/fireworks/models/kimi-k2p5           image video
kimi/kimi-k2-0905-preview                               text
openrouter/moonshotai/kimi-k2:free                      text
kmc/kimi-for-coding                                     image? video?
minimax/MiniMax-M2.1                                    text
minimax/MiniMax-M3                                      image video?
qwen/qwen3-max                                          text
qwen/qwen3-coder-plus                                   text
qwen/qwen3-vl-plus                                      image pdf? video?
qwen/qwen3.7-max                                        text
qwen/qwen3.8-omni-flash                                 image audio video
ollama/qwen2.5vl:7b                                     image pdf? video?
ollama/qwen3:8b                                         text
together/meta-llama/Llama-3.3-70B-Instruct-Turbo        text
nvidia/meta/llama-3.2-90b-vision-instruct               image
vertex_ai/meta/llama-3.1-70b-instruct-maas              text
openrouter/meta-llama/llama-4-scout                     image
groq/llama-3.3-70b-versatile                            text
mistral/mistral-large-2411                              text
mistral/mistral-large-2512                              image pdf?
mistral/codestral-latest                                text
mistral/voxtral-small-latest                            audio
perplexity/sonar-pro                                    image pdf
bedrock/us.amazon.nova-micro-v1:0                       text
bedrock/us.amazon.nova-lite-v1:0                        image pdf video
demo/assistant                                          text
demo/gpt-4o                                             text
openrouter/openrouter/auto                              ?
local/my-own-model                                      ?
deepseek/chat                                           ?
"""
CASES = [line.split(maxsplit=1) for line in READS.strip().splitlines()]


@pytest.mark.parametrize(("name", "reads"), CASES, ids=[name for name, _ in CASES])
def test_what_a_model_reads(name: str, reads: str) -> None:
    assert shown(facts(name)) == reads


@pytest.mark.parametrize(
    ("name", "window", "output"),
    [
        ("glm/glm-5.1", 200_000, 128_000),
        ("ds/deepseek-v4-pro", 1_000_000, 393_216),
        ("cc/claude-sonnet-4-6", 1_000_000, 128_000),
        ("openrouter/anthropic/claude-sonnet-4.5", 200_000, 64_000),
        ("anthropic/claude-3-opus-20240229", 200_000, 4096),
        ("anthropic/claude-newfamily-9", 200_000, 64_000),
        ("openai/gpt-6.9", 272_000, 128_000),
        ("gemini/gemini-2.5-flash", 1_048_576, 65_536),
        ("openai/gpt-4-0314", 8192, 4096),
        ("local/my-own-model", None, None),
    ],
)
def test_windows_and_limits(name: str, window: int | None, output: int | None) -> None:
    assert (facts(name).window, facts(name).output) == (window, output)


def test_prices_are_the_providers_own() -> None:
    prices = facts("cc/claude-sonnet-4-6").prices
    assert (prices.input, prices.output) == (3e-6, 15e-6)
    assert (prices.cache_read, prices.cache_write) == (3e-7, 3.75e-6)
    regional = facts("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0").prices.input
    assert regional == pytest.approx(3.3e-6)
    for resold in ("openrouter/anthropic/claude-sonnet-4.5", "local/gpt-4o", "ollama/gpt-4o"):
        assert facts(resold).prices.input is None
        assert "prices" not in facts(resold).sources


def test_where_values_come_from() -> None:
    sources = facts("glm/glm-5.1").sources
    assert sources == {
        **dict.fromkeys(MEDIA, "krouter"),
        **dict.fromkeys(("window", "output", "prices", "tools", "json_schema"), "litellm"),
    }
    assert facts("ds/deepseek-v4-pro").sources["image"] == "litellm"


def corrections_in_order() -> list[tuple[Correction, Glob]]:
    return [(each, Glob(each.glob)) for each in load_models().corrections]


def fields(correction: Correction) -> set[str]:
    said = correction.statement
    given = {"window": said.window, "output": said.output}
    known = {name for name, value in given.items() if value is not None}
    return {*said.reads, *known} | ({"tools"} if said.tools is not Known.UNKNOWN else set())


def first_givers(spellings: Spellings) -> set[str]:
    """The globs that some field of this name is really taken from."""
    found: set[str] = set()
    taken: set[str] = set()
    rules = corrections_in_order()
    for each, glob in sorted(rules, key=lambda rule: not rule[0].override):
        if spellings.match(glob):
            if fields(each) - taken:
                found.add(each.glob)
            taken |= fields(each)
    return found


@cache
def needed_globs() -> set[str]:
    """The globs that some name in the data needs."""
    names = {
        (provider.name, model): Spellings(provider, model)
        for provider in registry().providers.values()
        for model in CATALOG.names(provider)
    }
    once = {model.lower(): spellings for (_, model), spellings in names.items()}
    return set(itertools.chain.from_iterable(map(first_givers, once.values())))


def test_no_glob_stands_twice() -> None:
    globs = [Glob(each.glob).text for each in load_models().corrections]
    assert [glob for glob in set(globs) if globs.count(glob) > 1] == []


def test_every_glob_is_needed_by_a_name_in_the_data_or_marked_unlisted() -> None:
    for each in load_models().corrections:
        assert (each.glob in needed_globs()) is not each.unlisted, each.glob


def test_no_unlisted_glob_is_hidden_behind_another() -> None:
    for each in load_models().corrections:
        if each.unlisted:
            name = re.sub(r"\[(.).*?\]", r"\1", each.glob).replace("*", "")
            provider, slash, model = name.partition("/")
            spellings = Spellings(Provider(provider if slash else "local"), model or name)
            assert each.glob in first_givers(spellings), each.glob


def test_the_table_is_not_looked_at_before_it_is_needed() -> None:
    code = (
        "import sys, krouter, krouter.cli.root, krouter.load;"
        "print(*(m for m in ('litellm', 'krouter_adapters.model_data') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_reading_the_table_imports_no_litellm() -> None:
    code = (
        "import sys; from krouter.adapter import load_models;"
        "print(len(load_models().corrections) > 50, 'litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_the_file_is_read_once() -> None:
    assert load_table() is load_table()
    assert load_models() is load_models()
    assert len(load_table()) > 4000
