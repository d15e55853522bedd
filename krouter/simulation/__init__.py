"""Very many requests against a combo, with outages and quotas, in virtual time.

load = read_load(path, stage.world, stage.faults)
report = simulate(Stage.of(view.world), "daily", load)
report.as_json()["availability"]
"""

from krouter.simulation.loads import Load as Load
from krouter.simulation.loads import read_load as read_load
from krouter.simulation.report import Report as Report
from krouter.simulation.run import simulate as simulate
