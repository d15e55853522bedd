"""The scripted provider as a rehearsal loads it."""

from __future__ import annotations

from collections.abc import Iterable

from krouter.adapter import Adapter
from krouter.script import Credentials, Director, Faults, Kind, Sent
from krouter_adapters.scripted.lane import ScriptedLane
from krouter_adapters.scripted.wire import ScriptedWire, befalls


class Scripted:
    def lane(self, lanes: Iterable[Adapter]) -> ScriptedLane:
        return ScriptedLane(lanes)

    def wire(self, director: Director, faults: Faults, credentials: Credentials) -> ScriptedWire:
        return ScriptedWire(director, faults, credentials)

    def befalls(self, kind: Kind, sent: Sent) -> bool:
        return befalls(kind, sent)


SCRIPTED = Scripted()
