"""Requests as LiteLLM's classes write them, ready to be sent.

No class is given an empty key or address, which it would replace with one of the environment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from msgspec.json import decode

from krouter.adapter import Call, Target, Unsendable
from krouter.body import dump
from krouter.wire import Headers, Incoming, Outgoing, Wire
from krouter_adapters.litellm_lane.aws import SIGNED, AccessKey, access_key, region_of
from krouter_adapters.litellm_lane.build import Build, Written
from krouter_adapters.litellm_lane.classes import Classes
from krouter_adapters.litellm_lane.json_tool import has_json_tool
from krouter_adapters.litellm_lane.load import hush
from krouter_adapters.litellm_lane.outline import Asked, Outlines, Told, told
from krouter_adapters.litellm_lane.own_call import Ask, Line, called
from krouter_adapters.litellm_lane.replicate import Prediction, inputs, parameters, prompt_of
from krouter_adapters.litellm_lane.reply import received
from krouter_adapters.litellm_lane.request import (
    CREDENTIALS,
    NO_KEY,
    Draft,
    drafted,
    headers_of,
    keep_budget,
    lost_fields,
    lost_media,
    named_for,
    with_params,
    within,
)
from krouter_adapters.litellm_lane.telling import Shape
from krouter_adapters.litellm_lane.translate import (
    chat_to_responses,
    finish_gemini_request,
    finish_messages_request,
)
from krouter_adapters.litellm_lane.ways import Aim, Form

_log = logging.getLogger("krouter")

_ALLOWED = ("tools", "tool_choice", "parallel_tool_calls")
"""Else dropped for a model LiteLLM does not know to call functions."""

# Their classes have no way to read a stream, or the stream never says that it is over.
UNSTREAMED = frozenset(("bytez", "nlp_cloud", "a2a", "databricks_agent"))


_MODELS = 1024
"""Of as many it is remembered what LiteLLM knows of them."""


@dataclass(frozen=True, slots=True)
class Built:
    """A request ready to be sent, and what is needed to read the reply."""

    request: Outgoing
    shape: Shape
    signer: AccessKey | None = None


class Library(Classes):
    """LiteLLM at work. Making one takes seconds and belongs into a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._outlines = Outlines()
        self._is_outlined = lru_cache(_MODELS)(self._outlined_class)
        self._supported = lru_cache(_MODELS)(self._supported_by)

    async def call(self, call: Call, target: Target, goal: Aim, wire: Wire) -> Incoming:
        """The answer of LiteLLM's own call."""
        with _refusing(target.provider.name):
            draft = drafted(call, target, goal, self.adapt)
        chat = draft.chat
        params = parameters(chat)
        own = inputs(chat, target.params)
        for name in target.provider.drop:
            params.pop(name, None)
            own.pop(name, None)
        dropped = [*draft.dropped, *lost_fields(chat, {**params, **own})]
        key = target.secret or NO_KEY
        headers = headers_of(call, target, goal, {"authorization": f"Token {key}"})
        prediction = Prediction(goal.base, target.model, headers, own)
        ask = Ask(goal.name, goal.base, key, prompt_of(chat["messages"]), params)
        line = Line(self.calls, prediction, wire, target.connect)
        reply = await called(line, ask, target.model, stream=call.stream)
        lost = named_for(call.dialect.name, dropped)
        shape = Shape(goal, target.model, {}, lost, told=draft.told)
        return received(reply, call, shape)

    def request(self, call: Call, target: Target, goal: Aim) -> Built:
        """The request to send. Raises Unsendable, whatever it is that the classes dislike."""
        hush()
        with _refusing(target.provider.name):
            return self._request(call, target, goal)

    def _request(self, call: Call, target: Target, goal: Aim) -> Built:
        draft = drafted(call, target, goal, self.adapt)
        if goal.body == "responses":
            return self._for_responses(call, target, goal, draft)
        unstreamed = goal.name in UNSTREAMED
        if unstreamed:
            draft.chat.pop("stream_options", None)
        stream = call.stream and not unstreamed
        asked = dict(draft.chat)
        if call.dialect.name == "messages":
            asked.pop("prompt_cache_key", None)  # made of the session's id
        signer = access_key(goal, target.secret)
        key = NO_KEY if signer else target.secret or NO_KEY
        plan = self.plan(goal, target.model, draft.chat, key, stream)
        as_tool = has_json_tool(plan.data)
        if as_tool and (asked.get("tools") or goal.body != "messages"):
            # The class forces the one tool that stands for the format, so no other could be called,
            # and only a message is read back from its call.
            draft = drafted(call, target, goal, self.adapt)
            draft.dropped.append("response_format")
            del draft.chat["response_format"]
            plan, as_tool = self.plan(goal, target.model, draft.chat, key, stream), False
        dropped = [*draft.dropped, *self._lost(goal, target.model, asked, plan.data)]
        data = plan.data
        if goal.body == "chat":
            data = with_params(data, target)
        if goal.body == "messages":
            known = self.litellm.model_cost.get(target.model, {})
            most = known.get("max_output_tokens")
            data, lost = finish_messages_request(data, draft.original, most)
            dropped += lost
        elif goal.body == "gemini":
            data, lost = finish_gemini_request(data, draft.original)
            dropped += lost
        if goal.body == "gemini":
            keep_budget(data, call.body.value("thinking"))
        if goal.name == "openrouter" and "usage" not in draft.chat:
            data.pop("usage", None)  # a wish of LiteLLM's
        for name in target.provider.drop:
            data.pop(name, None)
        headers = headers_of(call, target, goal, plan.headers)
        body = dump(data)
        if signer:
            headers = self._signed(goal, signer, plan.url, headers, body)
        shape = Shape(
            aim=goal,
            model=target.model,
            names=_names(draft, plan.names),
            dropped=named_for(call.dialect.name, dropped),
            read=plan.read,
            chunks=plan.chunks,
            fake=call.stream and (unstreamed or plan.fake),
            json_tool=as_tool,
            told=draft.told,
            customs=frozenset(draft.customs),
        )
        return Built(Outgoing(plan.url, headers, body), shape, signer)

    def _for_responses(self, call: Call, target: Target, goal: Aim, draft: Draft) -> Built:
        """Of LiteLLM's own classes for responses, none sends reasoning back."""
        maker, known = target.provider.maker, self.litellm.model_cost.get(target.model)
        made = chat_to_responses(
            draft.chat,
            maker,
            summary=call.dialect.name != "chat",
            thinks=not known or bool(known.get("supports_reasoning")),
            customs=draft.customs,
        )
        data = {**made.body, **({"stream": True} if call.stream else {})}
        for name in target.provider.drop:
            data.pop(name, None)
        assert goal.url is not None, "a provider's own address"
        dropped = named_for(call.dialect.name, [*draft.dropped, *made.dropped])
        shape = Shape(
            aim=goal,
            model=target.model,
            names=draft.names,
            dropped=dropped,
            maker=maker,
            told=draft.told,
            customs=frozenset(draft.customs),
        )
        return Built(Outgoing(goal.url, headers_of(call, target, goal, {}), dump(data)), shape)

    def _signed(
        self, goal: Aim, key: AccessKey, url: str, headers: Headers, body: bytes
    ) -> Headers:
        """The headers with a signature in the place of a credential."""
        signed = self.sign(
            lambda: self.credentials(key.id, key.secret, key.token or None),
            SIGNED[goal.name],
            region_of(goal),
            url,
            body,
            {"content-type": "application/json"},
        )
        added = {name.lower(): value for name, value in signed.headers.items()}
        added.pop("content-length", None)
        kept = [pair for pair in headers if pair[0] not in CREDENTIALS and pair[0] not in added]
        return [*kept, *added.items()]

    def _lost(
        self, goal: Aim, model: str, asked: Mapping[str, Any], sent: Mapping[str, Any]
    ) -> list[str]:
        if goal.body == "chat":
            return lost_fields(asked, sent) + lost_media(asked, sent)
        passed = self._supported(goal.name, model) | _LATER.get(goal.body, frozenset())
        return lost_fields(asked, within(goal, sent, passed))

    def plan(self, goal: Aim, model: str, chat: dict[str, Any], key: str, stream: bool) -> Written:
        """What goes out for a chat body, which is used up. `key` must not be empty."""
        messages = chat.pop("messages")
        chat.pop("model", None)
        told = self._told(goal, model, messages)
        if told is not None:
            fields = dump(chat)
            asked = Asked(goal, model, key, stream, told.kind, fields)
            written = self._outlines.completed(
                asked, told, lambda said: self.write(goal, model, said, decode(fields), key, stream)
            )
            if written is not None:
                return written
        return self.write(goal, model, messages, chat, key, stream)

    def _supported_by(self, name: str, model: str) -> frozenset[str]:
        """Parameters that a class knows of a model."""
        return frozenset(self.config(name, model).get_supported_openai_params(model) or ())

    def _told(self, goal: Aim, model: str, messages: list[Any]) -> Told | None:
        if self.litellm.modify_params or not self._is_outlined(goal.name, goal.body, model):
            return None
        return told(goal.body, messages)

    def _outlined_class(self, name: str, form: Form, model: str) -> bool:
        """Whether plain conversations for a class are written here."""
        return name == "anthropic" or (form == "chat" and self.passes_on(name, model))

    def write(
        self,
        goal: Aim,
        model: str,
        messages: list[Any],
        chat: dict[str, Any],
        key: str,
        stream: bool,
    ) -> Written:
        """What a class of LiteLLM's makes of a chat body, which is used up, with `messages`."""
        name = goal.name
        if name.startswith("vertex_ai") and not model.startswith("gemini"):
            raise Unsendable(f"Of {name} only Gemini models can be reached, not {model}.")
        model, _, _, base = self.resolve(
            model=model, custom_llm_provider=name, api_key=key, api_base=goal.base
        )
        config = self.config(name, model)
        messages = list(
            config.translate_developer_role_to_system_role(
                messages=messages,
                model=model,
                custom_llm_provider=name,
                api_base=base,
                model_info=None,
            )
        )
        allowed = [k for k in _ALLOWED if k in chat] if goal.body == "chat" else []
        optional = self.optional(
            model=model,
            custom_llm_provider=name,
            messages=messages,
            stream=stream,
            drop_params=True,
            allowed_openai_params=allowed,
            **chat,
            **({"token": key} if name == "watsonx" else {}),
        )
        return Build(self, goal, config, model, messages, optional, key, base, stream).plan()


# What the classes of a body carry although their list of parameters does not name it.
_LATER: Mapping[str, frozenset[str]] = {
    "messages": frozenset(("system", "max_tokens", "thinking")),
    "gemini": frozenset(("safety_settings", "thinking")),
}


def _names(draft: Draft, cleaned: Mapping[str, str]) -> dict[str, str]:
    """Tool names as the provider says them → as the caller knows them."""
    return {**draft.names, **{sent: draft.names.get(own, own) for sent, own in cleaned.items()}}


@contextmanager
def _refusing(provider: str) -> Iterator[None]:
    """Whatever it is that LiteLLM dislikes about a request makes it Unsendable."""
    try:
        yield
    except Unsendable:
        raise
    except Exception as error:
        _log.debug("LiteLLM's classes refuse a request to %s", provider, exc_info=True)
        raise Unsendable(_refusal(provider, error)) from None


def _refusal(provider: str, error: Exception) -> str:
    """What a class dislikes, in one line; LiteLLM's texts name its own classes and hints."""
    text = str(getattr(error, "message", "") or error).strip().split("\n")[0]
    text = text.removeprefix("litellm.").strip()[:500]
    kind = type(error).__name__
    said = f"{kind}: {text}" if text and not text.startswith(kind) else text or kind
    return f"This request cannot be carried to {provider} ({said})."
