"""The modelled hosts of a GlusterFS cluster: disks that die, hosts that crash, and some that never come back."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from quartermaster.host.devices.model import Device
from quartermaster.host.fake.machine import ROOT
from quartermaster.testing.simulation import record
from tests.simulation.orchestration.hosts import WitnessedMachine, free_paths
from tests.simulation.orchestration.invariants import Witness


class GlusterMachine(WitnessedMachine):
    down = False
    destroyed = False
    leaving = False  # its node was told to go, or is about to be

    def __init__(self, name: str, witness: Witness) -> None:
        super().__init__(name, witness)
        self.dead: dict[str, str] = {}  # number of the file system → serial number of a disk that is no more

    def die(self, path: str) -> None:
        """The disk is not found any more, and what is mounted from it answers with errors; its content is gone."""
        device = self.pull_disk(path)
        self.dead[device.number] = device.serial
        record("hardware", self.name, "died", path, device.serial)

    def put_back(self) -> None:
        for device, path in self.pulled:
            place = path if path not in self.disks else next(one for one in free_paths() if one not in self.disks)
            self.put_disk(device, place)
            self._remember(place)
            record("hardware", self.name, "put back", place, device.serial)
        self.pulled.clear()

    def clear(self, needed: Collection[str] = (), refused: Collection[str] = ()) -> None:
        """Somebody wipes the disks that hold something and serve nobody; those of the `needed` numbers stay. The file
        systems that are `refused`, by UUID, are mounted: only in them is it said whose they are.
        """
        self.mounts[:] = [one for one in self.mounts if one.number in needed or Path(one.target).name not in refused]
        for path, disk in self.storage.items():
            mounted = any(mount.number == disk.number for mount in self.mounts)
            if disk.signatures and not mounted and disk.number not in needed:
                self.disks[path] = replace(disk, signatures=())
                for kept in (self.directories, self.files):
                    for key in [key for key in kept if key[0] == disk.number]:
                        kept.pop(key)
                record("hardware", self.name, "cleared", path)

    def stores(self, number: str) -> bool:
        """Whether what is on the file system of that number is there, be it that its host is down or it is pulled."""
        if self.destroyed:
            return False
        kept: list[Device] = [*self.disks.values(), *(device for device, _ in self.pulled)]
        return number == ROOT.number or any(disk.number == number for disk in kept)
