"""Chat, messages, responses and gemini in each other's words: pure functions over requests,
replies and streams.

LiteLLM supplies the base of a request; what it loses or garbles is carried here, and what cannot
be carried is named in `dropped`. Streams are krouter's own state machines.
"""

from krouter_adapters.litellm_lane.translate.chat_stream import ChatToMessages
from krouter_adapters.litellm_lane.translate.custom_tools import (
    CustomCalls,
    customs_of,
    with_customs,
)
from krouter_adapters.litellm_lane.translate.from_chat import (
    finish_gemini_request,
    finish_messages_request,
    prepare_chat,
)
from krouter_adapters.litellm_lane.translate.from_gemini import gemini_to_chat, takes_of_gemini
from krouter_adapters.litellm_lane.translate.from_messages import messages_to_chat, takes
from krouter_adapters.litellm_lane.translate.from_responses import (
    responses_to_chat,
    takes_of_responses,
)
from krouter_adapters.litellm_lane.translate.gemini_stream import (
    ChatToGemini,
    chat_reply_to_gemini,
)
from krouter_adapters.litellm_lane.translate.messages_stream import (
    MessagesToChat,
    chat_chunk,
    chat_error,
)
from krouter_adapters.litellm_lane.translate.replies import (
    chat_reply_to_messages,
    messages_reply_to_chat,
)
from krouter_adapters.litellm_lane.translate.responses_events import (
    ChatToResponses,
    chat_reply_to_responses,
)
from krouter_adapters.litellm_lane.translate.responses_shapes import Told
from krouter_adapters.litellm_lane.translate.responses_stream import (
    ResponsesToChat,
    responses_reply_to_chat,
)
from krouter_adapters.litellm_lane.translate.responses_tools import nameless
from krouter_adapters.litellm_lane.translate.shapes import Translated, beside_calls, prefixed_id
from krouter_adapters.litellm_lane.translate.to_responses import chat_to_responses

__all__ = [
    "ChatToGemini",
    "ChatToMessages",
    "ChatToResponses",
    "CustomCalls",
    "MessagesToChat",
    "ResponsesToChat",
    "Told",
    "Translated",
    "beside_calls",
    "chat_chunk",
    "chat_error",
    "chat_reply_to_gemini",
    "chat_reply_to_messages",
    "chat_reply_to_responses",
    "chat_to_responses",
    "customs_of",
    "finish_gemini_request",
    "finish_messages_request",
    "gemini_to_chat",
    "messages_reply_to_chat",
    "messages_to_chat",
    "nameless",
    "prefixed_id",
    "prepare_chat",
    "responses_reply_to_chat",
    "responses_to_chat",
    "takes",
    "takes_of_gemini",
    "takes_of_responses",
    "with_customs",
]
