"""iSCSI: shared sessions, records of open-iscsi, and disks that are not what they were."""

import os
from pathlib import Path

import pytest

from quartermaster.connectors import (
    AttachmentConflictError,
    AuthenticationError,
    IdentityMismatchError,
    NotAppearingError,
    UnreachableError,
    registry,
)
from quartermaster.connectors.driver import KERNEL
from quartermaster.connectors.drivers.iscsi_records import Target, record_text
from quartermaster.connectors.drivers.iscsi_sessions import parse_portal
from quartermaster.connectors.model import DriverType
from tests.connectors import tools_iscsi, tools_multipath, tools_scsi
from tests.connectors.cases_iscsi import (
    IQN,
    PORTAL,
    SECOND_IQN,
    SECOND_PORTAL,
    SEVERAL,
    info,
    prepare,
    prepare_discovery,
)
from tests.connectors.harness.case import CANARY
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World
from tests.connectors.tools_scsi import OTHER_WWID, WWID, lun

pytestmark = pytest.mark.slow

# cinder/tests/unit/volume/drivers/netapp/dataontap/fakes.py, ISCSI_CONNECTION_PROPERTIES,
# in openstack/cinder at 93399a32bf994a3129a798be72f27a9731cb2750
CINDER = {
    "data": {
        "auth_method": "fake_method",
        "auth_password": "auth",
        "auth_username": "provider",
        "discovery_auth_method": "fake_method",
        "discovery_auth_username": "provider",
        "discovery_auth_password": "auth",
        "target_discovered": False,
        "target_iqn": "fake_iscsi_service_iqn",
        "target_lun": 42,
        "target_portal": "1.2.3.4:3260",
        "volume_id": "fake_id",
    },
    "driver_volume_type": "iscsi",
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setitem(registry._TABLE, DriverType.ISCSI, {KERNEL: ".iscsi:ISCSI"})
    made = World(tmp_path / "world").make()
    made.install(**{**COMMON, **tools_iscsi.TOOLS})
    prepare(made)
    return made


async def test_a_payload_of_cinder_connects_unchanged_and_a_user_name_means_chap(world: World) -> None:
    world.set_fact("portals", {"fake_iscsi_service_iqn": ["1.2.3.4:3260"]})
    world.set_fact("luns", {"fake_iscsi_service_iqn": {"42": lun()}})
    world.set_fact("chap", {"fake_iscsi_service_iqn": ["provider", "auth"]})
    before = world.snapshot()
    attachment = await connector_in(world).connect(CINDER)
    assert (attachment.volume_id, attachment.identity) == ("fake_id", f"naa.{WWID}")
    assert await connector_in(world).disconnect(CINDER) == attachment.path
    assert world.snapshot() == before


async def test_the_session_stays_until_its_last_volume_goes(world: World) -> None:
    connector = connector_in(world)
    before = world.snapshot()
    first, second = info(), info(targetLun=2, volumeId="volume-2")
    await connector.connect(first)
    await connector.connect(second)
    assert [argv for argv in world.commands() if "--login" in argv] == [world.commands()[0]]
    await connector.disconnect(first)
    assert world.path(f"{tools_iscsi.SESSIONS}/session1").exists()
    await connector.disconnect(second)
    assert world.snapshot() == before


async def test_an_attach_waits_for_the_disk_three_times(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the record before the first command and for its name, and for the last word. Each is a wait for everybody."""
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    await connector_in(world).connect(info())
    kept = str(world.path("state/attachments"))
    assert [path.startswith(kept) for path in synced] == [True] * 3
    assert synced[1] == kept


async def test_a_session_of_somebody_else_is_used_and_left_alone(world: World) -> None:
    tools_iscsi.make_session(world, 1, IQN, "192.0.2.1", "3260")
    before = world.snapshot()
    await connector_in(world).connect(info())
    await connector_in(world).disconnect(info())
    assert world.snapshot() == before


async def test_a_string_lun_is_really_removed(world: World) -> None:
    await connector_in(world).connect(info(targetLun="1"))
    await connector_in(world).disconnect(info(targetLun=1))
    assert list(world.path("sys/class/scsi_device").iterdir()) == []


async def test_a_wrong_password_is_named_without_it_and_nothing_stays(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(AuthenticationError, match="refuses the user name or the password") as caught:
        await connector_in(world).connect(info(authPassword="another-word"))
    assert "another-word" not in str(caught.value)
    assert world.snapshot() == before


async def test_a_portal_that_does_not_answer_is_named(world: World) -> None:
    world.set_fact("dead", [PORTAL])
    with pytest.raises(UnreachableError, match=rf"{PORTAL} {IQN}: it does not answer"):
        await connector_in(world).connect(info())


async def test_without_multipath_the_next_portal_is_tried(world: World) -> None:
    world.set_fact("dead", [PORTAL])
    attachment = await connector_in(world).connect(info(**SEVERAL))
    assert attachment.device.endswith("/sdc")
    assert not world.path(f"etc/iscsi/nodes/{IQN}").exists()


async def test_multipath_goes_on_with_the_paths_that_there_are(world: World) -> None:
    world.set_fact("dead", [PORTAL])
    before = world.snapshot()
    attachment = await connector_in(world, multipath=True).connect(info(**SEVERAL))
    assert attachment.device.endswith("/dm-0")
    await connector_in(world, multipath=True).disconnect(info(**SEVERAL))
    assert world.snapshot() == before


async def test_a_portal_that_does_not_tell_of_others_leaves_the_volume_with_one_path(world: World) -> None:
    prepare_discovery(world)
    before = world.snapshot()
    attachment = await connector_in(world, multipath=True).connect(info(discoveryAuthUsername="somebody"))
    assert attachment.device.endswith("/dm-0")
    assert len(list(world.path(tools_iscsi.SESSIONS).iterdir())) == 1
    await connector_in(world, multipath=True).disconnect(info())
    assert world.snapshot() == before


async def test_what_was_discovered_is_found_without_a_record_too(world: World) -> None:
    world.set_fact("portals", {IQN: [PORTAL, SECOND_PORTAL]})
    before = world.snapshot()
    await connector_in(world, multipath=True).connect(info())
    assert len(list(world.path(tools_iscsi.SESSIONS).iterdir())) == 2
    world.path("state/attachments/volume-1.json").unlink()
    await connector_in(world, multipath=True).disconnect(info())
    assert list(world.path(tools_iscsi.SESSIONS).iterdir()) == []
    # Who had put it there was in the record.
    kept = world.path("etc/multipath/wwids")
    kept.write_text(kept.read_text().replace(f"/3{WWID}/\n", ""))
    assert world.snapshot() == before


async def test_a_discovery_record_of_the_administrator_comes_back(world: World) -> None:
    world.set_fact("discovery_chap", ["asker", CANARY])
    file = world.path("etc/iscsi/send_targets/192.0.2.1,3260/st_config")
    file.parent.mkdir(parents=True)
    file.write_text("# of the administrator\n")
    given = info(discoveryAuthUsername="asker", discoveryAuthPassword=CANARY)
    await connector_in(world, multipath=True).connect(given)
    assert file.read_text() == "# of the administrator\n"
    assert [argv[2] for argv in world.commands() if argv[0] == "iscsiadm"] == ["discoverydb", "node"]


async def test_a_path_that_udev_has_not_looked_at_yet_is_handed_to_multipathd_again(world: World) -> None:
    world.set_fact("unknown_to_udev", ["sdc"])
    attachment = await connector_in(world, multipath=True).connect(info(**SEVERAL))
    assert attachment.device.endswith("/dm-0")
    handed = [argv[-1] for argv in world.commands() if argv[:3] == ["multipathd", "add", "path"]]
    assert handed == ["sdb", "sdc", "sdc"]


async def test_paths_that_are_different_volumes_are_never_made_one_device(world: World) -> None:
    world.set_fact("luns", {IQN: {"1": lun()}, SECOND_IQN: {"4": lun(OTHER_WWID)}})
    with pytest.raises(IdentityMismatchError, match=OTHER_WWID):
        await connector_in(world, multipath=True).connect(info(**{**SEVERAL, "wwid": ""}))
    assert not list(world.path("sys/class/block").glob("dm-*"))


async def test_a_lun_that_never_appears_is_an_error_in_time_and_leaves_nothing(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(NotAppearingError, match="LUN 9 of"):
        await connector_in(world).connect(info(targetLun=9), timeout_s=6.0)
    assert world.snapshot() == before


async def test_a_lun_that_is_another_volume_by_now_is_not_given_out_and_not_touched(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    world.set_fact("luns", {IQN: {"1": lun(OTHER_WWID)}})
    with pytest.raises(IdentityMismatchError, match=f"it is naa.{OTHER_WWID}, and the volume is naa.{WWID}"):
        await connector.device_path("volume-1")
    world.forget()
    for _ in range(2):
        with pytest.raises(IdentityMismatchError, match="when this host found it"):
            await connector.connect(info(volumeId="volume-2"))
    assert world.path("sys/class/block/sdb").exists()
    assert "blockdev" not in [argv[0] for argv in world.commands()]


async def test_force_takes_the_disk_of_a_reused_lun_away_without_a_write_to_it(world: World) -> None:
    connector = connector_in(world)
    before = world.snapshot()
    await connector.connect(info())
    world.set_fact("luns", {IQN: {"1": lun(OTHER_WWID)}})
    with pytest.raises(IdentityMismatchError, match=OTHER_WWID):
        await connector.disconnect(info())
    assert world.path("sys/class/block/sdb").exists()
    world.forget()
    await connector.disconnect(info(), force=True)
    assert "blockdev" not in [argv[0] for argv in world.commands()]
    assert {**world.snapshot(), "facts.json": ""} == {**before, "facts.json": ""}


async def test_force_leaves_a_disk_that_this_host_has_found_as_another_volume(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    world.set_fact("luns", {IQN: {"1": lun(OTHER_WWID)}})
    await connector.disconnect(info(), force=True)
    other = info(volumeId="volume-2")
    assert (await connector.connect(other)).identity == f"naa.{OTHER_WWID}"
    world.forget()
    await connector.disconnect(info(wwid=f"naa.{WWID}"), force=True)
    assert await connector.device_path("volume-2")
    assert not [argv for argv in world.commands() if argv[0] != "sg_vpd"]


@pytest.mark.parametrize("code", [5, 83], ids=["refused", "not listed"])
async def test_a_disk_that_does_not_say_what_it_is_is_what_the_kernel_found(world: World, code: int) -> None:
    world.set_fact("no_page", code)
    assert (await connector_in(world).connect(info())).identity == f"naa.{WWID}"


async def test_portals_in_another_order_and_a_wwid_that_comes_later_are_the_same_volume(world: World) -> None:
    connector = connector_in(world, multipath=True)
    first = await connector.connect(info(**{**SEVERAL, "wwid": ""}))
    turned = {name: values[::-1] for name, values in SEVERAL.items() if isinstance(values, list)}
    assert await connector.connect(info(**turned, wwid=f"naa.{WWID}")) == first
    with pytest.raises(AttachmentConflictError):
        await connector.connect(info(**turned, wwid=f"naa.{OTHER_WWID}"))
    with pytest.raises(AttachmentConflictError):
        await connector.connect(info())


async def test_sessions_and_maps_of_others_are_listed_and_ours_are_not(world: World) -> None:
    tools_iscsi.make_session(world, 1, IQN, "192.0.2.1", "3260")
    disk = tools_scsi.add_disk(world, "3:0:0:1")
    tools_multipath.multipath(world, ["-a", f"/dev/{disk}"], "")
    tools_multipath.multipathd(world, ["add", "path", disk], "")
    connector = connector_in(world, multipath=True)
    device = str(world.path("dev/dm-0"))
    assert [(one.kind, one.name, one.path) for one in (await connector.list()).foreign] == [
        ("session", f"{PORTAL} {IQN}", ""),
        ("map", f"3{WWID}", device),
    ]
    await connector.connect(info())
    assert (await connector.list()).foreign == ()


async def test_a_record_that_was_there_before_comes_back(world: World) -> None:
    file = world.path(f"etc/iscsi/nodes/{IQN}/192.0.2.1,3260")
    file.parent.mkdir()
    file.write_text("# of the administrator\n")
    before = world.snapshot()
    await connector_in(world).connect(info())
    assert CANARY in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    await connector_in(world).disconnect(info())
    assert world.snapshot() == before


async def test_the_lock_of_a_process_that_died_is_taken_away(world: World) -> None:
    os.symlink("quartermaster-4194304-1", world.path("run/lock/iscsi/lock.write"))
    await connector_in(world).connect(info())
    assert not os.path.lexists(world.path("run/lock/iscsi/lock.write"))


def test_the_record_has_what_the_administrator_set_and_what_a_login_needs() -> None:
    made = record_text(Target("192.0.2.1", 3260, IQN), "node.startup = automatic\nnode.session.queue_depth = 64\n")
    lines = made.splitlines()
    assert "node.session.queue_depth = 64" in lines
    assert "node.startup = manual" in lines
    assert not [line for line in lines if line.startswith("node.session.auth")]


@pytest.mark.parametrize(
    ("text", "portal"),
    [
        ("192.0.2.1:3260", ("192.0.2.1", 3260)),
        ("192.0.2.1:3261,1", ("192.0.2.1", 3261)),
        ("192.0.2.1", ("192.0.2.1", 3260)),
        ("[2001:DB8:0::1]:3260", ("2001:db8::1", 3260)),
    ],
)
def test_a_portal_is_read_however_it_is_written(text: str, portal: tuple[str, int]) -> None:
    assert parse_portal(text) == portal
