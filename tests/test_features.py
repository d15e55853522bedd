from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.errortext import ErrorText, read_error
from krouter.featureless import Headers, without_features
from krouter.features import (
    FIELDS,
    INSIDE,
    ON_MESSAGES,
    ON_TOOLS,
    Feature,
    in_other_words,
    named_in,
)
from krouter.image_refusals import names_image_rejection
from tests.dialects.streams import shaped

PYDANTIC = json.dumps(
    {
        "object": "error",
        "message": {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "frequency_penalty"],
                    "msg": "Extra inputs are not permitted",
                    "input": 0.0,
                },
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "messages", 31, "assistant", "reasoning_content"],
                    "msg": "Extra inputs are not permitted",
                },
            ]
        },
    }
)


def names(text: str, dialect: str = "chat") -> list[str]:
    return [str(feature) for feature in named_in(text, dialect)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("context_management: Extra inputs are not permitted", "context_management"),
        ("thinking.disabled.display: Extra inputs are not permitted", "thinking.display"),
        ("thinking.adaptive.effort: Extra inputs are not permitted", "thinking.effort"),
        (
            "tools.0.custom.eager_input_streaming: Extra inputs are not permitted",
            "tools[*].eager_input_streaming",
        ),
        ("tools.7.custom.defer_loading: Extra inputs are not permitted", "tools[*].defer_loading"),
        ("tools.3.cache_control: Extra inputs are not permitted", "cache_control"),
        (
            "system.2.cache_control.ephemeral.scope: Extra inputs are not permitted",
            "cache_control.scope",
        ),
        (
            "messages.13.content.0.thinking.cache_control: Extra inputs are not permitted",
            "cache_control",
        ),
        ("output_config.effort: Extra inputs are not permitted", "output_config.effort"),
        ("This model does not support the effort parameter.", "output_config.effort"),
        (
            "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected"
            " tags: 'disabled', 'enabled'",
            "thinking",
        ),
        ("adaptive thinking is not supported on this model", "thinking"),
        (
            "context_management.edits.0: Input tag 'clear_thinking_20251015' found using 'type'"
            " does not match any of the expected tags: 'clear_tool_uses_20250919'",
            "context_management",
        ),
        (
            "Unexpected value(s) `prompt-caching-scope-2026-01-05`, `effort-2025-11-24` for the"
            " `anthropic-beta` header. Please consult our documentation at docs.anthropic.com or"
            " try again without the header.",
            "anthropic-beta:prompt-caching-scope-2026-01-05 anthropic-beta:effort-2025-11-24",
        ),
        ("The model returned the following errors: invalid beta flag", "anthropic-beta"),
        ("Unknown parameter: 'reasoning'.", "reasoning"),
        (
            "Unsupported parameter: 'logit_bias' is not supported with this model.",
            "logit_bias",
        ),
        (
            "Unsupported parameter: 'reasoning_effort'. In the Responses API, this parameter has"
            " moved to 'reasoning.effort'. Try again with the new parameter.",
            "reasoning_effort",
        ),
        (
            "Unsupported value: 'reasoning_effort' does not support 'none' with this model.",
            "reasoning_effort",
        ),
        ("Unrecognized request argument supplied: thinking", "thinking"),
        ("Unrecognized request arguments supplied: logprobs, store", "logprobs store"),
        ("This model does not support the 'logprobs' parameter.", "logprobs"),
        ("The deployment doesn't support logprobs request parameter.", "logprobs"),
        (
            "logprobs, best_of and echo parameters are not available on gpt-35-turbo model.",
            "logprobs",
        ),
        ("property 'store' is unsupported, did you mean 'stop'?", "store"),
        (
            "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' :"
            " property 'reasoning_content' is unsupported, did you mean 'role'?)]",
            "messages[*].reasoning_content",
        ),
        (
            "'messages.1' : for 'role:user' the following must be satisfied[('messages.1' :"
            " property 'metadata' is unsupported)]",
            "messages[*].metadata",
        ),
        ("Argument not supported on this model: presencePenalty", "presence_penalty"),
        (
            "Model grok-4.3 does not support parameter presencePenalty.",
            "presence_penalty",
        ),
        (
            'Invalid JSON payload received. Unknown name "frequency_penalty": Cannot find field.\n'
            'Invalid JSON payload received. Unknown name "reasoning": Cannot find field.',
            "frequency_penalty reasoning",
        ),
        (
            "litellm.UnsupportedParamsError: gemini does not support parameters:"
            " {'frequency_penalty': 0.5}, for model=gemini-2.0-flash.",
            "frequency_penalty",
        ),
        (
            "13 request validation errors: Extra inputs are not permitted, field:"
            " 'tools[0].eager_input_streaming', value: True; Extra inputs are not permitted,"
            " field: 'tools[1].eager_input_streaming', value: True",
            "tools[*].eager_input_streaming",
        ),
        ("Validation error at #/stream_options: Extra inputs are not permitted", "stream_options"),
        (
            "Malformed input request: #: extraneous key [logit_bias] is not permitted, please"
            " reformat your input and try again.",
            "logit_bias",
        ),
        ('json: unknown field "prompt_cache_key"', "prompt_cache_key"),
        (
            "Failed to deserialize: unknown field `store`, expected one of `user`, `seed`",
            "store",
        ),
        (
            "Additional properties are not allowed ('verbosity', 'store' were unexpected)",
            "verbosity store",
        ),
        ("Unrecognized key(s) in object: 'service_tier'", "service_tier"),
        (
            "create() got an unexpected keyword argument 'chat_template_kwargs'",
            "chat_template_kwargs",
        ),
        ("`top_logprobs` is not supported by this model", "top_logprobs"),
        ("top_logprobs is not supported by this model", "top_logprobs"),
        ("parallel tool calls are not supported", "parallel_tool_calls"),
        (
            r"{\"detail\":[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"top_logprobs\"],"
            r"\"msg\":\"Extra inputs are not permitted\",\"input\":0.0}]}",
            "top_logprobs",
        ),
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs"
            " are not permitted', 'input': {'include_usage': True}}]",
            "stream_options",
        ),
        ("未知请求字段：reasoning.effort", "reasoning.effort"),
    ],
)
def test_what_a_refusal_names(text: str, named: str) -> None:
    assert names(text) == named.split()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            'Invalid JSON payload received. Unknown name "thinkingConfig" at'
            " 'generation_config': Cannot find field.",
            "generationConfig.thinkingConfig",
        ),
        ("Logprobs is not enabled for models/gemini-2.5-pro", "generationConfig.logprobs"),
        (
            "Penalty is not enabled for models/gemini-2.5-pro",
            "generationConfig.presencePenalty generationConfig.frequencyPenalty",
        ),
        (
            "Unable to submit request because thinking is not supported by this model.",
            "generationConfig.thinkingConfig",
        ),
        (
            "Thinking level is not supported for this model.",
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
    ],
)
def test_what_a_refusal_of_gemini_names(text: str, named: str) -> None:
    assert names(text, "gemini") == named.split()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "messages: Extra inputs are not permitted",
        "tools: Extra inputs are not permitted",
        "tools.0.custom.input_schema: Extra inputs are not permitted",
        "messages.65.content.1.tool_use.text: Extra inputs are not permitted",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead.",
        "Unknown parameter: 'response_format'.",
        "Unknown parameter: 'text.format'.",
        "output_config.format: Extra inputs are not permitted",
        "tool_choice is not supported by this model",
        'Invalid JSON payload received. Unknown name "const" at \'tools[0]'
        ".function_declarations[5].parameters.properties[8].value': Cannot find field.",
        "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens",
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        "Your user is not allowed to use this model",
        "This model does not support image input",
        "the store is not available in your region",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
def test_what_names_no_feature(text: str) -> None:
    assert names(text) == []


def test_a_list_of_validation_errors_names_each() -> None:
    text, _ = read_error(PYDANTIC.encode())
    assert [f.name for f in named_in(text, "chat")] == [
        "frequency_penalty",
        "messages[*].reasoning_content",
    ]


@given(st.text(max_size=60), st.sampled_from(["chat", "messages", "responses", "gemini", "odd"]))
def test_any_message_can_be_read(text: str, dialect: str) -> None:
    named_in(ErrorText(text), dialect)
    names_image_rejection(text)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("reasoning.max_tokens", ["reasoning.max_tokens"]),
        ("thinking.type", ["thinking"]),
        ("metadata.user_id", ["metadata"]),
        ("response_format.json_schema.strict", ["response_format.json_schema.strict"]),
        ("text.format.strict", ["text.format.strict"]),
        ("response_format.json_schema.schema.properties.strict", []),
        ("response_format.json_schema.name", []),
        ("output_config.format.schema", []),
        ("tool_choice.strict", []),
        ("user/some-model.v", []),
        ("reasoning/effort", ["reasoning.effort"]),
    ],
)
def test_a_path_names_what_stands_inside(path: str, named: list[str]) -> None:
    assert names(f"Unknown parameter: '{path}'.") == named


def test_steps_that_only_the_error_has_are_passed_over() -> None:
    body = Body.parse(b'{"thinking":{"type":"adaptive","odd":1}}')
    left, _ = without_features(body, [], (Feature("thinking.adaptive.odd"),))
    assert json.loads(left.raw) == {"thinking": {"type": "adaptive"}}


def test_what_carries_the_request_is_never_optional() -> None:
    kept = "messages system tools tool_choice max_tokens response_format model stream input"
    assert FIELDS.isdisjoint([*kept.split(), "max_completion_tokens", "text", "contents"])
    assert not {"text.format", "output_config.format"} & INSIDE
    assert {"content", "role", "tool_calls"}.isdisjoint(ON_MESSAGES | ON_TOOLS)


FULL: dict[str, Any] = {
    "model": "m",
    "thinking": {"type": "adaptive", "display": "omitted"},
    "output_config": {"effort": "high", "format": {"type": "json_schema"}},
    "logprobs": True,
    "stream_options": {"include_usage": True},
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "tools": [
        {"name": "a", "defer_loading": True, "input_schema": {"strict": 1, "cache_control": 2}},
        {"type": "function", "function": {"name": "b", "strict": True}},
        {"type": "namespace", "tools": [{"name": "c", "strict": False}]},
    ],
    "messages": [
        {"role": "user", "content": "strict reasoning_content"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "name": "n"},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "content": [{"type": "text", "text": "t", "cache_control": {"type": "e"}}],
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "tool_use", "input": {"cache_control": 1}},
            ],
        },
    ],
}


def changed(name: str, *path: Any, body: dict[str, Any] = FULL) -> dict[str, Any]:
    """The full body after a feature has been dropped, checked against deletions by hand."""
    raw = json.dumps(body).encode()
    dropped, headers = without_features(Body.parse(raw), [], (Feature(name),))
    assert headers == []
    told: dict[str, Any] = json.loads(dropped.raw)
    wanted = json.loads(raw)
    for keys in path:
        holder = wanted
        for key in keys[:-1]:
            holder = holder[key]
        del holder[keys[-1]]
    assert told == wanted
    return told


def test_exactly_what_was_named_is_dropped() -> None:
    changed("logprobs", ("logprobs",))
    changed("thinking", ("thinking",))
    changed("thinking.display", ("thinking", "display"))
    changed("output_config", ("output_config", "effort"))
    changed("output_config.effort", ("output_config", "effort"))
    changed("stream_options.include_usage", ("stream_options",))
    changed("tools[*].defer_loading", ("tools", 0, "defer_loading"))
    changed(
        "tools[*].strict", ("tools", 1, "function", "strict"), ("tools", 2, "tools", 0, "strict")
    )
    changed("messages[*].reasoning_content", ("messages", 1, "reasoning_content"))
    changed("messages[*].name", ("messages", 1, "name"))
    changed(
        "cache_control",
        ("system", 0, "cache_control"),
        ("messages", 2, "content", 0, "cache_control"),
        ("messages", 2, "content", 0, "content", 0, "cache_control"),
    )
    changed("cache_control.ttl", ("system", 0, "cache_control", "ttl"))
    changed(
        "generationConfig.thinkingConfig.thinkingLevel",
        ("generationConfig", "thinkingConfig"),
        body={"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}, "topP": 1}},
    )


def test_one_word_of_the_beta_header_goes() -> None:
    headers: Headers = [("accept", "*/*"), ("Anthropic-Beta", "a-1, b-2,c-3"), ("x", "b-2")]
    body = Body.parse(b"{}")

    def left(*words: str) -> Headers:
        betas = [Feature("anthropic-beta", word) for word in words]
        return without_features(body, headers, betas)[1]

    assert left("b-2")[1] == ("Anthropic-Beta", "a-1,c-3")
    assert left("a-1", "b-2", "c-3") == [("accept", "*/*"), ("x", "b-2")] == left("")
    assert left("b") is headers


def test_a_request_without_the_feature_stays_the_same_object() -> None:
    body, headers = Body.parse(b'{ "model":"m", "tools":[{"a":1.50}] }'), [("a", "b")]
    features = [Feature(name) for name in (*FIELDS, *INSIDE)]
    features += [Feature(f"tools[*].{name}") for name in ON_TOOLS]
    features += [Feature("anthropic-beta"), Feature("cache_control.ttl")]
    same = without_features(body, headers, features)
    assert same[0] is body
    assert same[1] is headers


@given(
    shaped("tools", "messages", "system", "content", "cache_control", "strict", "ttl", "thinking")
)
def test_any_body_can_be_stripped(value: Any) -> None:
    try:
        body = Body.parse(
            json.dumps({"tools": value, "messages": value, "thinking": value}).encode()
        )
    except ValueError:
        return
    for name in ("tools[*].strict", "messages[*].name", "cache_control", "cache_control.ttl"):
        without_features(body, [], (Feature(name),))
    without_features(body, [], (Feature("thinking.display"), Feature("output_config")))


@pytest.mark.parametrize(
    "text",
    [
        "image_format_unsupported",
        "Multimodal processing is not enabled for this model",
        "this model does not support image input (ref: b8bd630e)",
        "Model do not support image input.",
        "The model does not support images",
        "Invalid image. The model does not support vision input.",
        "This model doesn't support the image content block.",
        "claude-2 does not support image content",
        "Model only supports text input and does not support multimodal",
        "No endpoints found that support image input",
        "messages.1.content must be a string",
        "message[4].content must be a string",
        "'messages.0' : for 'role:user' the following must be satisfied[('messages.0.content' :"
        " value must be a string)]",
        "body.messages.0.user.content.str: Input should be a valid string",
        "Failed to deserialize the JSON body into the target type: messages[137]: unknown variant"
        " `image_url`, expected `text` at line 1 column 9",
        "Invalid content type. image_url is only supported by certain models.",
        "crusoe/qwen is not a multimodal model",
        "At most 0 image(s) may be provided in one prompt.",
        "image input is not supported - hint: if this is unexpected, you may need the mmproj",
        "Image inputs are not supported by this model.",
        "Image input modality is not enabled for models/gemma-3-1b-it",
        "Image content is not allowed for this model",
        "Unsupported content part type for text-only server: image_url",
        "Content type 'image_url' is not supported by this model",
        "Only 'text' content type is supported",
        "messages.content.type 参数非法，取值范围 ['text']",
        "此模型不支持图像输入",
    ],
)
def test_an_image_rejection_is_recognised(text: str) -> None:
    assert names_image_rejection(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The provided image format is not supported",
        "Unsupported image format: use png, jpeg, gif or webp",
        "This model does not support image/tiff",
        "The model does not support image format webp",
        "Invalid image_url: image exceeds the maximum size",
        "image_url must be a valid URL",
        "messages.0.content.1.image.source.base64: invalid base64 data",
        "Could not process image",
        "context_management: Extra inputs are not permitted",
        "tools.0.function.name must be a string",
        "prompt is too long",
    ],
)
def test_a_bad_image_is_no_rejection_of_images(text: str) -> None:
    assert not names_image_rejection(text)


@pytest.mark.parametrize(
    ("told", "feature", "ours"),
    [
        (
            'Invalid JSON payload received. Unknown name "thinkingLevel" at'
            " 'generation_config.thinking_config': Cannot find field.",
            "generationConfig.thinkingConfig.thinkingLevel",
            "reasoning_effort",
        ),
        (
            "Invalid JSON payload received. Unknown name \"topK\" at 'generation_config': Cannot"
            " find field.",
            "generationConfig.topK",
            "top_k",
        ),
        (
            "thinking.display: Extra inputs are not permitted",
            "thinking.display",
            "reasoning_effort",
        ),
        ("metadata: Extra inputs are not permitted", "metadata", "user"),
    ],
)
def test_a_chat_caller_s_word_for_what_another_dialect_refuses(
    told: str, feature: str, ours: str
) -> None:
    [named] = named_in(told, "chat")
    assert named == Feature(feature)
    assert Feature(ours) in in_other_words(named)
    assert named not in in_other_words(named)


def test_what_has_one_name_only_has_no_other() -> None:
    assert in_other_words(Feature("temperature")) == (Feature("generationConfig.temperature"),)
    assert in_other_words(Feature("service_tier")) == ()
