"""A krouter in which nothing is real but krouter: its providers do as a director says, its time
passes only while nothing else is to be done, and no credential, file or network is used.

    from krouter.rehearsal import Rehearsal, Turn, failing

    view = open_view(paths, required=False)  # or any World
    with Rehearsal(view.world, failing(view.world, {"cc": 529, "glm/glm-5.1": "cut"})) as rehearsal:
        seen = rehearsal.ask("daily", needs={"image"}, dialect="messages", stream=True)
    seen.came, seen.status, seen.text   # what the caller had: Came.WHOLE, 200, "This is the ..."
    seen.first, seen.seconds            # how long it waited, exactly
    seen.attempts, seen.route, seen.cost

A director is any callable from `Sent` to `Turn`; `krouter.adapter.load_faults()` has the names of
all faults. Locks, rotations and quotas stay from one request to the next; `Rehearsal(stage, ...)`
over a `Stage.of(world)` made once begins anew for some 0.2 ms. Many at once are coroutines:

    async def crowd() -> list[Seen]:
        return await asyncio.gather(*(rehearsal.send("daily") for _ in range(100)))

    rehearsal.run(crowd())
"""

from krouter.rehearsal.directors import canonical as canonical
from krouter.rehearsal.directors import failing as failing
from krouter.rehearsal.directors import split_name as split_name
from krouter.rehearsal.directors import well as well
from krouter.rehearsal.reading import Came as Came
from krouter.rehearsal.requests import NEEDS as NEEDS
from krouter.rehearsal.seen import Seen as Seen
from krouter.rehearsal.stage import Stage as Stage
from krouter.rehearsal.theatre import Rehearsal as Rehearsal
from krouter.script import Director as Director
from krouter.script import Sent as Sent
from krouter.script import Turn as Turn
from krouter.script import UnknownFault as UnknownFault
