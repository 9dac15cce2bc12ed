"""Which disks there are, what is on them, and whether they may be used."""

from quartermaster.host.devices.discovery import Devices, HostDevices
from quartermaster.host.devices.judging import LABEL_PREFIX, Reason, State, Surroundings, Verdict, judge
from quartermaster.host.devices.model import Device, Kind, Signature, named_by, twins
from quartermaster.host.devices.roots import StandIn, add_disk, pull_disk
from quartermaster.host.devices.sysfs import Roots

__all__ = [
    "LABEL_PREFIX",
    "Device",
    "Devices",
    "HostDevices",
    "Kind",
    "Reason",
    "Roots",
    "Signature",
    "StandIn",
    "State",
    "Surroundings",
    "Verdict",
    "add_disk",
    "judge",
    "named_by",
    "pull_disk",
    "twins",
]
