"""Days of a cluster's life in seconds, repeatably: a seeded loop with virtual time, and seeded faults.

    def test_two_writers_keep_both_updates() -> None:
        for seed in range(50):
            run(scenario, seed=seed)

What runs in it must be exact: no thread, no real socket, no wall clock, no set whose order matters; see
docs/design/simulation.md.
"""

from quartermaster.testing.simulation.chaos import Chaos
from quartermaster.testing.simulation.faults import CALM, ROUGH, Rates, SeededFaults
from quartermaster.testing.simulation.loop import SimulationLoop
from quartermaster.testing.simulation.process import Process
from quartermaster.testing.simulation.report import SimulationError
from quartermaster.testing.simulation.run import Run, record, run, simulated, simulation_loop

__all__ = [
    "CALM",
    "ROUGH",
    "Chaos",
    "Process",
    "Rates",
    "Run",
    "SeededFaults",
    "SimulationError",
    "SimulationLoop",
    "record",
    "run",
    "simulated",
    "simulation_loop",
]
