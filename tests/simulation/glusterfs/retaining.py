"""The same, and somebody keeps volumes whose deletion has begun: `python -m tests.simulation.glusterfs.retaining`."""

import sys

from tests.simulation.commandline import main

from .scenario import Scenario

if __name__ == "__main__":
    sys.exit(main(__spec__.name, lambda: Scenario(retains=True).run(), max_steps=4_000_000))
