"""What storage systems ask about a host before they export a volume to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from quartermaster.connectors.context import Machine
from quartermaster.connectors.driver import Settings
from quartermaster.connectors.files import Files
from quartermaster.connectors.model import ConnectorProperties, OsType
from quartermaster.host.commands import Command
from quartermaster.host.facts import routed_address
from quartermaster.support.errors import CommandError, ToolMissingError

T = TypeVar("T", str, tuple[str, ...])

SDC_TOOL = "/opt/emc/scaleio/sdc/bin/drv_cfg"


async def gather_properties(machine: Machine, settings: Settings, os_type: OsType) -> ConnectorProperties:
    files, roots = machine.files, machine.roots
    return ConnectorProperties(
        do_local_attach=settings.do_local_attach,
        platform=machine.platform.value,
        os_type=os_type.value,
        ip=settings.ip or next(iter(routed_address()), ""),
        host=settings.host or os.uname().nodename,
        multipath=settings.multipath,
        initiator=settings.initiator or initiator_name(roots.etc, files),
        wwpns=_given(_fibre_channel(roots.sysfs, files, "port_name")),
        wwnns=_given(_fibre_channel(roots.sysfs, files, "node_name")),
        nqn=_given(files.text(roots.etc / "nvme/hostnqn")),
        nvme_host_id=_given(files.text(roots.etc / "nvme/hostid")),
        sdc_guid=_given(await _sdc_guid(machine)),
    )


def initiator_name(etc: Path, files: Files) -> str:
    for line in files.text(etc / "iscsi/initiatorname.iscsi").splitlines():
        name, equals, value = line.strip().partition("=")
        if name == "InitiatorName" and equals:
            return value.strip()
    return ""


def _fibre_channel(sysfs: Path, files: Files, attribute: str) -> tuple[str, ...]:
    """Of every port that is up, as arrays write them: hexadecimal digits alone."""
    directory = sysfs / "class/fc_host"
    up = [name for name in files.names(directory) if files.text(directory / name / "port_state") == "Online"]
    found = (files.text(directory / name / attribute).removeprefix("0x") for name in up)
    return tuple(dict.fromkeys(value for value in found if value))


async def _sdc_guid(machine: Machine) -> str:
    command = Command((SDC_TOOL, "--query_guid"), verb="ask for the SDC's GUID", timeout_s=5.0, changes=False)
    try:
        return (await machine.commands.run(command)).text.strip()
    except (ToolMissingError, CommandError):
        return ""


def _given(value: T) -> T | msgspec.UnsetType:
    return value or msgspec.UNSET
