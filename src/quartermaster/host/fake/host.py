"""A whole modelled host for an agent: the machine stays, agents come and go with new faults."""

from __future__ import annotations

from quartermaster.host.fake.commands import FakeCommands
from quartermaster.host.fake.daemons import FakeDaemons
from quartermaster.host.fake.directories import FakeDirectories
from quartermaster.host.fake.disks import FakeDevices, FakeFormatting
from quartermaster.host.fake.events import FakeEvents
from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.locks import FakeLocks
from quartermaster.host.fake.machine import FakeMachine
from quartermaster.host.fake.mounts import FakeMounts
from quartermaster.host.fake.programs import FakePrograms
from quartermaster.host.machine import Host


def fake_host(machine: FakeMachine, faults: Faults | None = None, *, commands: FakeCommands | None = None) -> Host:
    """All parts share the faults, so that one trace counts every call in its order."""
    shared = faults or Faults()
    used = commands or FakeCommands(shared)
    return Host(
        commands=used,
        mounts=FakeMounts(machine, shared),
        devices=FakeDevices(machine, shared),
        events=FakeEvents(),
        formatting=FakeFormatting(machine, shared),
        daemons=FakeDaemons(machine, shared, commands=used),
        locks=FakeLocks(shared),
        directories=FakeDirectories(machine, shared),
        programs=FakePrograms(machine, shared),
    )
