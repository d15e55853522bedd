"""What is used of LiteLLM: its classes and functions, under one name each.

Other files of LiteLLM's may be called otherwise in its next release; a test tells which.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from msgspec.json import decode

from krouter.body import dump
from krouter_adapters.litellm_lane.kept import Kept
from krouter_adapters.litellm_lane.load import load_litellm
from krouter_adapters.litellm_lane.own_call import Calls
from krouter_adapters.litellm_lane.replicate import MODEL

_MOST_ADAPTED = 2 << 20
_Adapted = tuple[dict[str, Any], dict[str, str]]
_OF_MESSAGES = (
    "transform_request",
    "translate_developer_role_to_system_role",
    "remove_cache_control_flag_from_messages_and_tools",
    "_transform_messages",
    "_messages_and_tools_in_cache_mark_dialect",
    "_prompt_cache_ordered_messages",
)
_PASSING_ON = frozenset(("zai", "bigmodel", "openrouter", "minimax"))
"""These look for marks of caches alone."""


class Classes:
    """LiteLLM, imported. Making one takes seconds and belongs into a thread of its own."""

    def __init__(self) -> None:
        litellm = load_litellm()
        import httpx
        from litellm.anthropic_beta_gated_fields import strip_beta_gated_request_body
        from litellm.anthropic_beta_headers_manager import update_request_with_filtered_beta
        from litellm.litellm_core_utils.get_llm_provider_logic import get_llm_provider
        from litellm.llms.anthropic.chat.transformation import ANTHROPIC_TOOL_NAME_REVERSE_MAP_KEY
        from litellm.llms.anthropic.messages.adapters.transformation import AnthropicAdapter
        from litellm.llms.bedrock.base_aws_llm import sign_aws_json_post
        from litellm.llms.bedrock.chat.converse_handler import BedrockConverseLLM
        from litellm.llms.bedrock.chat.invoke_handler import AWSEventStreamDecoder
        from litellm.llms.custom_httpx.http_handler import get_async_httpx_client
        from litellm.llms.openai.chat.gpt_transformation import OpenAIGPTConfig
        from litellm.llms.openai.openai import OpenAIConfig
        from litellm.llms.openai_like.dynamic_config import create_config_class
        from litellm.llms.openai_like.json_loader import JSONProviderRegistry
        from litellm.llms.vertex_ai.gemini import (
            transformation,
            vertex_and_google_ai_studio_gemini,
        )
        from litellm.types.utils import LlmProviders, ModelResponse
        from litellm.utils import ProviderConfigManager, get_optional_params

        self.litellm: Any = litellm
        self.http_response: Any = httpx.Response
        self.strip_gated: Any = strip_beta_gated_request_body
        self.filter_beta: Any = update_request_with_filtered_beta
        self.reverse_names: str = ANTHROPIC_TOOL_NAME_REVERSE_MAP_KEY
        self.openai_config: Any = OpenAIConfig
        self._chat_config: Any = OpenAIGPTConfig
        self.response: Any = ModelResponse
        self.gemini_body: Any = transformation.transform_request_body
        self.gemini_events: Any = vertex_and_google_ai_studio_gemini.ModelResponseIterator
        bedrock: Any = BedrockConverseLLM
        self.bedrock: Any = bedrock()
        self.bedrock_events: Any = AWSEventStreamDecoder
        self.credentials: Any = import_module("botocore.credentials").Credentials
        self.sign: Any = sign_aws_json_post
        self.resolve: Any = get_llm_provider
        self.optional: Any = get_optional_params
        self.adapter: Any = AnthropicAdapter()
        self._adapted: Kept[bytes, bytes] = Kept(_MOST_ADAPTED)
        self.create_config: Any = create_config_class
        self.json_providers: Any = JSONProviderRegistry
        self.providers: Any = LlmProviders
        self.configs: Any = ProviderConfigManager
        self._json_configs: dict[str, Any] = {}
        self.async_client: Any = get_async_httpx_client
        litellm.custom_prompt_dict[MODEL] = {}
        self.calls = Calls(
            litellm.acompletion,
            partial(self.async_client, LlmProviders.REPLICATE, {"timeout": 600.0}),
            lambda transport: httpx.AsyncClient(transport=transport, trust_env=False),
            httpx.Response,
        )

    def adapt(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """A messages body in chat form, and the long tool names by the short ones sent."""
        asked = dump(body)
        return decode(
            self._adapted.get(asked, len(asked), lambda: self._adapt(body)), type=_Adapted
        )

    def _adapt(self, body: dict[str, Any]) -> bytes:
        chat, names = self.adapter.translate_completion_input_params_with_tool_mapping(body)
        return dump((dict(chat), dict(names or {})))

    def passes_on(self, name: str, model: str) -> bool:
        """Whether the class for a provider that speaks chat passes plain messages on as they are:
        it leaves them to the class that all of these are made of, or is known to."""
        config = type(self.config(name, model))
        return name in _PASSING_ON or all(
            getattr(config, method, None) is getattr(self._chat_config, method)
            for method in _OF_MESSAGES
        )

    def config(self, name: str, model: str) -> Any:
        """The class that LiteLLM has for chat with a provider."""
        if name == "lemonade":
            return self.litellm.LemonadeChatConfig()
        try:
            known = self.providers(name)
        except ValueError:  # some names stand only in LiteLLM's table of JSON providers
            if name not in self._json_configs:
                made = self.create_config(self.json_providers.get(name))
                self._json_configs[name] = made()
            return self._json_configs[name]
        return self.configs.get_provider_chat_config(model, known) or self.openai_config()
