"""The verdict on one failed attempt: what its evidence comes to in the table of failures.

No wording counts that the provider merely quotes from the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from krouter.error_table import RULES, Row, Traits
from krouter.errors import Evidence, Fault, Lock, Verdict
from krouter.errortext import READ, ErrorText, without_echo
from krouter.resets import speaks_of_reset, stated_reset

FAR = 600.0
"""Seconds from which on a stated reset is that of a quota."""

_FAULTS: Mapping[Fault, tuple[int, str]] = {
    Fault.REFUSED: (502, "The provider refused the connection."),
    Fault.RESET: (502, "The provider closed the connection before it had answered."),
    Fault.DNS: (502, "The provider's name could not be resolved."),
    Fault.TLS: (502, "No secure connection to the provider could be made."),
    Fault.CUT: (502, "The provider's reply was cut short."),
    Fault.GARBAGE: (502, "The provider's reply could not be read."),
    Fault.TIMEOUT: (504, "The provider did not answer in time."),
    Fault.EMPTY: (502, "The provider's reply was empty."),
    Fault.CALLER_GONE: (499, "The caller closed the connection."),
    Fault.UNSENDABLE: (400, "The request cannot be carried to this provider."),
}


def classify(evidence: Evidence, request: bytes, now: float) -> Verdict:
    """The verdict on one failed attempt.

    `request` is the body that was sent, used to tell what the provider only quotes; `now` is in
    epoch seconds.
    """
    seen = _see(evidence, request, now)
    row = next(rule.row for rule in RULES if rule.matches(seen))
    reset = seen.reset if row.until_reset else _direct_reset(evidence, seen.words, now)
    status, sentence = _shown(seen)
    if 300 <= (evidence.status or 0) < 400:
        sentence = f"The provider redirects (status {evidence.status}): its base_url is another."
    return Verdict(
        failure=row.failure,
        row=row.number,
        next_account=row.next_account,
        next_entry=row.next_entry,
        lock=_lock(row, reset, now),
        status=status,
        message=evidence.text.message or sentence,
        reset=reset,
        retry=row.retry,
    )


def _see(evidence: Evidence, request: bytes, now: float) -> Traits:
    fault, status, text = evidence.fault, evidence.status or 0, evidence.text
    status = status if 400 <= status < 600 else 0
    if status and fault != Fault.CALLER_GONE:
        fault = None
    names = frozenset((text.code.lower(), text.type.lower())) - {""}
    words = _folded(text, text.message[:READ])
    if speaks_of_reset(words) or any(rule.reads(status, names, words) for rule in RULES):
        words = _folded(text, without_echo(text.message, request))
    reset = stated_reset(evidence.headers, evidence.body, words, now)
    far = reset is not None and reset > now + FAR
    image, feature = evidence.image_rejected, evidence.feature_refused
    return Traits(fault, status, names, words, reset, far, image, feature)


def _folded(text: ErrorText, message: str) -> str:
    return " ".join(f"{text.code[:200]}\0 {text.type[:200]}\0 {message}".lower().split())


def _direct_reset(evidence: Evidence, words: str, now: float) -> float | None:
    """The reset that speaks of this failure; limit headers come with every reply of a provider."""
    direct = {k: v for k, v in evidence.headers.items() if k.startswith("retry-after")}
    return stated_reset(direct, evidence.body, words, now)


def _lock(row: Row, reset: float | None, now: float) -> Lock | None:
    if row.lock and row.until_reset and reset is not None:
        return replace(row.lock, seconds=reset - now)
    return row.lock


def _shown(seen: Traits) -> tuple[int, str]:
    if seen.fault:
        return _FAULTS[seen.fault]
    if not seen.status:
        return _FAULTS[Fault.GARBAGE]
    return seen.status, f"The provider answered with status {seen.status} and no message."
