"""Which of the ledger's requests are meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from krouter.problems import did_you_mean
from krouter.route import REASONS, End


class LedgerError(Exception):
    """The ledger cannot be read, or has not what was asked for; the text says why."""


class NotRecorded(LedgerError):
    """The ledger has not what was asked for, and nothing is wrong with it."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which requests are meant: those that pass all that is given.

    `combo` and `caller`, the name of a key, are exact names. `model` is a pattern with `*`, `?` and
    `[…]`, over the entry that served and those that were tried. `status` is `ok`, `failed`, an HTTP
    status that the caller or an attempt got, or a reason of `REASONS`. They began at `since` or
    later and before `until`, in epoch seconds. `asked` is what the caller asked for, `account` one
    that was tried, by its name or as `provider/account`; `before` is an id, which sorts by time.
    """

    combo: str | None = None
    caller: str | None = None
    model: str | None = None
    status: str | None = None
    since: float | None = None
    until: float | None = None
    asked: str | None = None
    account: str | None = None
    before: str | None = None


ALL = Filter()


def condition(filter: Filter) -> tuple[str, list[Any]]:
    """The condition on a request `r`, and the values for it. Raises LedgerError."""
    tests: list[tuple[str, list[Any]]] = []
    if filter.combo is not None:
        tests.append(("r.combo = ?", [filter.combo]))
    if filter.caller is not None:
        tests.append(("r.caller = ?", [filter.caller]))
    if filter.model is not None:
        tests.append((f"(r.served GLOB ? OR {_tried('entry GLOB ?')})", [filter.model] * 2))
    if filter.status is not None:
        tests.append(_status(filter.status))
    if filter.asked is not None:
        tests.append(("r.asked = ?", [filter.asked]))
    if filter.account is not None:
        account = _tried("(account = ? OR provider || '/' || account = ?)")
        tests.append((account, [filter.account] * 2))
    if filter.before is not None:
        tests.append(("r.id < ?", [filter.before]))
    if filter.since is not None:
        tests.append(("r.began >= ?", [filter.since]))
    if filter.until is not None:
        tests.append(("r.began < ?", [filter.until]))
    values = [value for _, given in tests for value in given]
    return " AND ".join(test for test, _ in tests) or "1", values


def _status(status: str) -> tuple[str, list[Any]]:
    if status == "ok":
        return "r.outcome = ?", [str(End.ANSWERED)]
    if status == "failed":
        return "r.outcome <> ?", [str(End.ANSWERED)]
    if status.isascii() and status.isdigit() and len(status) <= 3:
        return f"(r.status = ? OR {_tried('status = ?')})", [int(status)] * 2
    if status in REASONS:
        return "instr(r.reasons, ?) > 0", [f"|{status}|"]
    known = ("ok", "failed", *sorted(map(str, REASONS)))
    hint = did_you_mean(status, known) or f"Known: {', '.join(known)}, or a number."
    raise LedgerError(f"No request has the status {status!r}. {hint}")


def _tried(test: str) -> str:
    return f"EXISTS (SELECT 1 FROM attempts WHERE request = r.number AND {test})"  # noqa: S608
