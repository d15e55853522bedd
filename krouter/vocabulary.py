"""The words of the APIs, which a record may hold: what else a caller or a provider has written may
be a part of the conversation, or a credential."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from krouter.error_table import RULES
from krouter.errortext import STANDS_FOR

OTHER = "a field of another name"
MOST_NAMES = 100

_MORE_CODES = """
    access_denied account_suspended bad_request badrequesterror billing_not_active
    capacity_exceeded concurrency_limit_exceeded content_filter_error deactivated_account forbidden
    free_tier_limit insufficient_balance insufficient_credits insufficient_funds internal_error
    internal_server_error invalid_image invalid_model invalid_parameter invalid_request
    invalid_value max_tokens_exceeded missing_required_parameter model_not_available
    no_available_channel organization_restricted out_of_credits overloaded payment_required
    quota_exceeded rate_limit rate_limit_reached requests service_unavailable_error timeout tokens
    too_many_requests unauthorized unknown_model unknown_parameter unprocessable_entity
    unsupported_model unsupported_parameter unsupported_value user_deactivated validation_error
    """.split()

CODES = frozenset(
    code.lower()
    for code in (*chain.from_iterable(r.codes for r in RULES), *STANDS_FOR, *_MORE_CODES)
)
"""Error codes and types as providers name them, in lower case."""

WORDS = frozenset(
    """
    add_generation_prompt additional additionalProperties age allowed annotations another anthropic
    anthropic-beta any any_of args arguments array assistant audio auto background bash beta bias
    blocks body budget budget_tokens builtin by cache cache_control cachedContent caller
    candidateCount candidates chat chat_template chat_template_kwargs choice choices citation
    citations client client_metadata code code_execution code_interpreter codeExecution
    codeExecutionResult computer computer_use config container container_upload content context
    context_management control conversation custom data declarations default defer_loading detail
    developer dialect dimensions direction disable_parallel_tool_use display document documents
    domain effort embedding enable enable_thinking enabled encrypted encrypted_content
    enterpriseWebSearch excluded executableCode explicit external extra extra_body fallback fetch
    field fields file file_data file_id file_search file_url fileData files filter finish_reason
    format frequency frequency_penalty frequencyPenalty function function_call function_call_output
    functionCall functionCallingConfig functionDeclarations functionResponse functions gemini
    generate generate_summary generation_config generationConfig googleMaps googleSearch
    googleSearchRetrieval grammar high high-effort id image image_generation image_generation_call
    image_url images in include include_obfuscation include_reasoning include_usage inference_geo
    inlineData input input_audio input_examples input_file input_image input_schema input_text
    instructions is_error item_reference items json json_object json_schema keep_alive key labels
    length limit list local_shell local_shell_call location logit logit_bias logprobs low max
    max_completion_tokens max_output_tokens max_tokens max_tool_calls maxItems maxLength
    maxOutputTokens mcp mcp_approval_request mcp_approval_response mcp_call mcp_list_tools
    mcp_servers mcp_tool_result mcp_tool_use mcp_toolset media media_resolution mediaResolution
    medium memory message messages metadata min_p minimal minItems minLength modalities mode model
    modelArmorConfig modify multiple n name namespace native no_additionalProperties none null
    number object of off omit on one oneOf openai options order other output output_audio
    output_config output_text parallel parallel_tool_calls parameters parametersJsonSchema params
    part partial parts pattern pdf penalty personality phase plugins preamble prediction prefill
    presence_penalty presencePenalty previous_response_id prompt prompt_cache_key
    prompt_cache_options prompt_cache_retention properties provider quality ranking raw reasoning
    reasoning_budget reasoning_content reasoning_details reasoning_effort reasoning_format
    reasoning_split redacted_thinking refusal repetition_penalty required response response_format
    responseJsonSchema responseLogprobs responseMimeType responseModalities responses responseSchema
    result results role root safeguards safety safety_identifier safetySettings schema search
    search_result seed server server_tool_use service_tier session shell shell_call signature
    signatures size source speech speechConfig speed stop stop_sequence stop_sequences stopSequences
    store stream stream_options strict string strings structured style summary summary_text system
    system_fingerprint systemInstruction tag task_budget temperature text text_editor textual
    thinking thinking_blocks thinking_budget thinking_token_budget thinkingBudget thinkingConfig
    thinkingLevel thought thoughts thoughtSignature tier title token tokens tool tool_call
    tool_calls tool_choice tool_config tool_reference tool_resources tool_result tool_search
    tool_use toolConfig tools top_a top_k top_logprobs top_p topK topP truncation type unique
    uniqueItems unnamed unsigned uri url url_citation urlContext usage user user_id user_location
    values verbosity video video_url videoMetadata visible web web_fetch web_search web_search_call
    web_search_options web_search_preview web_search_tool_result window with xhigh
    """.split()
)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_DATE = re.compile(r"_?(20\d{6}|20\d\d_\d\d_\d\d)$")


def known_code(code: str) -> str:
    """An error code as it may be kept; empty for one that is not known."""
    lowered = code.lower()
    return lowered if lowered in CODES else ""


def known_name(name: str) -> str:
    """The name of a part of a request, if every word in it is known; else `OTHER`."""
    words = (_DATE.sub("", word) for word in _WORD.findall(name))
    return name if all(word in WORDS for word in words) else OTHER


def known_names(names: Iterable[str]) -> list[str]:
    """Each once, at most `MOST_NAMES` of them."""
    return list(dict.fromkeys(map(known_name, names)))[:MOST_NAMES]
