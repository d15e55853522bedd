"""What a failure is: the closed list of reasons, what is known of one, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from krouter.errortext import ErrorText


class Failure(StrEnum):
    """Why an attempt failed; the closed list of reasons."""

    CALLER_GONE = "caller gone"
    IMAGE_REJECTED = "image rejected"
    TOO_LARGE = "too large"
    MODEL_GONE = "model gone"
    ACCOUNT_BARRED = "account barred"
    QUOTA_SPENT = "quota spent"
    NOT_SIGNED_IN = "not signed in"
    RATE_LIMITED = "rate limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server error"
    TIMED_OUT = "timed out"
    REFUSED = "refused"
    FEATURE_REFUSED = "feature refused"
    BAD_REQUEST = "bad request"
    EMPTY_REPLY = "empty reply"


class Fault(StrEnum):
    """A failure in which no usable HTTP error reply arrived."""

    REFUSED = "connection refused"
    RESET = "connection reset"
    DNS = "name not resolved"
    TLS = "TLS failed"
    CUT = "reply cut short"
    GARBAGE = "not a reply of this dialect"
    TIMEOUT = "timed out"
    EMPTY = "empty reply"
    CALLER_GONE = "caller gone"
    UNSENDABLE = "cannot be carried to this provider"


class WireError(Exception):
    """No reply, or not the whole of it. The text never holds a credential."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        self.fault = fault
        self.detail = detail
        super().__init__(detail or fault)


class Scope(StrEnum):
    """What a lock closes."""

    ACCOUNT = "account"
    ACCOUNT_MODEL = "account+model"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one failed attempt.

    `status` is the upstream's HTTP status, or the one that its error event stands for; None when
    none arrived. A `fault` counts while there is no status of 400 or more. `headers` have
    lower-case names; `body` is the parsed error body. `image_rejected` says that the request holds
    images and the error that the model takes none, `feature_refused` that the error names an
    optional feature of the request.
    """

    status: int | None
    text: ErrorText = field(default_factory=ErrorText)
    fault: Fault | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    image_rejected: bool = False
    feature_refused: bool = False


@dataclass(frozen=True, slots=True)
class Lock:
    """What is closed after a failure: for exactly `seconds`, or by back-off where that is None.

    With `from_second` the first failure in a row closes nothing.
    """

    scope: Scope
    seconds: float | None = None
    from_second: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure is and what to do about it.

    `status` and `message` are what the caller sees if nothing else is tried; `next_entry` False
    returns them at once. `reset` is the stated reset in epoch seconds. `retry` says that the same
    account may be asked again.
    """

    failure: Failure
    row: int
    next_account: bool
    next_entry: bool
    lock: Lock | None
    status: int
    message: str
    reset: float | None
    retry: bool
