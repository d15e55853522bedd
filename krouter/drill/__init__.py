"""A combo against every fault, at each of its entries in turn and at all: what callers would see.

stage = Stage.of(view.world)
for case in drill(stage, "daily"):
    case.fault, case.spot, case.stream     # what befell whom
    case.seen, case.steps                  # what the caller saw, and what left krouter
    case.finding.wrong                     # "", "cut", "hang" or "lost"
"""

from krouter.drill.oracle import Finding as Finding
from krouter.drill.oracle import find as find
from krouter.drill.run import Case as Case
from krouter.drill.run import drill as drill
from krouter.drill.spots import Spot as Spot
from krouter.drill.spots import spots_of as spots_of
