"""Run the scenario: `python -m tests.simulation.orchestration --seed 17 --trace` replays one seed."""

import sys

from tests.simulation.commandline import main

from .scenario import Scenario

if __name__ == "__main__":
    sys.exit(main("tests.simulation.orchestration", lambda: Scenario().run(), max_steps=2_000_000))
