"""`krouter explain`: the order that a request would get now, without sending it."""

from __future__ import annotations

from typing import Any

import click

from krouter.cli.common import Command, NotThere, find_paths, json_option, place_options
from krouter.cli.output import print_json, print_table
from krouter.cli.view import Prospect, View, open_view, prospects, source_of
from krouter.dialects import DIALECTS
from krouter.lineup import World
from krouter.plan import NotBuilt, make_plan
from krouter.router import Destination, UnknownModel, resolve


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    default="chat",
    show_default=True,
    help="Wire format of the request.",
)
@click.option("--stream", is_flag=True, help="A streamed request.")
@place_options
@json_option
def explain(
    name: str,
    dialect: str,
    stream: bool,
    home: str | None,
    config: str | None,
    combos: str | None,
    as_json: bool,
) -> None:
    """Show how a request would be answered now.

    NAME is what a caller would ask for: a combo, an alias or provider/model. Nothing is sent.
    Locks are known to the running server alone, and not taken into account.

    JSON: asked, kind (combo, alias, claude-name, model), combo, source, strategy, dialect, stream,
    sendable, not_built, entries, each with place, model, combo, reason, provider, lane, accounts
    (each with name, fault), skip, detail.
    """
    view = open_view(find_paths(home, config, combos), required=config is not None)
    try:
        destination = resolve(name, view.world)
    except UnknownModel as unknown:
        raise NotThere(str(unknown)) from None
    found = _explained(view, name, destination, dialect, stream)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _explained(
    view: View, name: str, destination: Destination, dialect: str, stream: bool
) -> dict[str, Any]:
    combo = destination.combo
    entries, missing = _entries(view.world, destination, dialect, stream)
    source = source_of(view, combo.name) if not destination.direct else None
    return {
        "asked": name,
        "kind": destination.found_by,
        "combo": None if destination.direct else combo.name,
        "source": str(source) if source else None,
        "strategy": None if destination.direct else combo.strategy,
        "dialect": dialect,
        "stream": stream,
        "sendable": any(map(_sendable, entries)),
        "not_built": missing,
        "entries": entries,
    }


def _entries(
    world: World, destination: Destination, dialect: str, stream: bool
) -> tuple[list[dict[str, Any]], str | None]:
    try:
        plan = make_plan(destination.combo, world.settings.routing, stream)
    except NotBuilt as missing:
        return [], str(missing)
    found = prospects(plan, world, dialect, stream)
    rows = (_entry(place, each, destination) for place, each in enumerate(found, 1))
    return list(rows), None


def _entry(place: int, found: Prospect, destination: Destination) -> dict[str, Any]:
    combo = None if destination.direct else found.leaf.combo.name
    return {
        "place": place,
        "model": found.leaf.name,
        "combo": combo,
        "reason": found.leaf.reason if combo else "asked for by name",
        "provider": found.provider.name if found.provider else None,
        "lane": found.lane,
        "accounts": [{"name": account.name, "fault": fault} for account, fault in found.accounts],
        "skip": str(found.skip) if found.skip else None,
        "detail": found.detail,
    }


def _sendable(entry: dict[str, Any]) -> bool:
    return any(account["fault"] is None for account in entry["accounts"])


def _show(found: dict[str, Any]) -> None:
    click.echo(_headline(found))
    if found["not_built"]:
        click.echo(f"501: this version cannot answer: {found['not_built']}.")
        return
    click.echo()
    columns = ("#", "model", "combo", "lane", "accounts", "why")
    print_table(columns, [_row(entry) for entry in found["entries"]])
    if not found["sendable"]:
        click.echo("\nNothing can be sent: every entry is passed over.")


def _headline(found: dict[str, Any]) -> str:
    how = "streamed" if found["stream"] else "not streamed"
    target = "one model, called directly"
    if found["combo"]:
        target = f"the combo {found['combo']} ({found['strategy']}, {found['source']})"
    via = "" if found["kind"] in ("combo", "model") else f", by {_VIA[found['kind']]}"
    return f"{found['asked']}: {target}{via}; {found['dialect']}, {how}"


_VIA = {"alias": "an alias", "claude-name": "its claude- name"}


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(entry["place"]),
        entry["model"],
        entry["combo"] or "",
        entry["lane"] or "",
        ", ".join(map(_account, entry["accounts"])),
        _why(entry),
    )


def _account(account: dict[str, Any]) -> str:
    fault = f" (passed over: {account['fault']})" if account["fault"] else ""
    return f"{account['name']}{fault}"


def _why(entry: dict[str, Any]) -> str:
    if entry["skip"] is None:
        return str(entry["reason"])
    detail = f" ({entry['detail']})" if entry["detail"] else ""
    return f"skipped: {entry['skip']}{detail}"
