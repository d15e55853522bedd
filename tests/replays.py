"""Records of a rehearsed krouter, and their replay over other combos."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from krouter.adapter import load_faults
from krouter.board import Turns
from krouter.combos import Combo
from krouter.ledger_records import Waits
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.records import decode, encode
from krouter.rehearsal import Rehearsal, Seen, Sent, Stage, Turn
from krouter.replay import Change, Replayed, Today, replay
from krouter.route import Route
from krouter.wire import HttpWire
from krouter.world import World

SETTINGS = """
[provider.one]
base_url = "http://127.0.0.1:9/v1"
[[account]]
provider = "one"
name = "spare"
key = "env:SPARE"
[provider.two]
base_url = "http://127.0.0.1:9/v1"
[[account]]
provider = "two"
name = "narrow"
key = "env:NARROW"
max_concurrent = 1
[provider.three]
base_url = "http://127.0.0.1:9/v1"
[provider.four]
base_url = "http://127.0.0.1:9/v1"
[reads]
"one/a" = []
"one/b" = ["image"]
"two/a" = ["image"]
"three/a" = []
[vision_adapter.image]
models = ["four/eyes"]
"""
MODELS = ("one/a", "one/b", "two/a", "three/a", "four/a")


@lru_cache(maxsize=1)
def stage() -> Stage:
    """Five models of four providers; some read images, some have several accounts."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "krouter.toml").write_text(SETTINGS)
        env = {"SPARE": "x", "NARROW": "x"}
        paths = resolve_paths(home=home, env=env, cwd=home)
        return Stage.of(House(paths, env, HttpWire(), ledger=False).router.world)


def combo(name: str, *models: Any, **fields: Any) -> Combo:
    return Combo.model_validate({"name": name, "models": models, **fields}, by_alias=True)


def world_of(combos: Iterable[Combo]) -> World:
    return replace(stage().world, combos={each.name: each for each in combos})


def director_of(faults: Mapping[str, str]) -> Any:
    """Faults by `provider/model`, or `provider/model account`."""

    def director(sent: Sent) -> Turn:
        fault = faults.get(f"{sent.entry} {sent.account}") or faults.get(sent.entry, "")
        return Turn(fault, input=1000, output=50)

    return director


def rehearse(
    combos: Sequence[Combo],
    faults: Mapping[str, str],
    *rounds: Sequence[Mapping[str, Any]],
    seed: int = 0,
) -> tuple[list[Route], list[Seen]]:
    """The records of some rounds of requests, those of one round at the same time, as a ledger
    gives them back; and what their callers saw."""
    kept: list[Route] = []
    stood = replace(stage(), world=world_of(combos))
    with Rehearsal(stood, director_of(faults), seed=seed) as rehearsal:
        rehearsal.router.books.append(kept.append)

        async def crowd(asked: Sequence[Mapping[str, Any]]) -> list[Seen]:
            sent = (
                rehearsal.send(each.get("name", combos[0].name), **_how(each)) for each in asked
            )
            return list(await asyncio.gather(*sent))

        seen = [each for asked in rounds for each in rehearsal.run(crowd(asked))]
        rehearsal.wait(700.0)
    return list(map(stored, kept)), seen


def _how(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if key != "name"}


def stored(route: Route) -> Route:
    """A route as a ledger gives it back."""
    raw, combos = encode(route)
    return decode(raw, combos.get)


def no_waits(provider: str, model: str, stream: bool) -> Waits | None:
    return Waits(1.0, 1.0 if not stream else 2.0)


def replayed(
    route: Route, new: Sequence[Combo], old: Sequence[Combo] = (), turns: Turns | None = None
) -> Replayed:
    """A request over the combos `new`."""
    world = world_of(new)
    change = Change(world.combos, {each.name: each for each in old or new}, whole=True)
    goes_to = world.combos[route.combo]
    return replay(route, goes_to, change, world, Today(world, no_waits), turns or Turns())


FAULTS = tuple(name for name in load_faults() if name != "caller-gone")
ACCOUNTS = ("spare", "narrow", "default")


def some_combos(chance: Random) -> list[Combo]:
    """Three combos, of which the first may hold the others, with whatever settings."""
    low = _some_combo(chance, "low", [])
    mid = _some_combo(chance, "mid", ["low"])
    return [_some_combo(chance, "top", ["low", "mid"]), mid, low]


def _some_combo(chance: Random, name: str, inner: list[str]) -> Combo:
    models = [_some_entry(chance, inner) for _ in range(chance.randint(1, 4))]
    strategy = chance.choices(["fallback", "priority", "round-robin", "fusion"], [4, 1, 2, 1])[0]
    fields = {
        "retries": chance.randint(1, 2),
        "streamGuard": chance.choice(["first", "full"]),
        "onTooLarge": "larger",
        "onRefusal": "return",
        "timeouts": {"total": chance.choice([30, 90, 400])},
    }
    if strategy == "fusion":
        fields["judge"] = chance.choice([*MODELS, *inner])
        fields["fusionTuning"] = {"onSingle": chance.choice(["resend", "judge", "return"])}
    kept = {key: value for key, value in fields.items() if chance.random() < 0.3}
    return combo(name, *models, strategy=strategy, **kept)


def _some_entry(chance: Random, inner: list[str]) -> Any:
    model = chance.choice(MODELS)
    if inner and chance.random() < 0.3:
        return chance.choice(inner)
    more = [
        {"accounts": [chance.choice(ACCOUNTS)]},
        {"params": {"temperature": chance.choice([0, 1])}},
        {"contextWindow": chance.choice([1000, 100_000])},
        {"timeouts": {"firstByte": chance.choice([5, 30]), "attempt": chance.choice([20, 100])}},
    ]
    return {"model": model, **chance.choice(more)} if chance.random() < 0.35 else model


def some_faults(chance: Random) -> dict[str, str]:
    """Of models, and of their accounts."""
    faults = {model: chance.choice(FAULTS) for model in MODELS if chance.random() < 0.6}
    named = (f"{model} {account}" for model in MODELS for account in ACCOUNTS)
    return faults | {name: chance.choice(FAULTS) for name in named if chance.random() < 0.15}


def some_requests(chance: Random) -> list[dict[str, Any]]:
    """Up to three at once, of which some leave."""
    asked = []
    for _ in range(chance.randint(1, 3)):
        how: dict[str, Any] = {
            "needs": ["image"] if chance.random() < 0.35 else [],
            "dialect": chance.choice(["chat", "chat", "messages", "responses", "gemini"]),
            "stream": chance.random() < 0.5,
        }
        if chance.random() < 0.1:
            how["hang_up"] = chance.choice([0.5, 1.5, 3, 40])
        asked.append(how)
    return asked
