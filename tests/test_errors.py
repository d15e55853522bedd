"""The error table: what real providers answer, and what follows from it."""

import json
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.error_table import RULES
from krouter.errors import Evidence, Failure, Fault, Lock, Scope, Verdict
from krouter.errortext import ErrorText, read_error, stands_for, without_echo
from krouter.verdict import classify

NOW = 1_800_000_000.0
REQUEST = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'


def judge(
    status: int | None,
    body: object,
    headers: dict[str, str] | None = None,
    request: bytes = REQUEST,
) -> Verdict:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    text, parsed = read_error(raw)
    return classify(Evidence(status, text, None, headers or {}, parsed), request, NOW)


def openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(message: str, kind: str = "invalid_request_error") -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(code: int, status: str, message: str, *details: object) -> Any:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def quota(name: str) -> Any:
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [{"quotaId": name, "quotaValue": "20"}]}


EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
VLLM_OUTPUT = (
    "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context"
    " length is 32768 tokens and your request has 200 input tokens (64000 > 32768 - 200)."
)
TPM = (
    "Request too large for gpt-4 in organization org-x on tokens per min (TPM): Limit 10000,"
    " Requested 12000. The input or output tokens must be reduced in order to run successfully."
)
RPD = (
    "Rate limit reached for model `llama-3.3-70b` in organization `org_x` service tier `on_demand`"
    " on requests per day (RPD): Limit 1000, Used 1000, Requested 1. Please try again in 1m26.4s."
)
ANTHROPIC_RATE = (
    "This request would exceed the rate limit for your organization of 30,000 input tokens per"
    " minute. You can see the response headers for current usage. Please reduce the prompt length"
    " or the maximum tokens requested, or try again later."
)

ANSWERS: list[tuple[int, int, Any]] = [
    # too large
    (3, 413, anthropic("Request exceeds the maximum size", "request_too_large")),
    (3, 413, "<html><head><title>413 Request Entity Too Large</title></head></html>"),
    (3, 413, ""),
    (3, 400, openai("Your input is long.", "context_length_exceeded")),
    (3, 400, openai("This model's maximum context length is 65536 tokens. However, you ask 70000")),
    (3, 400, anthropic("prompt is too long: 215000 tokens > 200000 maximum")),
    (
        3,
        400,
        anthropic(
            "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000,"
            " decrease input length or `max_tokens` and try again"
        ),
    ),
    (
        3,
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed.",
        ),
    ),
    (3, 400, {"message": "Input is too long for requested model."}),
    (3, 400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "n_ctx"}}),
    (3, 422, {"detail": "Prompt is too long"}),
    (3, 400, openai("This model's maximum prompt length is 131072 but the request has 140000.")),
    (3, 400, openai("Invalid request: Your request exceeded model token limit: 131072")),
    (3, 400, openai("Range of input length should be [1, 129024]")),
    (3, 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    (3, 400, {"message": "too many tokens: total number of tokens cannot exceed 4081"}),
    (
        3,
        400,
        openai(
            "Invalid 'messages[1].content': string too long. Expected maximum length 10485760.",
            "string_above_max_length",
        ),
    ),
    (
        3,
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "provider_name": "OpenAI",
                    "raw": json.dumps(openai("too long", "context_length_exceeded")),
                },
            }
        },
    ),
    # not too large
    (8, 429, openai(TPM, "rate_limit_exceeded", "tokens")),
    (8, 429, {"message": "Too many tokens, please wait before trying again."}),
    (8, 400, {"__type": "ThrottlingException", "message": "Too many tokens, please wait."}),
    (14, 400, {"message": "Too many tokens, please wait before trying again."}),
    (
        14,
        400,
        anthropic(
            "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens"
            " for claude-opus-4"
        ),
    ),
    (14, 400, openai("max_tokens is too large: 64000. This model supports at most 16384 tokens")),
    (14, 400, openai(VLLM_OUTPUT)),
    (14, 400, openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")),
    (14, 400, openai("max_tokens exceeds the limit of this model")),
    (
        14,
        400,
        openai(
            "Invalid 'messages[3].tool_calls[0].id': string too long. Expected maximum length 40.",
            "string_above_max_length",
        ),
    ),
    (14, 400, openai("Invalid 'tools': array too long.", "array_above_max_length")),
    (14, 400, anthropic("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum")),
    # account barred
    (5, 403, {"error": "Your account has been suspended"}),
    (5, 401, openai("The account is closed.", "account_deactivated")),
    (
        5,
        401,
        openai("The OpenAI account associated with this API key has been deactivated."),
    ),
    (5, 400, anthropic("This organization has been disabled.")),
    (5, 403, google(403, "PERMISSION_DENIED", "Verify your account to continue.")),
    (5, 403, google(403, "PERMISSION_DENIED", "Consumer 'api_key:x' has been suspended.")),
    (5, 403, google(403, "PERMISSION_DENIED", "denied", {"reason": "CONSUMER_SUSPENDED"})),
    (
        5,
        403,
        {"error": {"message": "This service has been disabled in this account for violation"}},
    ),
    (14, 400, openai("Your organization must be verified to generate reasoning summaries.")),
    (
        7,
        403,
        google(
            403, "PERMISSION_DENIED", "API has not been used in project 1 before or it is disabled."
        ),
    ),
    (10, 500, {"error": "Your account has been suspended"}),
    # quota spent
    (6, 402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}),
    (6, 402, {"error": {"message": "This request requires more credits, or fewer max_tokens."}}),
    (6, 402, ""),
    (6, 403, {"error": "Your account has been disabled due to a failed payment"}),
    (6, 429, openai(EXCEEDED, "insufficient_quota", "insufficient_quota")),
    (6, 429, openai(EXCEEDED)),
    (
        6,
        429,
        {"error": {"code": "1113", "message": "Insufficient balance or no resource package."}},
    ),
    (6, 429, {"error": {"code": "1308", "message": "Usage limit reached for 5 hour."}}),
    (
        6,
        429,
        {"error": {"message": "Your account is suspended", "type": "exceeded_current_quota_error"}},
    ),
    (6, 429, openai("Your account is not active.", "billing_not_active")),
    (6, 429, openai("Monthly spending limit reached")),
    (6, 429, openai("You hit your daily request quota")),
    (6, 403, {"code": "x", "error": "Your team has used all available credits."}),
    (
        6,
        403,
        {
            "error": {
                "message": "no quota",
                "type": "new_api_error",
                "code": "insufficient_user_quota",
            }
        },
    ),
    (6, 400, anthropic("Your credit balance is too low to access the Anthropic API.")),
    (6, 400, anthropic("You have reached your specified workspace API usage limits.")),
    (6, 400, openai("Billing hard limit has been reached", "billing_hard_limit_reached")),
    (6, 429, openai(RPD, "rate_limit_exceeded", "requests")),
    (6, 429, {"error": {"code": 429, "message": "Rate limit exceeded: free-models-per-day."}}),
    (
        6,
        429,
        google(
            429,
            "RESOURCE_EXHAUSTED",
            EXCEEDED,
            quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
        ),
    ),
    # rate limited
    (8, 429, ""),
    (
        8,
        429,
        google(
            429,
            "RESOURCE_EXHAUSTED",
            EXCEEDED,
            quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
        ),
    ),
    (8, 429, google(429, "RESOURCE_EXHAUSTED", EXCEEDED + "\nPlease retry in 34.07s.")),
    (8, 429, google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).")),
    (8, 429, anthropic(ANTHROPIC_RATE, "rate_limit_error")),
    (
        8,
        429,
        {
            "error": {
                "code": "429",
                "message": "Requests have exceeded token rate limit of your S0 tier."
                " Please retry after 20 seconds.",
            }
        },
    ),
    (
        8,
        429,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": "x is temporarily rate-limited upstream."},
            }
        },
    ),
    (8, 429, {"message": "Requests rate limit exceeded"}),
    (8, 403, {"message": "You have exceeded a secondary rate limit."}),
    (8, 400, openai("429 from upstream: too many requests")),
    (8, 400, {"error": {"message": "slow", "type": "rate_limit_error"}}),
    (8, 429, openai("Your account has been suspended? No: slow down.")),
    (14, 400, openai("Unknown parameter: 'rate_limit'.", "unknown_parameter")),
    (7, 401, openai("Rate limit: sign in for more")),
    # overloaded
    (9, 529, anthropic("Overloaded", "overloaded_error")),
    (9, 503, google(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")),
    (9, 503, "no healthy upstream"),
    (9, 503, openai("rate limit")),
    (9, 500, anthropic("Overloaded", "overloaded_error")),
    (9, 500, openai("No capacity available for this model")),
    (9, 429, {"error": {"message": "busy", "type": "engine_overloaded_error"}}),
    (9, 429, {"error": {"code": "1305", "message": "The service may be temporarily overloaded"}}),
    (8, 429, openai("Exceeded the capacity of your provisioned throughput")),
    (9, 498, {"error": {"message": "Flex tier capacity exceeded", "code": "capacity_exceeded"}}),
    # server error
    (10, 500, anthropic("Internal server error", "api_error")),
    (10, 500, openai("upstream said: 429 rate limit exceeded")),
    (10, 502, "<html><body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>"),
    (10, 504, google(504, "DEADLINE_EXCEEDED", "Deadline expired")),
    (10, 520, ""),
    (10, 522, ""),
    (10, 524, "error code: 524"),
    (10, 526, ""),
    (10, 408, openai("Request timed out")),
    (10, 499, google(499, "CANCELLED", "The operation was cancelled.")),
    (10, 302, "<a href='/login'>Found</a>"),
    (10, 200, openai("Rate limit exceeded", "rate_limit_exceeded")),
    (10, 999, ""),
    # refused
    (12, 400, openai("The response was filtered", "content_filter")),
    (12, 400, openai("rejected", "content_policy_violation")),
    (12, 400, {"error": {"code": "ResponsibleAIPolicyViolation", "message": "x"}}),
    (12, 400, anthropic("Output blocked by content filtering policy")),
    (12, 400, openai("Content Exists Risk")),
    (
        12,
        400,
        {
            "code": "DataInspectionFailed",
            "message": "Input data may contain inappropriate content.",
        },
    ),
    (
        12,
        400,
        openai(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
            "invalid_prompt",
        ),
    ),
    (
        12,
        403,
        {"error": {"code": 403, "message": 'requires moderation. Your input was flagged for "x"'}},
    ),
    (
        12,
        400,
        {
            "error": {
                "code": "1301",
                "message": "System detected potentially unsafe or sensitive content",
            }
        },
    ),
    # not signed in
    (7, 401, openai("Incorrect API key provided: sk-x.", "invalid_api_key")),
    (7, 401, anthropic("invalid x-api-key", "authentication_error")),
    (7, 403, anthropic("forbidden", "permission_error")),
    (7, 403, "<!DOCTYPE html><title>Just a moment...</title>"),
    (
        7,
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            {"reason": "API_KEY_INVALID"},
        ),
    ),
    (
        7,
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "Incorrect API key provided: xx.",
        },
    ),
    # bad request
    (14, 400, anthropic('messages: Unexpected role "system".')),
    (14, 400, openai("Unsupported parameter", "unsupported_parameter")),
    (14, 400, ""),
    # model gone
    (4, 404, openai("The model `x` does not exist", "model_not_found")),
    (4, 404, ""),
    (
        14,
        404,
        openai(
            "Item with id 'rs_0496' not found."
            " Items are not persisted when `store` is set to false."
        ),
    ),
    (14, 404, openai("gone", "previous_response_not_found")),
    (4, 410, {"detail": "Gone"}),
    (4, 400, openai("x", "model_not_found")),
    (4, 400, openai("The model `gpt-9` does not exist or you do not have access to it.")),
    (4, 400, anthropic("model: claude-9 is not supported")),
    (4, 403, openai("Project does not have access to model `gpt-9`.")),
    (4, 400, openai("Model 'llama-9' has been decommissioned and is no longer supported.")),
    (14, 400, openai("'max_tokens' is not supported with this model.")),
    (14, 400, openai("This model does not support the parameter n.")),
    (7, 403, openai("You have no permission for this.")),
    (14, 400, openai("tool_use id not_found in the history")),
    (
        14,
        400,
        google(400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
    ),
    (14, 409, ""),
    (
        14,
        422,
        {"detail": [{"loc": ["body", "messages"], "msg": "Field required", "type": "missing"}]},
    ),
    (14, 451, ""),
]


@pytest.mark.parametrize(("row", "status", "body"), ANSWERS)
def test_an_answer_has_its_row(row: int, status: int, body: Any) -> None:
    assert judge(status, body).row == row


def test_case_does_not_matter() -> None:
    assert judge(400, anthropic("PROMPT IS TOO LONG: 5 TOKENS > 4 MAXIMUM")).row == 3
    assert judge(400, openai("x", "Context_Length_Exceeded")).row == 3


ACCOUNT, ACCOUNT_MODEL = Scope.ACCOUNT, Scope.ACCOUNT_MODEL
#         row, status: next account, next entry, lock, retry
DECISIONS = {
    (3, 413): (False, False, None, False),
    (7, 401): (True, True, Lock(ACCOUNT, 120), False),
    (6, 402): (True, True, Lock(ACCOUNT, 3600), False),
    (8, 429): (True, True, Lock(ACCOUNT_MODEL), True),
    (9, 529): (True, True, Lock(ACCOUNT_MODEL), True),
    (10, 500): (True, True, Lock(ACCOUNT_MODEL, from_second=True), True),
    (14, 400): (False, True, None, False),
    (4, 404): (False, True, Lock(Scope.MODEL, 1800), False),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_a_row_decides(case: tuple[int, int]) -> None:
    verdict = judge(case[1], "")
    assert (verdict.row, verdict.status) == case
    assert decisions(verdict) == DECISIONS[case]


def test_barred_and_refused_decide() -> None:
    barred = judge(403, {"error": "Your account has been suspended"})
    assert decisions(barred) == (True, True, Lock(ACCOUNT, 86400), False)
    assert decisions(judge(400, openai("x", "content_filter"))) == (False, True, None, False)


FAULTS = {
    Fault.CALLER_GONE: (1, Failure.CALLER_GONE, 499),
    Fault.EMPTY: (15, Failure.EMPTY_REPLY, 502),
    Fault.TIMEOUT: (11, Failure.TIMED_OUT, 504),
    Fault.UNSENDABLE: (14, Failure.BAD_REQUEST, 400),
}
BROKEN = (10, Failure.SERVER_ERROR, 502)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("status", [None, 200])
def test_a_fault_has_its_row(fault: Fault, status: int | None) -> None:
    verdict = classify(Evidence(status, fault=fault), REQUEST, NOW)
    assert (verdict.row, verdict.failure, verdict.status) == FAULTS.get(fault, BROKEN)
    assert verdict.message.endswith(".")


def test_faults_decide() -> None:
    gone, late, empty = (
        decisions(classify(Evidence(None, fault=fault), REQUEST, NOW))
        for fault in (Fault.CALLER_GONE, Fault.TIMEOUT, Fault.EMPTY)
    )
    assert gone == (False, False, None, False)
    assert late == (False, True, Lock(ACCOUNT_MODEL), False)
    assert empty == (False, True, None, False)


def test_an_http_error_outranks_a_fault_of_its_body() -> None:
    assert classify(Evidence(429, fault=Fault.CUT), REQUEST, NOW).row == 8
    assert classify(Evidence(429, fault=Fault.CALLER_GONE), REQUEST, NOW).row == 1


def decisions(verdict: Verdict) -> tuple[bool, bool, Lock | None, bool]:
    return verdict.next_account, verdict.next_entry, verdict.lock, verdict.retry


def test_the_message_is_the_providers_word_for_word() -> None:
    said = 'messages.1.role:  Input should be "user"\nor "assistant"'
    assert judge(400, anthropic(said)).message == said
    assert judge(500, "").message == "The provider answered with status 500 and no message."


def test_no_error_status_is_never_shown_as_success() -> None:
    assert [judge(status, "").status for status in (200, 302, 999)] == [502, 502, 502]


RESETS: list[tuple[int, Any, dict[str, str], int, Scope, float | None]] = [
    (429, "", {"retry-after": "30"}, 8, ACCOUNT_MODEL, 30),
    (429, "", {"retry-after": "600"}, 8, ACCOUNT_MODEL, 600),
    (429, "", {"retry-after": "601"}, 6, ACCOUNT, 601),
    (429, "", {"retry-after": str(40 * 86400)}, 8, ACCOUNT_MODEL, None),
    (429, "", {"x-ratelimit-reset-tokens": "6m0s"}, 8, ACCOUNT_MODEL, 360),
    (429, openai(RPD), {}, 6, ACCOUNT_MODEL, 86.4),
    (403, {"message": "secondary rate limit"}, {"retry-after": "60"}, 8, ACCOUNT_MODEL, 60),
    (403, {"message": "secondary rate limit"}, {"retry-after": "3600"}, 6, ACCOUNT, 3600),
    (
        400,
        anthropic(
            "You have reached your specified API usage limits. You will regain access on"
            " 2027-01-20 at 00:00 UTC."
        ),
        {},
        6,
        ACCOUNT,
        403_200,
    ),
    (
        429,
        {
            "error": {
                "message": "Rate limit exceeded: free-models-per-day",
                "code": 429,
                "metadata": {"headers": {"X-RateLimit-Reset": str(int(NOW + 7200) * 1000)}},
            }
        },
        {},
        6,
        ACCOUNT_MODEL,
        7200,
    ),
    (
        429,
        {"error": {"type": "usage_limit_reached", "message": "x", "resets_in_seconds": 9000}},
        {},
        6,
        ACCOUNT,
        9000,
    ),
    (503, "", {"retry-after": "5"}, 9, ACCOUNT_MODEL, None),
]


@pytest.mark.parametrize(("status", "body", "headers", "row", "scope", "seconds"), RESETS)
def test_a_stated_reset_sets_the_lock(
    status: int,
    body: Any,
    headers: dict[str, str],
    row: int,
    scope: Scope,
    seconds: float | None,
) -> None:
    verdict = judge(status, body, headers)
    assert verdict.row == row
    assert verdict.lock is not None
    assert verdict.lock.scope is scope
    assert verdict.lock.seconds == (seconds if seconds is None else pytest.approx(seconds, abs=1))


def test_a_direct_wait_is_told_for_every_row_but_limits_only_for_limits() -> None:
    assert judge(503, "", {"retry-after": "5"}).reset == NOW + 5
    assert judge(500, "", {"x-ratelimit-reset-tokens": "5s"}).reset is None
    assert judge(429, "", {"x-ratelimit-reset-tokens": "5s"}).reset == NOW + 5


BODIES = [
    (openai("m", "c", "t"), ErrorText("m", "t", "c")),
    (openai("m"), ErrorText("m", "invalid_request_error")),
    ({"error": "m", "code": "c"}, ErrorText("m", "", "c")),
    ({"error": "invalid_grant", "error_description": "m"}, ErrorText("m")),
    (anthropic("m", "overloaded_error"), ErrorText("m", "overloaded_error")),
    (google(429, "RESOURCE_EXHAUSTED", "m"), ErrorText("m", "RESOURCE_EXHAUSTED", "429")),
    ([google(429, "X", "m", {"reason": "R"})], ErrorText("m", "X", "R")),
    ({"message": "m", "code": 20015}, ErrorText("m", "", "20015")),
    ({"__type": "ThrottlingException", "message": "m"}, ErrorText("m", "ThrottlingException")),
    ({"detail": "m"}, ErrorText("m")),
    ({"detail": {"error": {"message": "m", "code": "c"}}}, ErrorText("m", "", "c")),
    (
        {"detail": [{"loc": ["body", 0], "msg": "m", "input": "secret"}, "n"]},
        ErrorText("body.0: m; n"),
    ),
    ({"errors": [{"message": "m", "code": 7}]}, ErrorText("m", "", "7")),
    (
        {"title": "t", "detail": "m", "status": 400, "type": "about:blank"},
        ErrorText("m", "about:blank"),
    ),
    (
        {
            "type": "response.failed",
            "response": {"error": {"code": "server_error", "message": "m"}},
        },
        ErrorText("m", "", "server_error"),
    ),
    (
        {"error": {"message": "a", "code": 1, "metadata": {"raw": '{"error":{"message":"b"}}'}}},
        ErrorText("a: b", "", "1"),
    ),
    ({"error": {"message": "\ud800x", "code": True}}, ErrorText("?x")),
    ({"error": None}, ErrorText()),
    ("m", ErrorText("m")),
    (None, ErrorText()),
    ([], ErrorText()),
]


@pytest.mark.parametrize(("body", "text"), BODIES)
def test_an_error_body_is_read(body: object, text: ErrorText) -> None:
    assert read_error(json.dumps(body).encode()) == (text, body)


PAGES = [
    (b"", ""),
    (b"\xef\xbb\xbf", ""),
    (b"  no  healthy\n upstream ", "no healthy upstream"),
    (b"a < b and c > d", "a < b and c > d"),
    (b"x" * 400, "x" * 300),
    (b"\xff\xfe{", "\ufffd\ufffd{"),
    (b"[" * 100_000, "[" * 300),
    (
        b"<html><head><title>502</title><style>b{}</style></head><body>\n<h1>Bad &amp; sad</h1>"
        b"<script>if (1 < 2) x()</script>end</body></html>",
        "Bad & sad end",
    ),
    (b"<html><head><title>Just a moment...</title></head></html>", "Just a moment..."),
]


@pytest.mark.parametrize(("body", "message"), PAGES)
def test_a_page_is_read(body: bytes, message: str) -> None:
    assert read_error(body) == (ErrorText(message), None)


STANDS_FOR = [
    (ErrorText("", "overloaded_error"), 529),
    (ErrorText("", "RESOURCE_EXHAUSTED", "429"), 429),
    (ErrorText("", "UNAVAILABLE", "503"), 503),
    (ErrorText("", "rate_limit_error"), 429),
    (ErrorText("", "invalid_request_error", "context_length_exceeded"), 400),
    (ErrorText("", "api_error"), 500),
    (ErrorText("", "", "200"), None),
    (ErrorText("what", "ever"), None),
]


@pytest.mark.parametrize(("text", "status"), STANDS_FOR)
def test_an_error_event_stands_for_a_status(text: ErrorText, status: int | None) -> None:
    assert stands_for(text) == status


def test_quotes_are_taken_out_of_a_message() -> None:
    request = json.dumps(
        {"content": "Why is my prompt is too long? caf\u00e9\n\U0001f600"}
    ).encode()
    quote = "Why is my prompt is too long? caf\u00e9\n\U0001f600"
    assert without_echo(f"Bad value: <{quote}>.", request) == "Bad value: < … >."
    escaped = json.dumps(quote)[1:-1]
    assert without_echo(f"Bad value: <{escaped}>.", request) == "Bad value: < … >."
    escaped = json.dumps(quote, ensure_ascii=False)[1:-1]
    assert without_echo(f"Bad value: <{escaped}>.", request) == "Bad value: < … >."


def test_what_is_not_a_quote_stays() -> None:
    message = "prompt is too long: 215000 tokens > 200000 maximum"
    assert without_echo(message, b"") == message
    assert without_echo(message, b'{"content": "prompt is too long"}') == message
    assert without_echo("short", b"short") == "short"


def test_a_long_message_is_cut_without_leaving_a_stump_of_a_quote() -> None:
    quote = "prompt is too long, says the log of my other tool"
    request = json.dumps({"content": quote}).encode()
    cut = without_echo("." * (4096 - 18) + quote, request)
    assert cut == "." * (4096 - 18) + " … "
    assert len(without_echo("." * 1_000_000, b"")) == 4096


def test_quotes_are_found_at_both_ends_of_a_huge_request() -> None:
    first, last = "prompt is too long, at first", "prompt is too long, at last!"
    request = json.dumps({"a": first, "b": "x" * 5_000_000, "c": last}).encode()
    assert without_echo(f"{first} and {last}", request) == " …  and  … "


def test_a_long_quote_in_a_long_request_is_cheap() -> None:
    prompt = " ".join(f"line {n}: the prompt is too long\n" for n in range(6000))
    request = json.dumps({"content": prompt}).encode()
    start = thread_time()
    assert judge(400, openai(prompt[90_000:95_000]), request=request).row == 14
    assert thread_time() - start < 0.5


WORDINGS = st.sampled_from(
    [
        "prompt is too long",
        "maximum context length",
        "too many tokens",
        "Your account has been suspended",
        "verify your account",
        "Your credit balance is too low",
        "insufficient_quota",
        "reached your specified API usage limits",
        "billing limit",
        "rate limit",
        "Too Many Requests",
        "throttled",
        "content filtering policy",
        "Content Exists Risk",
        "incorrect API key",
        "please try again in 5 hours",
        "regain access on 2027-01-20 at 00:00 UTC",
    ]
)
FRAMES = st.sampled_from(
    [
        "{}",
        "Invalid value: '{}'. Supported values are: 'auto'.",
        'Could not parse {{"role": "user", "content": "{}"}}',
        "messages.0.content: {} is not allowed here",
    ]
)
ESCAPES = st.sampled_from(
    [
        lambda prompt: prompt,
        lambda prompt: json.dumps(prompt)[1:-1],
        lambda prompt: json.dumps(prompt, ensure_ascii=False)[1:-1],
    ]
)
PROMPTS = st.builds(
    lambda before, wording, after: f"{before}{wording}{after}", st.text(), WORDINGS, st.text()
).filter(lambda prompt: len(prompt) >= 20)


@given(PROMPTS, FRAMES, ESCAPES, st.booleans())
def test_a_quoted_prompt_never_changes_the_verdict(
    prompt: str, frame: str, escape: Any, ascii_only: bool
) -> None:
    content = {"messages": [{"role": "user", "content": prompt}]}
    request = json.dumps(content, ensure_ascii=ascii_only).encode()
    text = ErrorText(frame.format(escape(prompt)), "invalid_request_error")
    verdict = classify(Evidence(400, text), request, NOW)
    assert (verdict.row, verdict.reset, verdict.message) == (14, None, text.message)


TEXTS = st.builds(ErrorText, st.text() | WORDINGS, st.text() | WORDINGS, st.text() | WORDINGS)


@given(
    st.none() | st.integers(),
    st.binary() | TEXTS,
    st.none() | st.sampled_from(Fault),
    st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset"]), st.text()),
    st.binary(),
    st.floats(0, 1e11),
)
def test_everything_has_a_verdict(
    status: int | None,
    said: bytes | ErrorText,
    fault: Fault | None,
    headers: dict[str, str],
    request: bytes,
    now: float,
) -> None:
    text, body = read_error(said) if isinstance(said, bytes) else (said, None)
    verdict = classify(Evidence(status, text, fault, headers, body), request, now)
    assert verdict.row in {rule.row.number for rule in RULES}
    assert 400 <= verdict.status < 600
    assert verdict.message
    assert verdict.lock is None or verdict.lock.seconds is None or verdict.lock.seconds > 0


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "error errors message detail details code type status loc msg response metadata"
                " raw headers violations quotaId reason".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_a_page_with_an_endless_character_reference_is_read() -> None:
    text, told = read_error(b"<p>busy &#" + b"1" * 5000 + b";</p>")
    assert (text.message[:4], told) == ("busy", None)


@given(JSON)
def test_any_json_is_read(body: object) -> None:
    text, _ = read_error(json.dumps(body).encode())
    "".join((text.message, text.type, text.code)).encode()


def test_every_failure_has_one_row() -> None:
    pairs = {(rule.row.number, rule.row.failure) for rule in RULES}
    assert len(pairs) == len(Failure)
    assert {failure for _, failure in pairs} == set(Failure)
