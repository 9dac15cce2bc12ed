"""Run the scenario: `python -m tests.simulation.glusterfs --seed 17 --trace` replays one seed."""

import sys

from tests.simulation.commandline import main

from .scenario import Scenario

if __name__ == "__main__":
    sys.exit(main("tests.simulation.glusterfs", lambda: Scenario().run(), max_steps=4_000_000))
