"""One ordered table of failures, read from the top: what leads to each, and what is decided then.

The status decides first. Wordings are looked at only under statuses that leave the cause open.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from krouter.errors import Failure, Fault, Lock, Scope

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Traits:
    """The evidence as rules look at it; `status` is 0 where no HTTP error arrived."""

    fault: Fault | None
    status: int
    names: frozenset[str]
    words: str
    reset: float | None
    far: bool
    image: bool
    feature: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The decisions of one class of failures. `until_reset`: a stated reset ends the lock."""

    number: int
    failure: Failure
    next_account: bool = False
    next_entry: bool = True
    lock: Lock | None = None
    until_reset: bool = False
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """What leads to a row: a fault, or a status with, where any are given, a code or a wording.

    `codes` are lower-case error codes and types; `says` and `unless` are searched in the error's
    code, type and message, in lower case. `far` asks for a stated reset more than ten
    minutes ahead; `image` and `feature` for what the evidence says of these.
    """

    row: Row
    faults: Container[Fault] = ()
    statuses: Container[int] = ()
    codes: frozenset[str] = frozenset()
    says: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    far: bool = False
    image: bool = False
    feature: bool = False

    def matches(self, seen: Traits) -> bool:
        if seen.fault:
            return seen.fault in self.faults
        return (
            seen.status in self.statuses
            and self._named(seen)
            and (seen.far or not self.far)
            and (seen.image or not self.image)
            and (seen.feature or not self.feature)
            and not (self.unless and self.unless.search(seen.words))
        )

    def reads(self, status: int, names: frozenset[str], words: str) -> bool:
        """Whether the wording matters here, so that quotes must be taken out of it first."""
        if status not in self.statuses:
            return False
        named = self.unless and not self.codes.isdisjoint(names)
        return bool(named or (self.says and self.says.search(words)))

    def _named(self, seen: Traits) -> bool:
        if not self.codes and not self.says:
            return True
        return not self.codes.isdisjoint(seen.names) or bool(
            self.says and self.says.search(seen.words)
        )


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


_CALLER_GONE = Row(1, Failure.CALLER_GONE, next_entry=False)
_IMAGE = Row(2, Failure.IMAGE_REJECTED)
_TOO_LARGE = Row(3, Failure.TOO_LARGE, next_entry=False)
_MODEL_GONE = Row(4, Failure.MODEL_GONE, lock=Lock(Scope.MODEL, HOUR / 2))
_BARRED = Row(5, Failure.ACCOUNT_BARRED, True, lock=Lock(Scope.ACCOUNT, 24 * HOUR))
_QUOTA = Row(6, Failure.QUOTA_SPENT, True, lock=Lock(Scope.ACCOUNT, HOUR), until_reset=True)
_MODEL_QUOTA = replace(_QUOTA, lock=Lock(Scope.ACCOUNT_MODEL, HOUR))
_NOT_SIGNED_IN = Row(7, Failure.NOT_SIGNED_IN, True, lock=Lock(Scope.ACCOUNT, 120.0))
_BACK_OFF = Lock(Scope.ACCOUNT_MODEL)
_RATE = Row(8, Failure.RATE_LIMITED, True, lock=_BACK_OFF, until_reset=True, retry=True)
_OVERLOADED = Row(9, Failure.OVERLOADED, True, lock=_BACK_OFF, retry=True)
_SERVER = Row(10, Failure.SERVER_ERROR, True, lock=replace(_BACK_OFF, from_second=True), retry=True)
_TIMED_OUT = Row(11, Failure.TIMED_OUT, lock=_BACK_OFF)
_REFUSED = Row(12, Failure.REFUSED)
_FEATURE = Row(13, Failure.FEATURE_REFUSED)
_BAD_REQUEST = Row(14, Failure.BAD_REQUEST)
_EMPTY = Row(15, Failure.EMPTY_REPLY)

_LENGTH_CODES = _names(
    "context_length_exceeded context_window_exceeded model_context_window_exceeded"
    " exceed_context_size_error content_length_exceeds_threshold request_too_large"
    " payload_too_large request_entity_too_large tokens_limit_reached input_too_long"
    " prompt_too_long"
)
_TOO_LONG = _words(
    r"\b(?:prompt|input)(?: is)? too (?:long|large)",
    r"maximum (?:context|prompt) length",
    r"context[ _](?:length|window|limit|size)[^.]{0,40}exceed",
    r"exceed[^.]{0,60}context (?:length|window|limit|size)",
    r"exceeds? (?:the )?max(?:imum)? (?:input |prompt )?length",
    r"input (?:token count|content length)[^.]{0,40}exceeds",
    r"range of input length should be",
    r"exceed(?:s|ed)? (?:the )?model token limit",
    r"\btokens exceeds?\b",
    r"too many (?:input |prompt )?tokens",
    r"\b(?:request|request body|request entity|payload) too large",
)
# "Too many tokens, please wait" is a throttle, and an output length too high for this model is a
# matter of its parameters that the next model may accept: neither says the request is too large.
_NOT_TOO_LONG = _words(
    r"per[ _-]?(?:min|day|hour)",
    r"\brate[ -]?limit",
    r"throttl",
    r"\btpm\b",
    r"(?:please|and) wait|wait before",
    r"max_(?:completion_|output_|new_)?tokens\b.{0,60}?(?:too large|must be)",
    r"max_(?:completion_|output_|new_)?tokens\b.{0,60}?exceeds? (?!(?:the )?context)",
)
# OpenAI uses string_above_max_length for tool-call ids and metadata as well as for content.
_STRING_TOO_LONG = _names("string_above_max_length")
_NOT_CONTENT = _words(
    r"invalid '(?!(?:input|prompt|instructions|(?:messages|input)\[\d+\]\.(?:content|output))"
    r"(?:\[\d+\](?:\.text)?)?')"
)

_BARRED_CODES = _names(
    "account_deactivated account_suspended account_disabled account_banned consumer_suspended"
    " organization_deactivated user_suspended"
)
_ENDED = "suspended|deactivated|terminated|banned"
_BARS = _words(
    r"verify your account",
    r"this service has been disabled in this account",
    r"\b(?:account|organi[sz]ation|workspace|consumer|project|user)\b(?: '[^']{1,80}'"
    r"| associated with [^.]{1,60}?)? (?:(?:has been|was) (?:\w+ )?(?:disabled|"
    rf"{_ENDED})|is (?:\w+ )?(?:{_ENDED}))\b",
)
_MONEY = _words(r"\bbalance\b", r"billing", r"recharge", r"top[ -]up", r"payment", r"\bcredits?\b")

_DAILY_PER_MODEL = _words(
    r"free-models-per-day", r"free_tier_daily", r"\bper[ _-]day\b", r"perday", r"\b[rt]pd\b"
)
_QUOTA_CODES = _names(
    "insufficient_quota insufficient_user_quota insufficient_balance billing_error"
    " billing_not_active billing_hard_limit_reached exceeded_current_quota_error"
    " enforced_spend_limit_reached usage_limit_reached usage_not_included payment_required"
    " monthly_request_count servicequotaexceededexception"
)
_OUT_OF_MONEY = _words(
    r"credit balance is too low",
    r"insufficient (?:account )?(?:balance|credits?|funds)",
    r"insufficient_quota",
    r"reached your (?:specified )?(?:workspace )?api usage limits",
    r"billing (?:hard )?limit",
    r"(?:monthly|spend(?:ing)?) (?:spend(?:ing)? )?limit (?:has been )?(?:reached|exceeded)",
    r"used all (?:of your )?available credits",
)
_USED_UP = _words(
    r"\b(?:monthly|weekly|daily|5[ -]hour|spend(?:ing)?)\b[^.]{0,40}\b(?:limit|quota|cap)s?\b",
    r"\busage limit",
    r"\b(?:limit|quota)s? for (?:this|the) (?:month|week|day|billing period)",
    r"monthly_request_count|servicequotaexceeded",
    r"exceeded your current quota",
    r"(?:limit|quota) (?:is )?exhausted",
    r"check your plan and billing",
    r"additional usage limit for your plan",
)
# Google words its limits per minute as an exceeded quota too, and then says "Please retry in 34s".
_SHORT_LIMIT = _words(r"per[ _-]?min", r"\b[rt]pm\b", r"retry in \d")

_OVERLOAD_CODES = _names(
    "overloaded_error engine_overloaded engine_overloaded_error server_overloaded model_overloaded"
    " slow_down server_is_overloaded"
)
_OVERLOAD = _words(r"overload")
_NO_CAPACITY = _words(r"overload", r"\bcapacity\b")

_RATE_CODES = _names(
    "rate_limit_exceeded rate_limit_error rate_limited too_many_requests throttlingexception"
    " requestlimitexceeded ratelimitreached"
)
_RATE_WORDS = _words(
    r"\brate[ -]limit", r"too many requests", r"throttl(?:ed|ing)", r"\b(?:requests|tokens) per min"
)
_FILTER_CODES = _names(
    "content_filter content_policy content_policy_violation image_content_policy_violation"
    " responsibleaipolicyviolation moderation_blocked data_inspection_failed"
    " datainspectionfailed content_filtered safety_violation"
)
_FILTERED = _words(
    r"content filtering policy",
    r"content management policy",
    r"flagged as potentially violating",
    r"your (?:input|prompt) was flagged",
    r"content exists risk",
    r"unsafe or sensitive content",
    r"contain inappropriate content",
    r"content violates (?:our )?usage",
)
# Gemini and xAI answer a wrong key with 400.
_KEY_CODES = _names("api_key_invalid invalid_api_key")
_WRONG_KEY = _words(
    r"api key (?:is )?(?:not valid|invalid|expired)", r"(?:incorrect|invalid) api key"
)

_GONE_CODES = _names(
    "model_not_found model_not_available model_not_supported unsupported_model unknown_model"
    " invalid_model model_decommissioned model_deprecated deploymentnotfound deployment_not_found"
)
_GONE = _words(
    r"\bmodel\b[\w '\"`./:@-]{0,80}\b(?:not (?:be )?found|not available|unavailable|deprecated"
    r"|not (?:currently )?supported|not enabled|decommissioned|retired|removed"
    r"|(?:does not|doesn't) exist)\b",
    r"\bno such model\b",
    r"\b(?:unsupported|unknown|invalid) model\b",
    r"\bnot a valid model\b",
    r"\b(?:access|allowed|permission)\b[^.]{0,40}\bmodel\b",
    r"\brequested entity was not found\b",
)
# A feature that the model has not is no sign that there is no such model.
_NOT_GONE = _words(r"\bnot (?:be )?supported (?:with|by|for|on|when|in)\b", r"\bdoes not support\b")

_STORED_CODES = _names("previous_response_not_found")
_NOT_STORED = _words(r"\b(?:item|response|conversation|prompt) with id\b.{0,200} not found\b")

_BROKEN = frozenset((Fault.REFUSED, Fault.RESET, Fault.DNS, Fault.TLS, Fault.CUT, Fault.GARBAGE))
_OPEN_TO_QUOTA = frozenset((400, 403, 429))
_FILTER_STATUSES = frozenset((400, 403, 422, 451))
# Groq answers 498 when its flex tier has no capacity.
_OVERLOAD_STATUSES = frozenset((498, 503, 529))
# 408 and 499 blame the connection, not the request. 0: neither a reply nor an HTTP error.
_SERVER_STATUSES = frozenset((0, 408, 499, *range(500, 600)))

RULES: tuple[Rule, ...] = (
    Rule(_CALLER_GONE, faults={Fault.CALLER_GONE}),
    Rule(_EMPTY, faults={Fault.EMPTY}),
    Rule(_TIMED_OUT, faults={Fault.TIMEOUT}),
    Rule(_SERVER, faults=_BROKEN),
    Rule(_BAD_REQUEST, faults={Fault.UNSENDABLE}),
    # OpenRouter answers 404 where no host of a model takes images.
    Rule(_IMAGE, statuses={400, 404, 415, 422}, image=True),
    # Groq answers 413 when one request exceeds the account's tokens per minute.
    Rule(_RATE, statuses={413}, codes=frozenset(("rate_limit_exceeded",))),
    Rule(_TOO_LARGE, statuses={413}),
    Rule(_TOO_LARGE, statuses={400, 422}, codes=_LENGTH_CODES),
    Rule(_TOO_LARGE, statuses={400, 422}, codes=_STRING_TOO_LONG, unless=_NOT_CONTENT),
    Rule(_TOO_LARGE, statuses={400, 422}, says=_TOO_LONG, unless=_NOT_TOO_LONG),
    Rule(_BARRED, statuses=range(400, 404), codes=_BARRED_CODES, says=_BARS, unless=_MONEY),
    # Closed for want of money: it opens again when that has been paid.
    Rule(_QUOTA, statuses=range(400, 404), codes=_BARRED_CODES, says=_BARS),
    Rule(_QUOTA, statuses={402}),
    Rule(_MODEL_QUOTA, statuses={403, 429}, says=_DAILY_PER_MODEL),
    Rule(_QUOTA, statuses=_OPEN_TO_QUOTA, codes=_QUOTA_CODES, says=_OUT_OF_MONEY),
    Rule(_QUOTA, statuses={403, 429}, says=_USED_UP, unless=_SHORT_LIMIT),
    Rule(_QUOTA, statuses={429}, far=True),
    Rule(_QUOTA, statuses={400, 403}, codes=_RATE_CODES, says=_RATE_WORDS, far=True),
    Rule(_OVERLOADED, statuses={429}, codes=_OVERLOAD_CODES, says=_OVERLOAD),
    Rule(_RATE, statuses={429}),
    Rule(_RATE, statuses={400, 403}, codes=_RATE_CODES, says=_RATE_WORDS),
    Rule(_OVERLOADED, statuses=_OVERLOAD_STATUSES),
    Rule(_OVERLOADED, statuses=range(500, 600), codes=_OVERLOAD_CODES, says=_NO_CAPACITY),
    Rule(_REFUSED, statuses=_FILTER_STATUSES, codes=_FILTER_CODES, says=_FILTERED),
    Rule(_MODEL_GONE, statuses={403}, codes=_GONE_CODES, says=_GONE, unless=_NOT_GONE),
    Rule(_NOT_SIGNED_IN, statuses={401, 403}),
    Rule(_NOT_SIGNED_IN, statuses={400}, codes=_KEY_CODES, says=_WRONG_KEY),
    # OpenAI answers 404 where an item of the input is only the id of one that it has not stored.
    Rule(_BAD_REQUEST, statuses={404}, codes=_STORED_CODES, says=_NOT_STORED),
    Rule(_MODEL_GONE, statuses={404, 410}),
    Rule(_FEATURE, statuses={400, 422}, feature=True),
    Rule(_MODEL_GONE, statuses={400}, codes=_GONE_CODES, says=_GONE, unless=_NOT_GONE),
    Rule(_SERVER, statuses=_SERVER_STATUSES),
    Rule(_BAD_REQUEST, statuses=range(400, 500)),
)

ROW_OF: Mapping[Failure, int] = {rule.row.failure: rule.row.number for rule in RULES}
"""The number under which the table has a failure."""
