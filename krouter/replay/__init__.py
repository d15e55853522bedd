"""Past requests over changed combos: what would have gone elsewhere, and what that would have cost.

The order of each is made anew from what its record knew; whoever was tried then ends as it ended
then, and whoever was not is assumed to answer.
"""

from krouter.replay.change import Change as Change
from krouter.replay.evidence import Bare as Bare
from krouter.replay.one import Replayed as Replayed
from krouter.replay.one import Side as Side
from krouter.replay.one import recorded as recorded
from krouter.replay.one import replay as replay
from krouter.replay.period import Found as Found
from krouter.replay.period import Period as Period
from krouter.replay.scene import Call as Call
from krouter.replay.today import Today as Today
