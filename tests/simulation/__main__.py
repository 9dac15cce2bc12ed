"""Run the scenario: `python -m tests.simulation --seed 17 --trace` replays one seed and shows what happened."""

import sys

from .commandline import main
from .scenario import Scenario

MAX_STEPS = 500_000

if __name__ == "__main__":
    sys.exit(main("tests.simulation", lambda: Scenario().run(), max_steps=MAX_STEPS))
