from __future__ import annotations

import re

import pytest
from krouter_adapters.rows import load_rows, parse_rows

from krouter.problems import ConfigError
from krouter.providers import Provider, build_registry
from krouter.settings import Settings

ALL = load_rows()
ROWS = [row for row in ALL if not row.known_by_litellm]
REGISTRY = build_registry(ALL, Settings())

GOOD = """
[provider.a]
title = "A"
env = ["A_KEY"]
litellm = "openai"
source = "https://a.example"
tried = "untried"
base_urls = { chat = "https://a.example/v1" }
"""


@pytest.mark.parametrize(
    ("name", "dialect", "url"),
    [
        ("anthropic", "messages", "https://api.anthropic.com/v1/messages"),
        ("cc", "messages", "https://api.anthropic.com/v1/messages"),
        ("openai", "chat", "https://api.openai.com/v1/chat/completions"),
        ("openai", "responses", "https://api.openai.com/v1/responses"),
        ("gemini", "gemini", "https://generativelanguage.googleapis.com/v1beta/models"),
        ("gemini", "chat",
         "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        ("ds", "chat", "https://api.deepseek.com/v1/chat/completions"),
        ("ds", "messages", "https://api.deepseek.com/anthropic/v1/messages"),
        ("z.ai", "messages", "https://api.z.ai/api/anthropic/v1/messages"),
        ("zai", "chat", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("moonshot", "messages", "https://api.moonshot.ai/anthropic/v1/messages"),
        ("minimax", "messages", "https://api.minimax.io/anthropic/v1/messages"),
        ("openrouter", "chat", "https://openrouter.ai/api/v1/chat/completions"),
        ("openrouter", "messages", "https://openrouter.ai/api/v1/messages"),
        ("openrouter", "responses", "https://openrouter.ai/api/v1/responses"),
        ("groq", "chat", "https://api.groq.com/openai/v1/chat/completions"),
        ("xai", "responses", "https://api.x.ai/v1/responses"),
        ("mistral", "chat", "https://api.mistral.ai/v1/chat/completions"),
        ("deepinfra", "chat", "https://api.deepinfra.com/v1/openai/chat/completions"),
        ("ollama", "chat", "http://127.0.0.1:11434/v1/chat/completions"),
        ("vllm", "chat", "http://127.0.0.1:8000/v1/chat/completions"),
        ("demo", "chat", None),
    ],
)  # fmt: skip
def test_where_a_provider_answers(name: str, dialect: str, url: str | None) -> None:
    provider = REGISTRY.find(name)
    assert provider is not None
    assert provider.url(dialect) == url  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_where_it_is_from_and_whether_it_was_tried(row: Provider) -> None:
    assert row.source
    assert row.tried
    assert row.title
    assert row.litellm
    assert row.speaks == tuple(row.base_urls) or row.builtin
    assert set(row.auth) == {"chat", "messages", "responses", "gemini"}
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", name) for name in row.env)
    assert row.keyless != bool(row.env)
    local = row.keyless or row.builtin
    assert all(url.startswith("http://127." if local else "https://")
               for url in row.base_urls.values())  # fmt: skip


def test_a_claude_subscription_is_a_bearer_token_with_its_beta() -> None:
    cc = REGISTRY.find("cc")
    assert cc is not None
    assert cc.env == ("CLAUDE_CODE_OAUTH_TOKEN",)
    assert cc.auth["messages"] == "bearer"
    assert cc.headers == {"anthropic-beta": "oauth-2025-04-20"}


def test_the_demo_is_built_in() -> None:
    demo = REGISTRY.find("demo")
    assert demo is not None
    assert demo.builtin
    assert demo.keyless
    assert demo.speaks == ("chat", "messages")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[provider", "not TOML"),
        (GOOD + "colour = 1", "unknown field 'colour'"),
        (GOOD.replace('title = "A"', ""), "$.provider.a.title: required field is missing"),
        (GOOD.replace("https://a.example/v1", "a.example"), "$.provider.a.base_urls.chat"),
        (GOOD.replace("base_urls = {", "auth = {"), "$.provider.a.auth.chat"),
        (re.sub("base_urls.*", "", GOOD), "$.provider.a.base_urls: required"),
        (GOOD.replace('env = ["A_KEY"]', ""), "$.provider.a.env"),
        (GOOD + 'aliases = ["a"]', "'a' is taken"),
    ],
)
def test_a_damaged_table_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rows(text)
    assert says in str(caught.value)


def test_a_good_row_loads() -> None:
    (row,) = parse_rows(GOOD)
    assert (row.name, row.speaks, row.auth["chat"]) == ("a", ("chat",), "bearer")
