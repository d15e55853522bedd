"""`krouter quota`: what is left of each account, as the running krouter knows it."""

from __future__ import annotations

import time
from typing import Any

import click

from krouter.cli.common import Command, find_paths, home_option, json_option
from krouter.cli.output import print_json, print_table, say
from krouter.cli.running import Refused, ask, url_option
from krouter.paths import Paths
from krouter.resets import moment

COLUMNS = ("provider", "account", "what", "left", "resets in", "age", "source")


class _Group(click.Group, Command):
    """Without a subcommand it lists."""


@click.group(cls=_Group, invoke_without_command=True)
@home_option
@url_option
@json_option
@click.pass_context
def quota(ctx: click.Context, home: str | None, url: str | None, as_json: bool) -> None:
    """Show what is left of each account, or tell krouter of it.

    Figures of models order the entries of combos; windows and balances count where an account is
    chosen. They are known to the running krouter, which is asked.

    JSON: now, figures (each with provider, account, model, remaining, resets_at, spent, source,
    age), windows (window in place of spent; model is a part of the names it counts for), balances
    (balance, amount, of, currency), failing (provider, account, problem, failures, next_at).
    """
    if ctx.invoked_subcommand is not None:
        return
    found = ask(find_paths(home), url, "/api/quota")
    if as_json:
        print_json(found)
        return
    if rows := [*_rows(found)]:
        print_table(COLUMNS, rows)
    else:
        say("Nothing is known yet: accounts are asked once they are in use.", err=True)
    for each in found["failing"]:
        again = _span(each["next_at"] - found["now"])
        who = f"{each['provider']}/{each['account']}"
        say(f"{who}: {each['problem']}; asked again in {again}", err=True)


def _rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    now = found["now"]
    rows = [_row(each, each["model"], _share(each), now) for each in found["figures"]]
    rows += [_row(each, each["window"], _share(each), now) for each in found["windows"]]
    rows += [_row(each, each["balance"], _money(each), now) for each in found["balances"]]
    return sorted(rows)


def _row(each: dict[str, Any], what: str, left: str, now: float) -> tuple[str, ...]:
    resets = each.get("resets_at")
    return (
        each["provider"],
        each["account"],
        what,
        left,
        _span(resets - now) if resets else "-",
        _span(each["age"]),
        each["source"],
    )


def _share(each: dict[str, Any]) -> str:
    return f"{each['remaining']:.0%}{' (spent)' if each.get('spent') else ''}"


def _money(each: dict[str, Any]) -> str:
    of = "" if each["of"] is None else f" of {each['of']:.2f}"
    return f"{each['amount']:.2f}{of} {each['currency']}"


def _span(seconds: float) -> str:
    """`3 d 4 h`, `2 h 5 min`, `12 s`."""
    left = max(0, round(seconds))
    if left < 60:
        return f"{left} s"
    for unit, size, part, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if left >= size:
            return f"{left // size} {unit} {left % size // small} {part}"
    return f"{left // 60} min"


class _Share(click.FloatRange):
    """0 to 1; NaN is neither."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        share = super().convert(value, param, ctx)
        return self.fail("is not a number from 0 to 1.", param, ctx) if share != share else share


@quota.command("set", cls=Command)
@click.argument("provider")
@click.argument("model")
@click.argument("remaining", type=_Share(0, 1))
@click.option("--account", metavar="NAME", help="Needed where the provider has several.")
@click.option(
    "--resets-at",
    metavar="TIME",
    help="When it is full again: an ISO 8601 time, epoch seconds, or a span such as 2h30m. The"
    " figure holds until then; without it, for an hour.",
)
@home_option
@url_option
@json_option
@click.pass_context
def set_(
    ctx: click.Context,
    provider: str,
    model: str,
    remaining: float,
    account: str | None,
    resets_at: str | None,
    home: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Tell how much of MODEL's quota is left at PROVIDER.

    REMAINING is a share from 0 to 1. Entries with more left are tried before those with less;
    0.02 or less is spent, and goes last. MODEL is the provider's own name for it, with or without
    PROVIDER/ in front.

    JSON: provider, account, model, remaining, resets_at, spent, source, age, combos (those whose
    entries it orders).
    """
    if resets_at is not None and moment(resets_at, time.time()) is None:
        raise click.BadParameter(f"{resets_at!r} {_TIMES}", param_hint="--resets-at")
    above = ctx.parent.params if ctx.parent else {}
    body = {"provider": provider, "model": model, "remaining": remaining}
    optional = {"account": account, "resets_at": resets_at}
    given = {name: value for name, value in optional.items() if value is not None}
    paths, url = find_paths(home or above.get("home")), url or above.get("url")
    told = _told(paths, url, {**body, **given})
    if as_json or above.get("as_json"):
        print_json(told)
        return
    who = f"{told['provider']}/{told['account']}"
    say(f"{who}: {_share(told)} of {told['model']} is left.", err=True)
    if not told["combos"]:
        named = f"{told['provider']}/{told['model']}"
        say(f"Warning: it orders nothing: no entry of a combo names {named}.", err=True)


_TIMES = (
    "is no time to come, at most 32 days ahead: write an ISO 8601 time such as"
    " 2027-01-15T09:00:00Z, epoch seconds, or a span such as 2h30m."
)
_ARGUMENTS = {"provider": "PROVIDER", "model": "MODEL", "remaining": "REMAINING"}


def _told(paths: Paths, url: str | None, body: dict[str, Any]) -> dict[str, Any]:
    """The figure as the running krouter took it. What it refuses is a wrong argument here."""
    try:
        found: dict[str, Any] = ask(paths, url, "/api/quota", body)
    except Refused as refused:
        field, colon, message = refused.message.partition(": ")
        if refused.status != 400 or not colon or not field.startswith("$."):
            raise
        name = field.removeprefix("$.")
        hint = _ARGUMENTS.get(name, f"--{name.replace('_', '-')}")
        raise click.BadParameter(message, param_hint=hint) from None
    return found
