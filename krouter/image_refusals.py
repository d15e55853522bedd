"""How an error says that a model takes no images."""

from __future__ import annotations

import re

from krouter.errortext import READ, stands_in, without_echo

_REFUSALS = re.compile(
    "|".join(
        (
            r"image_format_unsupported",
            r"multi-?modal processing is not enabled",
            r"(?:not|n't) support (?:the |an |any |receiving )?(?:image|vision|multi-?modal)s?"
            r"(?!/)(?! (?:format|type|size|dimension|resolution|url|file|media|mime|larger|with))",
            r"(?:not|n't) support (?:messages|content|inputs?) (?:with|of type|type) [`'\"]?image",
            r"no endpoints found that support image",
            r"content['\"]? ?:? (?:value )?must be a string",
            r"content(?:\.str)?: input should be a valid string",
            r"unknown variant [`'\"]?(?:image|image_url|input_image)[`'\"]?,? expected",
            r"image_url is only supported by certain models",
            r"is not a (?:multi-?modal|vision)",
            r"\bnot multi-?modal\b",
            r"at most 0 image",
            r"images?(?: inputs?| contents?| messages?)?(?: modality)? (?:is|are) not"
            r" (?:supported|enabled|allowed|available)(?: (?:by|for|on|with|in) |[.,;)]|$| -)",
            r"\bvision (?:input )?is (?:currently )?(?:not supported|disabled)",
            r"(?:content|part) type[^.]{0,40}[`'\"]?(?:image_url|input_image|image)[`'\"]?"
            r"[^.]{0,20} (?:is )?(?:not supported|unsupported|not allowed)",
            r"unsupported content (?:part )?types?[^.]{0,60}image",
            r"only (?:the )?(?:supports? )?[`'\"]?text[`'\"]?(?: (?:input|content|message)s?"
            r"(?: types?)?)? (?:is|are) supported",
            r"only supports? text\b",
            r"messages\.content\.type 参数非法",
            r"不支持(?:图片|图像|图文|视觉|多模态)",
            r"(?:model|endpoint) is text[- ]only",
        )
    ),
    re.I,
)


def names_image_rejection(text: str) -> bool:
    """Whether an error says that the model takes no images, rather than that one is bad."""
    return bool(_REFUSALS.search(text[:READ]))


def refuses_images_itself(text: str, request: bytes) -> bool:
    """Whether an error says so in words that do not stand in the request: short ones may be a
    quote that `without_echo` leaves in."""
    own = without_echo(text, request)[:READ]
    return any(not stands_in(said[0], request) for said in _REFUSALS.finditer(own))
