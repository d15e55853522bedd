"""The cases that a combo file expects, played by scripted providers in virtual time.

stage = Stage.of(view.world)
for trial in try_combo(stage, stage.world.combos["daily"]):
    trial.case, trial.misses          # what was expected, and what came in its place
    trial.order, trial.attempts, trial.reply
"""

from krouter.trial.names import misnamed as misnamed
from krouter.trial.run import Miss as Miss
from krouter.trial.run import Trial as Trial
from krouter.trial.run import reply_in_words as reply_in_words
from krouter.trial.run import try_case as try_case
from krouter.trial.run import try_combo as try_combo
