"""`krouter explain`: the order that a request would get now, without sending it, or the order that
a past one got."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from krouter.body import Body, BodyError
from krouter.cli.common import Command, NotThere, find_paths, json_option, place_options
from krouter.cli.outlook import fault, panels, prospects, top
from krouter.cli.output import inert, print_json, print_table, say, say_line, shortened
from krouter.cli.panels import told
from krouter.cli.rebuilt import Rebuilt
from krouter.cli.recorded import find_route
from krouter.cli.view import Prospect, View, open_view, source_of
from krouter.cli.wording import by_name, strategy_name
from krouter.combos import Medium
from krouter.dialects import DIALECTS
from krouter.dialects.needs import needs
from krouter.naming import Destination, UnknownModel, resolve
from krouter.route import Route
from krouter.standing import plan_for
from krouter.world import Ask

_MEDIA = get_args(Medium)


def _media_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for medium in reversed(_MEDIA):
        text = f"The latest message carries {_ARTICLE.get(medium, medium)}."
        command = click.option(f"--{medium}", is_flag=True, help=text)(command)
    return command


_ARTICLE = {"image": "an image", "pdf": "a PDF", "video": "a video"}


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--route",
    metavar="ID",
    help="Rebuild the order of this past request, from its record and never from today's files.",
)
@_media_options
@click.option(
    "--file",
    "request",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A request body in JSON: what it carries and whether it is streamed is read from it.",
)
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
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    name: str | None,
    route: str | None,
    request: Path | None,
    dialect: str,
    stream: bool,
    home: str | None,
    config: str | None,
    combos: str | None,
    as_json: bool,
    **media: bool,
) -> None:
    """Show how a request would be answered now.

    NAME is what a caller would ask for: a combo, an alias or provider/model. Nothing is sent, and
    no rotation moves on. Locks, quotas, rotations and health are known to the running server
    alone; the order is that of a server which has just started. Exit code 1 where no answer can
    come of it.

    With --route in place of NAME it shows the order of a past request, made anew from all that is
    kept of it, and whether that is the order which was recorded then. It must be: if it is not, the
    exit code is 1 and both are shown.

    The entries of a fusion are all asked at once. After them comes the judge, at place 0; before
    them stands how long the panel is waited for.

    JSON: asked, kind (combo, alias, claude-name, model, bare-name), combo, source, strategy,
    dialect, stream, needs, switches, sendable (whether an answer can come of it), why_not, fusions,
    entries, each with place (0 for a judge), model, combo, role (panel or judge, null outside of a
    fusion), reason, provider, lane, account_strategy (where there is a choice), accounts (each with
    name, fault, score, reason), skip, detail. A fusion is combo, panel (how many are asked),
    quorum, grace_ms, hard_timeout_ms, judge, auto (whether it judges as the first of the panel),
    on_single, on_judge_failure, late_calls, require_quorum, max_panel, problem (why it is answered
    400, or null).

    JSON with --route: asked, combo, strategy, dialect, stream, needs, switches, entries as above,
    a judge only where one was asked (role again: the only one that had answered, asked again),
    route, same, differences (each with what, recorded, rebuilt).
    """
    paths = find_paths(home, config, combos)
    if route is not None:
        _refuse_others(ctx)
        _explain_past(find_route(paths, route), as_json)
        return
    if name is None:
        raise click.UsageError("Missing argument 'NAME', or --route ID for a past request.")
    view = open_view(paths, required=config is not None)
    try:
        destination = resolve(name, view.world)
    except UnknownModel as unknown:
        raise NotThere(str(unknown)) from None
    ask = _asked(dialect, stream, [medium for medium in _MEDIA if media[medium]], request)
    found = _explained(view, name, destination, ask)
    if as_json:
        print_json(found)
    else:
        _show(found)
        say(f"\n{FRESH}", err=True)
    if not found["sendable"]:
        click.get_current_context().exit(1)


NOTHING = "Nothing can be sent: every entry is passed over."
FRESH = (
    "This is the order of a server that has just started: the locks, quotas, rotations and health"
    " of the running one are not in it."
)


def _refuse_others(ctx: click.Context) -> None:
    """A past request has its own name, dialect and attachments."""
    own = ("name", "request", "dialect", "stream", *_MEDIA)
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if param.name in own and given and ctx.params[param.name] is not None:
            what = "NAME" if param.name == "name" else param.opts[0]
            raise click.UsageError(f"{what} and --route exclude each other.")


def _explain_past(route: Route, as_json: bool) -> None:
    rebuilt = Rebuilt(route)
    found = rebuilt.as_json()
    if as_json:
        print_json(found)
    else:
        _show_past(found, route)
    if not found["same"]:
        raise click.exceptions.Exit(1)


def _show_past(found: dict[str, Any], route: Route) -> None:
    say_line(f"{_past_headline(found)}; route {route.id}")
    if not found["entries"]:
        say_line(f"No order was made for it: {route.outcome}.")
        return
    _show_order(found)
    if found["same"]:
        say("\nMade anew from the record; it is the order that was recorded.")
    else:
        say("\nMade anew from the record; it is NOT what was recorded.")
    for each in found["differences"]:
        for which in ("recorded", "rebuilt"):
            say(f"\n{which}, {inert(each['what'])}:")
            for line in each[which]:
                say_line(f"  {line}")


def _past_headline(found: dict[str, Any]) -> str:
    target = f"the combo {found['combo']} ({found['strategy']})" if found["combo"] else "no combo"
    return f"{found['asked']}: {target}; {_manner(found)}"


def _asked(dialect: str, stream: bool, media: list[Medium], request: Path | None) -> Ask:
    carried = frozenset(media)
    if request is not None:
        try:
            body = Body.parse(request.read_bytes())
        except (OSError, BodyError) as error:
            raise click.ClickException(f"{request}: {error}") from None
        carried |= needs(dialect, body)
        stream = stream or body.value("stream") is True
    return Ask(dialect, stream, carried)


def _explained(view: View, name: str, destination: Destination, ask: Ask) -> dict[str, Any]:
    combo, world = destination.combo, view.world
    plan = plan_for(combo, world, ask, adapted=True)
    site = top(plan, world)
    found, why_not = list(prospects(site, world, ask)), fault(site, world, ask)
    source = source_of(view, combo.name) if not destination.direct else None
    return {
        "asked": name,
        "kind": destination.found_by,
        "combo": None if destination.direct else combo.name,
        "source": str(source) if source else None,
        "strategy": None if destination.direct else strategy_name(plan.snapshot),
        "dialect": ask.dialect,
        "stream": ask.stream,
        "needs": sorted(ask.needs),
        "switches": list(plan.switches),
        "sendable": not why_not,
        "why_not": why_not,
        "fusions": [panel.as_json() for panel in panels(site, world, ask)],
        "entries": _entries(found, destination),
    }


def _entries(found: list[Prospect], destination: Destination) -> list[dict[str, Any]]:
    places = count(1)
    return [
        _entry(0 if each.role == "judge" else next(places), each, destination) for each in found
    ]


def _entry(place: int, found: Prospect, destination: Destination) -> dict[str, Any]:
    combo = None if destination.direct else found.leaf.combo.name
    return {
        "place": place,
        "model": found.leaf.name,
        "combo": combo,
        "role": found.role,
        "reason": found.leaf.reason if combo else by_name(found.leaf.reason),
        "provider": found.provider.name if found.provider else None,
        "lane": found.lane,
        "account_strategy": found.strategy,
        "accounts": [
            {
                "name": account.name,
                "fault": fault,
                "score": found.ranking.get(account.name, (None, ""))[0],
                "reason": found.ranking.get(account.name, (None, ""))[1],
            }
            for account, fault in found.accounts
        ],
        "skip": str(found.skip) if found.skip else None,
        "detail": found.detail,
    }


def _sendable(entry: dict[str, Any]) -> bool:
    return any(account["fault"] is None for account in entry["accounts"])


def _show(found: dict[str, Any]) -> None:
    say_line(_headline(found))
    for fusion in found["fusions"]:
        for line in told(fusion):
            say_line(line)
    _show_order(found)
    if not found["sendable"]:
        can_be_sent = any(map(_sendable, found["entries"]))
        said = f"No answer can come of it: {found['why_not']}." if can_be_sent else NOTHING
        say()
        say_line(said)


def _show_order(found: dict[str, Any]) -> None:
    for line in found["switches"]:
        say_line(line)
    say()
    columns = ("#", "model", "combo", "lane", "accounts", "why")
    print_table(columns, [_row(entry) for entry in found["entries"]])


def _headline(found: dict[str, Any]) -> str:
    target = "one model, called directly"
    if found["combo"]:
        target = f"the combo {found['combo']} ({found['strategy']}, {found['source']})"
    via = "" if found["kind"] in ("combo", "model") else f", by {_VIA[found['kind']]}"
    return f"{found['asked']}: {target}{via}; {_manner(found)}"


def _manner(found: dict[str, Any]) -> str:
    how = "streamed" if found["stream"] else "not streamed"
    carried = f", with {' and '.join(found['needs'])}" if found["needs"] else ""
    return f"{found['dialect']}, {how}{carried}"


_VIA = {
    "alias": "an alias",
    "claude-name": "its claude- name",
    "bare-name": "LiteLLM's name for it",
}


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(entry["place"]),
        shortened(entry["model"]),
        shortened(entry["combo"] or ""),
        entry["lane"] or "",
        ", ".join(_account(each, entry.get("account_strategy")) for each in entry["accounts"]),
        _why(entry),
    )


def _account(account: dict[str, Any], strategy: str | None) -> str:
    """With its score only where that decides."""
    if account["fault"]:
        return f"{account['name']} (passed over: {account['fault']})"
    if strategy is None:
        return str(account["name"])
    by_score = strategy in ("zenith", "p2c")
    why = f"{account['score']:.0f}" if by_score else account["reason"]
    return f"{account['name']} ({why})"


def _why(entry: dict[str, Any]) -> str:
    if entry["skip"] is None:
        return str(entry["reason"])
    detail = f" ({entry['detail']})" if entry["detail"] else ""
    return f"skipped: {entry['skip']}{detail}"
