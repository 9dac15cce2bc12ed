"""Twins of the host layer without a machine: for simulations, and for tests with a fault at every call."""

from quartermaster.host.fake.commands import FakeCommands
from quartermaster.host.fake.daemons import FakeDaemons
from quartermaster.host.fake.directories import FakeDirectories
from quartermaster.host.fake.disks import FakeDevices, FakeFormatting
from quartermaster.host.fake.events import FakeEvents
from quartermaster.host.fake.faults import Faults, Moment, one_fault_each
from quartermaster.host.fake.host import fake_host
from quartermaster.host.fake.locks import FakeLocks
from quartermaster.host.fake.machine import FakeMachine, FakeProcess
from quartermaster.host.fake.mounts import FakeMounts
from quartermaster.host.fake.programs import FakePrograms

__all__ = [
    "FakeCommands",
    "FakeDaemons",
    "FakeDevices",
    "FakeDirectories",
    "FakeEvents",
    "FakeFormatting",
    "FakeLocks",
    "FakeMachine",
    "FakeMounts",
    "FakeProcess",
    "FakePrograms",
    "Faults",
    "Moment",
    "fake_host",
    "one_fault_each",
]
