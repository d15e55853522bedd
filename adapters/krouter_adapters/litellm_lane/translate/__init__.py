"""Chat and messages in each other's words: pure functions over requests, replies and streams.

LiteLLM supplies the base of a request; what it loses or garbles is carried here, and what cannot
be carried is named in `dropped`. Streams are krouter's own state machines.
"""

from krouter_adapters.litellm_lane.translate.chat_stream import ChatToMessages
from krouter_adapters.litellm_lane.translate.from_chat import (
    finish_gemini_request,
    finish_messages_request,
    prepare_chat,
)
from krouter_adapters.litellm_lane.translate.from_messages import messages_to_chat, takes
from krouter_adapters.litellm_lane.translate.messages_stream import (
    MessagesToChat,
    chat_chunk,
    chat_error,
)
from krouter_adapters.litellm_lane.translate.replies import (
    chat_reply_to_messages,
    messages_reply_to_chat,
)
from krouter_adapters.litellm_lane.translate.shapes import Translated, beside_calls, prefixed_id

__all__ = [
    "ChatToMessages",
    "MessagesToChat",
    "Translated",
    "beside_calls",
    "chat_chunk",
    "chat_error",
    "chat_reply_to_messages",
    "finish_gemini_request",
    "finish_messages_request",
    "messages_reply_to_chat",
    "messages_to_chat",
    "prefixed_id",
    "prepare_chat",
    "takes",
]
