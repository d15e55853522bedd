"""An entry's parameters in a body of Gemini's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from krouter.body import Body

# An entry's parameters are chat's, whatever its callers speak; Gemini has a place of its own for
# them, and refuses fields it does not know.
_GEMINI_NAMES = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "stop": "stopSequences",
    "seed": "seed",
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_CONFIG = ("generationConfig", "generation_config")


def gemini_params(body: Body, params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by which an entry's `params` change a body of Gemini's."""
    config = {_GEMINI_NAMES[key]: value for key, value in params.items() if key in _GEMINI_NAMES}
    stop = config.get("stopSequences")
    if isinstance(stop, str):
        config["stopSequences"] = [stop]
    edits = {k: v for k, v in params.items() if k not in _GEMINI_NAMES and k != "model"}
    name = next((name for name in _CONFIG if name in body.fields), _CONFIG[0])
    own = edits.pop(_CONFIG[0], None)
    config.update(own if isinstance(own, dict) else {})
    if config:
        given = body.value(name)
        edits[name] = {**(given if isinstance(given, dict) else {}), **config}
    return edits
