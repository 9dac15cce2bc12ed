"""Fibre Channel: what a storage system says about ports, LUNs on every platform, and disks that do not answer."""

from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import ConnectorError, Platform, UnreachableError, registry
from quartermaster.connectors.driver import KERNEL
from quartermaster.connectors.drivers.fibre_channel import FibreChannelPath, kernel_lun, link_endings, unit_lun
from quartermaster.connectors.model import DriverType
from quartermaster.support.errors import CommandError
from tests.connectors import tools_scsi
from tests.connectors.cases_fibre_channel import PORT, SECOND_PORT, info, prepare
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

pytestmark = pytest.mark.slow

# cinder/tests/unit/volume/drivers/netapp/dataontap/fakes.py, FC_TARGET_INFO,
# in openstack/cinder at 93399a32bf994a3129a798be72f27a9731cb2750
CINDER: dict[str, Any] = {
    "driver_volume_type": "fibre_channel",
    "data": {
        "target_lun": 1,
        "initiator_target_map": {
            "21000024ff406cc3": ["500a098280feeba5", "500a098290feeba5"],
            "21000024ff406cc2": ["500a098190feeba5", "500a098180feeba5"],
        },
        "target_wwn": ["500a098280feeba5", "500a098290feeba5", "500a098190feeba5", "500a098180feeba5"],
        "target_discovered": True,
    },
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setitem(registry._TABLE, DriverType.FIBRE_CHANNEL, {KERNEL: ".fibre_channel:DRIVER"})
    made = World(tmp_path / "world").make()
    made.install(**{**COMMON, **tools_scsi.TOOLS})
    prepare(made)
    return made


async def test_a_payload_of_cinder_connects_unchanged_and_goes_without_a_rest(world: World) -> None:
    before = world.snapshot()
    attachment = await connector_in(world, multipath=True).connect(CINDER)
    assert attachment.device.endswith("/dm-0")
    await connector_in(world, multipath=True).disconnect(CINDER)
    assert world.snapshot() == before


async def test_by_force_a_disk_that_cannot_be_flushed_is_taken_away(world: World) -> None:
    before = world.snapshot()
    await connector_in(world).connect(info()(world))
    world.set_fact("unflushable", ["sdb"])
    with pytest.raises(CommandError, match="cannot flush"):
        await connector_in(world).disconnect(info()(world))
    assert world.path("sys/class/block/sdb").exists()
    await connector_in(world).disconnect(info()(world), force=True)
    with world.facts() as known:
        del known["unflushable"]
    assert world.snapshot() == before


async def test_a_port_that_nobody_sees_is_named_where_a_wide_scan_is_not_allowed(world: World) -> None:
    with pytest.raises(UnreachableError, match="LUN 1 of 500a0982ffffffff: no port of this host sees it"):
        await connector_in(world).connect(info(targetWwn="500a0982ffffffff", enableWildcardScan=False)(world))


async def test_a_host_without_a_port_says_so(world: World) -> None:
    for host in (3, 4):
        world.path(f"sys/class/fc_host/host{host}").joinpath("port_state").write_text("Linkdown")
    with pytest.raises(ConnectorError, match="no port of this host is online"):
        await connector_in(world).connect(info()(world))


async def test_a_flat_address_is_what_the_kernel_is_asked_for(world: World) -> None:
    world.set_fact("luns", {PORT: {str(0x4000 + 256): tools_scsi.lun()}, SECOND_PORT: {}})
    await connector_in(world).connect(info(targetLun=256, addressingMode="SAM2")(world))
    assert world.path("sys/class/scsi_device/3:0:2:16640").exists()


async def test_disks_of_others_are_listed_and_ours_are_not(world: World) -> None:
    tools_scsi.add_disk(world, "3:0:2:256")
    connector = connector_in(world)
    await connector.connect(info(targetWwn=SECOND_PORT)(world))
    assert [(one.kind, one.path) for one in (await connector.list()).foreign] == [
        ("device", str(world.path("dev/sdb")))
    ]


@pytest.mark.parametrize(
    ("lun", "unit", "number"),
    [
        (1, "0x0001000000000000", 1),
        (0x1234, "0x1234000000000000", 0x1234),
        (0x40104000, "0x4010400000000000", 0x40004010),
    ],
)
def test_a_lun_has_64_bits_on_s390(lun: int, unit: str, number: int) -> None:
    assert unit_lun(lun) == unit
    assert kernel_lun(lun, Platform.S390) == number
    assert kernel_lun(lun, Platform.X86) == lun


def test_the_links_of_udev_are_known_on_every_platform() -> None:
    assert link_endings(FibreChannelPath(PORT, 1), Platform.PPC64)[0] == f"fc-0x{PORT}-lun-1"
    assert link_endings(FibreChannelPath(PORT, 300), Platform.X86)[0] == f"fc-0x{PORT}-lun-0x012c000000000000"
    assert link_endings(FibreChannelPath(PORT, 1), Platform.S390)[1] == f"zfcp-0x{PORT}:0x0001000000000000"
