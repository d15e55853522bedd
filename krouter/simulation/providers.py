"""What the providers of a simulation do: their latencies, outages and quotas."""

from __future__ import annotations

import random
from collections import defaultdict
from math import exp

from krouter.rehearsal import canonical
from krouter.script import Sent, Turn
from krouter.simulation.loads import Asked, Latency, Load, Outage, Quota
from krouter.world import World

_USUAL = Latency()
TEXT = "Done."
"""All that is ever said: what it costs goes by the tokens of the load."""
SPENT = "429"
"""What an account answers whose quota is spent."""


class Providers:
    """A director. Draws in the order in which it is asked, so that the same gives the same."""

    def __init__(self, load: Load, world: World, seed: int) -> None:
        self._chance = random.Random(f"providers {seed}")  # noqa: S311
        self._latency = {canonical(name, world): each for name, each in load.latency.items()}
        self._outages: dict[str, list[Outage]] = defaultdict(list)
        self._quotas: dict[str, list[tuple[int, Quota]]] = defaultdict(list)
        for outage in load.outages:
            self._outages[canonical(outage.of, world)].append(outage)
        for number, quota in enumerate(load.quotas):
            self._quotas[canonical(quota.of, world)].append((number, quota))
        self._used: dict[tuple[int, str, str], tuple[int, int]] = defaultdict(lambda: (0, -1))
        """Requests or tokens in the window of that number, by quota and account."""
        self._known: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def __call__(self, sent: Sent) -> Turn:
        names = self._names_of(sent)
        latency = next((self._latency[n] for n in names if n in self._latency), _USUAL)
        wait = latency.first_byte * self._drawn(latency.spread)
        for outage in self._outages_at(names, sent.at):
            if outage.share >= 1 or self._chance.random() < outage.share:
                return Turn(str(outage.fault), wait=wait)
        note = sent.note
        assert isinstance(note, Asked)
        if (reset := self._spent(names, sent, note)) is not None:
            return Turn(SPENT, wait=wait, reset=reset)
        took = latency.rest * self._drawn(latency.spread)
        return Turn("", TEXT, wait, took, note.input, note.output)

    def _names_of(self, sent: Sent) -> tuple[str, ...]:
        """What the load may call it by, the most exact name first."""
        key = sent.provider, sent.account, sent.model
        found = self._known.get(key)
        if found is None:
            provider = sent.provider
            found = f"{provider}@{sent.account}", sent.entry, provider, "*"
            self._known[key] = found
        return found

    def _drawn(self, spread: float) -> float:
        return exp(self._chance.gauss(0.0, spread)) if spread else 1.0

    def _outages_at(self, names: tuple[str, ...], at: float) -> list[Outage]:
        if not self._outages:
            return []
        return [
            outage
            for name in names
            for outage in self._outages.get(name, ())
            if outage.begin <= at < outage.to
        ]

    def _spent(self, names: tuple[str, ...], sent: Sent, asked: Asked) -> float | None:
        """In how many seconds a spent quota of the account begins anew; None where all quotas have
        room, which is taken then."""
        if not self._quotas:
            return None
        counted = []
        for name in names:
            for number, quota in self._quotas.get(name, ()):
                key = number, sent.provider, sent.account
                used, window = self._used[key]
                now = int(sent.at // quota.every)
                used = used if window == now else 0
                takes = asked.input + asked.output if quota.tokens is not None else 1
                most = quota.tokens if quota.tokens is not None else quota.requests
                assert most is not None
                if used + takes > most:
                    return (now + 1) * quota.every - sent.at
                counted.append((key, (used + takes, now)))
        self._used.update(counted)
        return None
