from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from krouter_adapters.litellm_lane.load import load_litellm

Adapt = Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, str]]]


@pytest.fixture(scope="module")
def adapt() -> Adapt:
    """LiteLLM's own translation, which messages_to_chat is given."""
    load_litellm()
    from litellm.llms.anthropic.messages.adapters import transformation

    adapter = transformation.AnthropicAdapter()
    return adapter.translate_completion_input_params_with_tool_mapping  # type: ignore[return-value]
