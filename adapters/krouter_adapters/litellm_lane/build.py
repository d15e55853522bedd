"""One request on its way through a class of LiteLLM's, in the order in which LiteLLM does it.

Some providers' classes leave out the address, the header or the body; what they leave to other
code of LiteLLM's is done here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from krouter.adapter import Unsendable
from krouter.body import dump
from krouter.providers import extended
from krouter_adapters.litellm_lane.classes import Classes
from krouter_adapters.litellm_lane.read import Reader, ReadReply, chat_from_generic
from krouter_adapters.litellm_lane.translate.shapes import as_dicts
from krouter_adapters.litellm_lane.ways import Aim


@dataclass(slots=True)
class Written:
    """What LiteLLM's classes made of a request."""

    url: str
    headers: Mapping[str, Any]
    data: dict[str, Any]
    read: ReadReply
    chunks: Callable[[], Reader]
    names: Mapping[str, str]
    fake: bool


class NoLog:
    """All that the classes ask of LiteLLM's logging object."""

    def __init__(self, optional: dict[str, Any], params: dict[str, Any]) -> None:
        self.optional_params = optional
        self.litellm_params = params
        self.model_call_details: dict[str, Any] = {}

    def pre_call(self, *args: Any, **fields: Any) -> None: ...

    post_call = record_native_bedrock_guardrail = pre_call


@dataclass(slots=True)
class Build:
    """One request on its way through a class, in the order in which LiteLLM itself does it."""

    library: Classes
    goal: Aim
    config: Any
    model: str
    messages: list[Any]
    optional: dict[str, Any]
    key: str
    base: str
    stream: bool

    def plan(self) -> Written:
        optional = self.optional
        params: dict[str, Any] = {
            "api_key": self.key,
            "api_base": self.base,
            "custom_llm_provider": self.goal.name,
            "drop_params": True,
            "metadata": None,
            "model_info": None,
            "thought_signature_in_tool_call_id": False,
            "gigachat_access_token": self.key,
        }
        json_mode = optional.get("json_mode", False)
        if self.goal.name != "bedrock":
            optional.pop("json_mode", None)
        extra = optional.pop("extra_body", None) or {}
        headers = dict(optional.pop("extra_headers", None) or {})
        optional.pop("max_retries", None)
        fields = {
            "model": self.model,
            "messages": self.messages,
            "optional_params": optional,
            "litellm_params": params,
        }
        fake = optional.pop("fake_stream", False) is True or self.config.should_fake_stream(
            model=self.model, custom_llm_provider=self.goal.name, stream=self.stream
        )
        streams = self.stream and not fake
        build: Callable[..., _Outcome] = _BUILDERS.get(self.goal.name, _generic)
        url, headers, data = build(self, fields, headers, extra, streams)
        if self.goal.url is None and _ASTRAY.search(url):
            raise Unsendable(f"A model of {self.goal.name} is not called {self.model}.")
        log: Any = NoLog(optional, params)
        return Written(
            url=self.goal.url or url,
            headers=headers,
            data=data,
            read=self._read_reply(fields, data, log, json_mode),
            chunks=partial(self._reader, fields, log, json_mode),
            names=params.get(self.library.reverse_names) or {},
            fake=self.stream and fake,
        )

    def _read_reply(
        self, fields: dict[str, Any], data: dict[str, Any], log: NoLog, json_mode: bool
    ) -> ReadReply:
        def read(reply: dict[str, Any]) -> dict[str, Any]:
            read = self.config.transform_response(
                raw_response=self.library.http_response(200, content=dump(reply)),
                model_response=self.library.response(),
                logging_obj=log,
                request_data=data,
                encoding=None,
                api_key="",
                json_mode=json_mode,
                **fields,
            )
            return read.model_dump(exclude_none=True)  # type: ignore[no-any-return]

        return read

    def _reader(self, fields: dict[str, Any], log: NoLog, json_mode: bool) -> Reader:
        parse = self._parser(fields, log, json_mode)

        def chunks(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
            chunk = parse(event)
            if chunk is None:
                return
            if hasattr(chunk, "model_dump"):
                yield chunk.model_dump(exclude_none=True)
            else:
                yield chat_from_generic(chunk)

        return chunks

    def _parser(self, fields: dict[str, Any], log: NoLog, json_mode: bool) -> Any:
        if self.goal.body == "gemini":
            return self.library.gemini_events(iter(()), True, log).chunk_parser
        if self.goal.name == "bedrock":
            return self.library.bedrock_events(self.model, json_mode).converse_chunk_parser
        iterator = self.config.get_model_response_iterator_for_request(
            streaming_response=iter(()),
            sync_stream=True,
            json_mode=json_mode,
            optional_params=fields["optional_params"],
            logging_obj=log,
        )
        return iterator.chunk_parser


_Outcome = tuple[str, dict[str, Any], dict[str, Any]]


def _generic(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """Header, URL and body as almost every class makes them."""
    config, optional, base = build.config, build.optional, build.base
    headers = config.validate_environment(
        headers=headers, api_key=build.key, api_base=base, **fields
    )
    if type(config) is build.library.openai_config:
        url = f"{base.rstrip('/')}/chat/completions"
    else:
        url = config.get_complete_url(
            api_base=base,
            api_key=build.key,
            model=build.model,
            optional_params=optional,
            litellm_params=fields["litellm_params"],
            stream=streams,
        )
    options = optional.pop("stream_options", None)
    data = config.transform_request(headers=headers, **fields)
    data |= config.transform_extra_body(
        extra_body=extra,
        request=data,
        model=build.model,
        litellm_params=fields["litellm_params"],
    )
    if "stream" in data:
        data["stream"] = streams
    if streams and config.supports_stream_param_in_request_body:
        data["stream"] = True
        if options and build.goal.body == "chat":
            data["stream_options"] = options
    return url, headers, data


def _anthropic(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    build.optional.pop("stream", None)
    build.optional.pop("stream_options", None)
    url = build.base
    headers = build.config.validate_environment(
        headers=headers, api_key=build.key, api_base=url, **fields
    )
    data = build.config.transform_request(headers=headers, **fields)
    headers, data = build.library.filter_beta(
        headers=headers, request_data=data, provider="anthropic", api_base=url
    )
    data = dict(
        build.library.strip_gated(
            data, headers, drop_params=True, model=build.model, provider="anthropic"
        )
    )
    data |= extra
    if streams:
        data["stream"] = True
    return url, dict(headers), data


def _gemini(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    build.optional.pop("stream", None)
    build.optional.pop("stream_options", None)
    rest, instruction = _instructed(build.model, fields["messages"])
    data = build.library.gemini_body(
        custom_llm_provider=build.goal.name, cached_content=None, **{**fields, "messages": rest}
    )
    model = quote(build.model.removeprefix("models/"), safe="/:;=,@")
    verb = "streamGenerateContent" if streams else "generateContent"
    is_google_ai = build.goal.name == "gemini"
    url = extended(
        build.base, f"{'' if is_google_ai else '/publishers/google'}/models/{model}:{verb}"
    )
    if streams:
        url += "&alt=sse" if "?" in url else "?alt=sse"
    signed = {"x-goog-api-key": build.key} if is_google_ai else _bearer(build.key)
    return url, {**headers, **signed}, {**data, **instruction}


def _instructed(model: str, messages: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The messages without the system's, and those as Gemini's field for them, which the class uses
    only for models that it knows. Google refuses the field for Gemma."""
    if "gemma" in model.lower():
        return messages, {}
    rest = [message for message in messages if message.get("role") != "system"]
    texts = [
        {"text": part["text"]}
        for message in messages
        if message.get("role") == "system"
        for part in _text_parts(message.get("content"))
        if part.get("text")
    ]
    said = {"system_instruction": {"parts": texts}} if texts else {}
    return rest or [{"role": "user", "content": "."}], said


def _text_parts(content: Any) -> list[dict[str, Any]]:
    return [{"text": content}] if isinstance(content, str) else as_dicts(content)


# A step up, however it is written, or the end of what is sent.
_ASTRAY = re.compile(r"(?:[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:[/\\?;]|%2f|%5c|%3b|$)|#", re.I)


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


AZURE_VERSION = "2025-04-01-preview"


def _azure(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """LiteLLM leaves Azure's address and header to another library."""
    optional = build.optional
    optional.pop("stream", None)
    options = optional.pop("stream_options", None)
    data = build.config.transform_request(headers=headers, **fields) | extra
    if streams:
        data["stream"] = True
        if options:
            data["stream_options"] = options
    base, _, query = build.base.partition("?")
    base = base.rstrip("/")
    if base.endswith("/openai/v1"):
        url = f"{base}/chat/completions"
    else:
        version = query or f"api-version={AZURE_VERSION}"
        url = f"{base}/openai/deployments/{quote(build.model, safe='')}/chat/completions?{version}"
    return url, {**headers, "api-key": build.key}, data


def _bedrock(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """Bedrock's Converse API. An access key signs the request afterwards."""
    for name in ("stream", "stream_options"):
        build.optional.pop(name, None)
    model = build.library.bedrock.encode_model_id(model_id=build.model)
    data = build.config._transform_request(headers=headers, **fields)
    verb = "converse-stream" if streams else "converse"
    url = extended(build.base, f"/model/{model}/{verb}")
    return url, {**headers, **_bearer(build.key)}, dict(data)


def _sagemaker(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """The class takes the address from the environment."""
    build.optional.pop("stream", None)
    options = build.optional.pop("stream_options", None)
    headers = build.config.validate_environment(
        headers=headers, api_key=build.key, api_base=build.base, **fields
    )
    data = build.config.transform_request(headers=headers, **fields) | extra
    if streams:
        data["stream"] = True
        if options and build.config.supports_stream_param_in_request_body:
            data["stream_options"] = options
    verb = "invocations-response-stream" if streams else "invocations"
    url = f"{build.base.rstrip('/')}/endpoints/{quote(build.model, safe='')}/{verb}"
    return url, headers, data


def _watsonx(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    url, headers, data = _generic(build, fields, headers, extra, streams)
    return url, headers, {"model_id": build.model, **data}


def _bytez(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """The class knows one address only."""
    _, headers, data = _generic(build, fields, headers, extra, streams)
    return extended(build.base, f"/{build.model}"), headers, data


def _nlp_cloud(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    build.base = extended(build.base, f"/{build.model}/generation")
    return _generic(build, fields, headers, extra, streams)


def _without_version(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """The class adds the version itself."""
    build.base = build.base.rstrip("/").removesuffix("/v1")
    return _generic(build, fields, headers, extra, streams)


def _gradient_ai(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    """For its common address the class would rather take one of the environment."""
    url, headers, data = _generic(build, fields, headers, extra, streams)
    if urlsplit(build.base).hostname == "inference.do-ai.run":
        url = extended(build.base.rstrip("/").removesuffix("/v1"), "/v1/chat/completions")
    return url, headers, data


def _oobabooga(
    build: Build, fields: dict[str, Any], headers: dict[str, Any], extra: Any, streams: bool
) -> _Outcome:
    build.base = f"{build.base.rstrip('/').removesuffix('/v1')}/v1"
    return _generic(build, fields, headers, extra, streams)


_BUILDERS: Mapping[str, Callable[..., _Outcome]] = {
    "anthropic": _anthropic,
    "gemini": _gemini,
    "vertex_ai": _gemini,
    "vertex_ai_beta": _gemini,
    "azure": _azure,
    "bedrock": _bedrock,
    "bytez": _bytez,
    "docker_model_runner": _without_version,
    "gradient_ai": _gradient_ai,
    "heroku": _without_version,
    "sagemaker_chat": _sagemaker,
    "sagemaker_nova": _sagemaker,
    "watsonx": _watsonx,
    "nlp_cloud": _nlp_cloud,
    "oobabooga": _oobabooga,
}
