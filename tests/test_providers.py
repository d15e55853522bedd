from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.problems import ConfigError
from krouter.providers import Provider, Registry, build_registry, endpoint, extended
from krouter.settings import Dialect, Settings

H = "https://h.example"

GLM = Provider(
    "glm",
    aliases=("zai", "z.ai"),
    speaks=("messages", "chat"),
    base_urls={"messages": f"{H}/api/anthropic", "chat": f"{H}/api/paas/v4"},
    env=("GLM_API_KEY",),
    litellm="zai",
    headers={"x-a": "1", "x-b": "1"},
    drop=("a",),
    rename={"a": "b", "c": "d"},
    rename_for=("x*",),
)
DEMO = Provider("demo", speaks=("chat", "messages"), keyless=True, builtin=True)


def registry(provider: Mapping[str, Any]) -> Registry:
    return build_registry([GLM, DEMO], Settings.model_validate({"provider": provider}))


def fault(provider: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        registry(provider)
    return str(caught.value)


@pytest.mark.parametrize(
    ("dialect", "base_url", "expected"),
    [
        ("chat", H, "/v1/chat/completions"),
        ("chat", f"{H}/", "/v1/chat/completions"),
        ("chat", f"{H}/v1", "/v1/chat/completions"),
        ("chat", f"{H}/v1/", "/v1/chat/completions"),
        ("chat", f"{H}//v1//", "/v1/chat/completions"),
        ("chat", f"{H}/v1/chat/completions", "/v1/chat/completions"),
        ("chat", f"{H}/v1/chat/completions/", "/v1/chat/completions"),
        ("chat", f"{H}/chat/completions", "/chat/completions"),
        ("chat", f"{H}/v1/responses", "/v1/chat/completions"),
        ("chat", f"{H}/v1/messages", "/v1/chat/completions"),
        ("chat", f"{H}/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("chat", f"{H}/openai/v1", "/openai/v1/chat/completions"),
        ("chat", f"{H}/v1/openai", "/v1/openai/chat/completions"),
        ("chat", f"{H}/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("chat", f"{H}/compatible-mode/v1", "/compatible-mode/v1/chat/completions"),
        ("chat", f"{H}/models", "/models/chat/completions"),
        ("chat", f"{H}/v1?api-version=1", "/v1/chat/completions?api-version=1"),
        ("chat", f"{H}/v1#part", "/v1/chat/completions"),
        ("responses", H, "/v1/responses"),
        ("responses", f"{H}/v1", "/v1/responses"),
        ("responses", f"{H}/v1/responses", "/v1/responses"),
        ("responses", f"{H}/v1/chat/completions", "/v1/responses"),
        ("responses", f"{H}/chat/completions", "/responses"),
        ("responses", f"{H}/backend-api/codex", "/backend-api/codex/responses"),
        ("messages", H, "/v1/messages"),
        ("messages", f"{H}/v1", "/v1/messages"),
        ("messages", f"{H}/v1/", "/v1/messages"),
        ("messages", f"{H}/v1/messages", "/v1/messages"),
        ("messages", f"{H}/v1/messages/count_tokens", "/v1/messages"),
        ("messages", f"{H}/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("messages", f"{H}/v1/chat/completions", "/v1/messages"),
        ("messages", f"{H}/api/anthropic", "/api/anthropic/v1/messages"),
        ("messages", f"{H}/api/anthropic/v1", "/api/anthropic/v1/messages"),
        ("messages", f"{H}/api/anthropic/v1/messages", "/api/anthropic/v1/messages"),
        ("gemini", H, "/v1beta/models"),
        ("gemini", f"{H}/v1beta", "/v1beta/models"),
        ("gemini", f"{H}/v1beta/", "/v1beta/models"),
        ("gemini", f"{H}/v1beta/models", "/v1beta/models"),
        ("gemini", f"{H}/v1beta/models/gemini-x:generateContent", "/v1beta/models"),
        ("gemini", f"{H}/v1", "/v1beta/models"),
        ("gemini", f"{H}/v1alpha", "/v1alpha/models"),
        ("gemini", f"{H}/v1alpha/models", "/v1alpha/models"),
        ("gemini", f"{H}/proxy", "/proxy/v1beta/models"),
        ("gemini", f"{H}/proxy?a=b", "/proxy/v1beta/models?a=b"),
    ],
)
def test_endpoint(dialect: Dialect, base_url: str, expected: str) -> None:
    assert endpoint(base_url, dialect) == H + expected


@pytest.mark.parametrize("host", ["http://127.0.0.1:8000", "http://[::1]:8000", "https://h.org"])
def test_the_host_stays(host: str) -> None:
    assert endpoint(host, "chat") == f"{host}/v1/chat/completions"


dialects = st.sampled_from(["chat", "messages", "responses", "gemini"])
prefixes = st.sampled_from(["", "/api", "/api/anthropic", "/openai", "/a/b/c", "/models"])
versions = st.sampled_from(["", "/v1", "/v1/", "/v1beta", "/v4"])
queries = st.sampled_from(["", "?a=b", "?a=b&c=/v1"])


@given(prefixes, versions, queries, dialects, dialects)
def test_an_endpoint_given_as_base_url_is_never_doubled(
    prefix: str, version: str, query: str, first: Dialect, second: Dialect
) -> None:
    whole = endpoint(H + prefix + version + query, first)
    assert endpoint(whole, first) == whole
    path = endpoint(whole, second).partition("?")[0]
    tails = ("/chat/completions", "/messages", "/responses")
    assert sum(path.count(tail) for tail in tails) == (second != "gemini")
    assert "/v1/v1" not in path
    assert endpoint(whole, second).endswith(query)


@given(prefixes, dialects, dialects)
def test_endpoints_of_one_base_lead_to_each_other(
    prefix: str, first: Dialect, second: Dialect
) -> None:
    base = f"{H}{prefix}/v1"
    if "gemini" not in (first, second):
        assert endpoint(endpoint(base, first), second) == endpoint(base, second)


def test_extended_keeps_the_query() -> None:
    assert extended(f"{H}/v1beta/models?a=b", "/m:x") == f"{H}/v1beta/models/m:x?a=b"


def test_a_provider_is_found_by_name_and_alias() -> None:
    found = registry({})
    assert found.find("glm") is found.find("z.ai") is GLM
    assert found.find("nope") is None
    assert found.names() == ["glm", "demo"]
    assert found.names_with_aliases() == ["glm", "zai", "z.ai", "demo"]
    assert GLM.url("messages") == f"{H}/api/anthropic/v1/messages"
    assert GLM.url("gemini") is None
    assert DEMO.url("chat") is None


@pytest.mark.parametrize(
    ("given_", "speaks", "litellm", "auth"),
    [
        ({"base_url": H}, ("chat",), "openai", "bearer"),
        ({"base_url": H, "speaks": ["messages"]}, ("messages",), "anthropic", "x-api-key"),
        ({"base_url": H, "speaks": ["gemini"]}, ("gemini",), "gemini", "x-goog-api-key"),
        ({"base_url": H, "speaks": ["responses"]}, ("responses",), "openai", "bearer"),
        ({"base_url": H, "speaks": ["messages", "chat"]}, ("messages", "chat"), "openai",
         "x-api-key"),
        ({"base_urls": {"messages": H}}, ("messages",), "anthropic", "x-api-key"),
        ({"base_url": H, "auth_header": "api-key"}, ("chat",), "openai", "api-key"),
    ],
)  # fmt: skip
def test_an_own_provider(
    given_: Mapping[str, Any], speaks: tuple[Dialect, ...], litellm: str, auth: str
) -> None:
    own = registry({"local": given_}).find("local")
    assert own is not None
    assert own.own
    assert own.keyless
    assert (own.speaks, own.litellm, own.auth[speaks[0]]) == (speaks, litellm, auth)


def test_an_own_provider_with_a_key_is_not_keyless() -> None:
    own = registry({"local": {"base_url": H, "key": "env:K"}}).find("local")
    assert own is not None
    assert not own.keyless


def test_base_urls_win_where_they_differ() -> None:
    given_ = {"base_url": f"{H}/v1", "base_urls": {"messages": f"{H}/anthropic"}}
    own = registry({"local": {**given_, "speaks": ["chat", "messages"]}}).find("local")
    assert own is not None
    assert own.url("chat") == f"{H}/v1/chat/completions"
    assert own.url("messages") == f"{H}/anthropic/v1/messages"
    unsaid = registry({"local": given_}).find("local")
    assert unsaid is not None
    assert (unsaid.speaks, unsaid.base_urls) == (own.speaks, own.base_urls)


@pytest.mark.parametrize("name", ["glm", "zai"])
def test_settings_of_a_shipped_provider_or_its_alias(name: str) -> None:
    given_ = {
        "base_urls": {"chat": "http://proxy/v1"},
        "headers": {"X-A": "2"},
        "drop": ["b", "a"],
        "rename": {"c": "c", "e": "f"},
        "max_concurrent": 2,
    }
    found = registry({name: given_})
    glm = found.find("glm")
    assert glm is not None
    assert not glm.own
    assert glm.litellm == "zai"
    assert dict(glm.base_urls) == {**GLM.base_urls, "chat": "http://proxy/v1"}
    assert dict(glm.headers) == {"x-a": "2", "x-b": "1"}
    assert glm.drop == ("a", "b")
    assert glm.rename == {"a": "b", "c": "c", "e": "f"}
    assert glm.rename_for == ("*",)
    assert found.settings_of("z.ai").max_concurrent == 2
    assert found.names() == ["glm", "demo"]


def test_a_moved_provider_sends_nothing_to_its_old_host() -> None:
    glm = registry({"glm": {"base_url": "http://proxy"}}).find("glm")
    assert glm is not None
    assert set(glm.base_urls.values()) == {"http://proxy"}
    assert glm.speaks == GLM.speaks


def test_speaks_narrows_a_shipped_provider() -> None:
    glm = registry({"glm": {"speaks": ["chat"]}}).find("glm")
    assert glm is not None
    assert glm.speaks == ("chat",)
    assert set(glm.base_urls) == {"chat"}


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        ({"glmm": {"account_sticky_limit": 1}}, "Did you mean 'glm'?"),
        ({"glm": {}, "zai": {}}, "has settings already"),
        ({"local": {"base_urls": {"chat": H}, "speaks": ["chat", "messages"]}}, "for messages"),
        ({"glm": {"speaks": ["responses"]}}, "for responses"),
        ({"demo": {"base_url": H}}, "inside krouter"),
    ],
)
def test_providers_that_cannot_be_used(provider: Mapping[str, Any], says: str) -> None:
    assert says in fault(provider)


def test_every_fault_is_reported() -> None:
    assert len(fault({"one": {}, "two": {}}).splitlines()) == 2


def test_two_rows_cannot_share_a_name() -> None:
    with pytest.raises(ValueError, match="'zai' names both"):
        build_registry([GLM, Provider("zai")], Settings())
