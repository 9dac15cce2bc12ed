"""Twins of the host layer without a machine: for simulations, and for tests with a fault at every call."""

from quartermaster.host.fake.commands import FakeCommands
from quartermaster.host.fake.faults import Faults, Moment, one_fault_each

__all__ = ["FakeCommands", "Faults", "Moment", "one_fault_each"]
