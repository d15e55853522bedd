"""All that is used of LiteLLM: after an update, what has moved is listed here."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY
from krouter_adapters.litellm_lane.ways import load_ways

from tests.adapters.lanes import FakeWire, ask, call, provider, secret_for

GOLDEN = Path(__file__).with_name("litellm_contract.json")
MODELS = {"ragflow": "chat/1/m", "clarifai": "a.b.c"} | dict.fromkeys(
    ("vertex_ai", "vertex_ai_beta"), "gemini-m"
)
METHODS = (
    "get_supported_openai_params",
    "should_fake_stream",
    "translate_developer_role_to_system_role",
    "validate_environment",
    "get_complete_url",
    "transform_request",
    "transform_extra_body",
    "transform_response",
    "get_model_response_iterator_for_request",
)
ASKED = {
    "temperature": 0.5,
    "max_tokens": 9,
    "stop": ["x"],
    "tools": [
        {
            "type": "function",
            "function": {"name": "w", "parameters": {"type": "object", "properties": {}}},
        }
    ],
}


def functions() -> Iterator[tuple[str, Any]]:
    library = LIBRARY.get()
    yield "get_llm_provider", library.resolve
    yield "get_optional_params", library.optional
    yield "update_request_with_filtered_beta", library.filter_beta
    yield "strip_beta_gated_request_body", library.strip_gated
    yield "create_config_class", library.create_config
    yield "gemini.transform_request_body", library.gemini_body
    yield "gemini.ModelResponseIterator", library.gemini_events
    yield "bedrock.AWSEventStreamDecoder", library.bedrock_events
    yield "BedrockConverseLLM.encode_model_id", library.bedrock.encode_model_id
    adapter = library.adapter
    name = "translate_completion_input_params_with_tool_mapping"
    yield f"AnthropicAdapter.{name}", getattr(adapter, name)
    yield "get_provider_chat_config", library.configs.get_provider_chat_config
    yield "sign_aws_json_post", library.sign
    yield "botocore.Credentials", library.credentials
    yield "acompletion", library.litellm.acompletion
    yield "get_async_httpx_client", library.async_client


def signature(function: Any) -> str:
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(f"{p.name}{'' if p.default is p.empty else '='}" for p in parameters)


def built(name: str) -> dict[str, Any]:
    """What goes out for one small request: the address, the names of headers, the body."""
    wire = FakeWire(b"{}", status=500)
    region = "us-east-1." if name.startswith("sagemaker") else ""
    base = load_ways()[name].base or f"https://{region}host.example/v1"
    asked, model = call("chat", **ASKED), MODELS.get(name, "m")
    ask(asked, provider(name, base), model, secret_for(name), wire)
    (sent,) = wire.sent
    body = json.dumps(wire.body, sort_keys=True)
    if name == "a2a":  # its ids are random
        body = json.dumps(sorted(wire.body))
    return {"url": sent.url, "headers": sorted(n for n, _ in sent.headers), "body": body}


def called(name: str) -> list[list[str]]:
    """What LiteLLM's own call sends for the same request."""
    place = {"get": "https://host.example/p1"}
    told = {"id": "p1", "status": "succeeded", "output": ["hi"], "urls": place}
    wire = FakeWire(json.dumps(told).encode())
    got = ask(call("chat", **ASKED), provider(name, load_ways()[name].base), "a/m", wire=wire)
    assert b"hi" in got.raw
    return [[sent.method, sent.url, sent.body.decode()] for sent in wire.sent]


def seen() -> dict[str, Any]:
    library = LIBRARY.get()
    classes: dict[str, str] = {}
    signatures: dict[str, dict[str, str]] = {}
    requests: dict[str, Any] = {}
    calls: dict[str, Any] = {}
    for name, way in load_ways().items():
        if way.way == "call":
            calls[name] = called(name)
        if way.way != "classes":
            continue
        config = library.config(name, MODELS.get(name, "m"))
        kind = type(config).__name__
        classes[name] = kind
        signatures[kind] = {m: signature(getattr(config, m)) for m in METHODS}
        requests[name] = built(name)
    common = {m: _most_common(each[m] for each in signatures.values()) for m in METHODS}
    return {
        "version": metadata.version("litellm"),
        "functions": {name: signature(function) for name, function in functions()},
        "methods": common,
        "methods that differ": {
            kind: odd
            for kind, each in sorted(signatures.items())
            if (odd := {m: s for m, s in each.items() if s != common[m]})
        },
        "classes": classes,
        "requests": requests,
        "calls": calls,
    }


def _most_common(values: Iterator[str]) -> str:
    found = list(values)
    return max(dict.fromkeys(found), key=found.count)


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return seen()


@pytest.mark.parametrize(
    "part",
    ["version", "functions", "methods", "methods that differ", "classes", "requests", "calls"],
)
def test_nothing_has_moved(now: dict[str, Any], part: str) -> None:
    """The file is written anew by `python -m tests.adapters.test_litellm_contract`."""
    assert now[part] == json.loads(GOLDEN.read_text())[part]


def test_the_version_is_pinned() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'"litellm=={metadata.version("litellm")}"' in project.read_text()


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(seen(), indent=1, sort_keys=True) + "\n")
