"""What an iSCSI LUN is, asked of a real target without the kernel's help: another volume is noticed and left alone."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import (
    AttachmentConflictError,
    AuthenticationError,
    ConnectorError,
    IdentityMismatchError,
    UnreachableError,
)
from quartermaster.connectors.blocking import BlockingConnector, open_connector
from quartermaster.testing.lab.disks import loops_under
from tests.connectors.servers import PASSWORD, USER, IscsiTarget, admin_of, daemons_of, iscsi_target, wait_for

pytestmark = pytest.mark.slow  # needs root and programs that packages bring
SIZE = 32 << 20
VOLUME = f"asked-{os.getpid()}"  # its link in /dev is this machine's, and other workers run tests too


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[BlockingConnector]:
    with open_connector(directory=tmp_path / "state", clients={"ISCSI": "userspace"}, timeout_s=60) as found:
        try:
            yield found
        finally:
            # A device without its target would hold up every loop device of this machine.
            left = daemons_of(tmp_path)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    for device in loops_under(tmp_path):
        subprocess.run(["losetup", "--detach", device], check=False, timeout=60)
    assert left == []


def info(target: IscsiTarget, **data: Any) -> dict[str, Any]:
    own = {"targetPortal": target.portal, "targetIqn": target.iqn, "targetLun": target.lun, "volumeId": VOLUME}
    return {"driverVolumeType": "ISCSI", "data": {**own, **data}}


def give_away(target: IscsiTarget, image: Path) -> Path:
    """The LUN is another volume from now on."""
    other = image.with_name("other.img")
    other.write_bytes(bytes(SIZE))
    lun = ("--mode", "logicalunit", "--tid", "1", "--lun", "1")
    admin_of(target)(*lun, "--op", "delete")
    admin_of(target)(*lun, "--op", "new", "--backing-store", str(other))
    admin_of(target)(*lun, "--op", "update", "--params", "vendor_id=OTHER,scsi_sn=zzz999,scsi_id=ANOTHER")
    return other


def test_a_lun_says_what_it_is_and_the_wwid_is_compared(connector: BlockingConnector, image: Path) -> None:
    with iscsi_target(image) as target:
        found = connector.connect(info(target))
        assert found.identity.startswith("t10.IET")
        assert connector.connect(info(target)) == connector.connect(info(target, wwid=found.identity)) == found
        with pytest.raises(AttachmentConflictError, match="but with other data"):
            connector.connect(info(target, wwid="3600000000000000001234"))
        connector.disconnect(info(target))
        for wwid in (found.identity, "naa.3000000100000001"):  # by either of its names
            connector.connect(info(target, wwid=wwid))
            connector.disconnect(info(target, wwid=wwid))
        with pytest.raises(IdentityMismatchError, match="and the volume is 3600000000000000001234"):
            connector.connect(info(target, wwid="3600000000000000001234"))
        assert connector.list(foreign=False).attachments == ()


def test_a_lun_that_was_given_away_is_noticed_and_not_written_to(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    with iscsi_target(image) as target:
        device = connector.connect(info(target)).device
        backing = Path("/sys/block", Path(device).name, "loop/backing_file")
        other = give_away(target, image)
        for call in (
            lambda: connector.device_path(VOLUME),
            lambda: connector.mount(VOLUME, tmp_path / "mounted"),
            lambda: connector.connect(info(target)),
            lambda: connector.disconnect(info(target)),
        ):
            with pytest.raises(IdentityMismatchError, match=r"it is t10\.(ANOTHER|OTHER)"):
                call()
        with open(device, "r+b", buffering=0) as opened:
            opened.write(b"still in this host's memory")
            connector.disconnect(info(target), force=True)
        wait_for(lambda: not backing.exists(), seconds=60)
        assert not any(other.read_bytes())


WITHDRAWN = {
    "LUN": ("--mode", "logicalunit", "--op", "delete", "--tid", "1", "--lun", "1"),
    "access": ("--mode", "target", "--op", "unbind", "--tid", "1", "--initiator-address", "ALL"),
    "target": ("--mode", "target", "--op", "delete", "--tid", "1", "--force"),
}


SEEN = {"LUN": "it cannot be read", "target": "does not answer"}


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("what", WITHDRAWN)
def test_a_volume_whose_lun_target_or_access_was_withdrawn_can_go(
    connector: BlockingConnector, image: Path, tmp_path: Path, what: str, force: bool
) -> None:
    with iscsi_target(image) as target:
        found = connector.connect(info(target))
        admin_of(target)(*WITHDRAWN[what])
        with pytest.raises(ConnectorError, match="cannot open LUN 1"):
            connector.connect(info(target, volumeId=f"{VOLUME}-2", accessMode="ro"))
        if what == "access":  # the session that there is goes on
            assert connector.device_path(VOLUME) == found.path
        else:
            with pytest.raises(UnreachableError, match=f"it is here as {found.path}, but .*{SEEN[what]}"):
                connector.device_path(VOLUME)
        assert connector.disconnect(info(target), force=force) == found.path
        assert not loops_under(tmp_path)
        assert daemons_of(tmp_path) == []


def test_a_device_of_the_target_itself_and_a_lun_that_is_not_there_are_no_volumes(
    connector: BlockingConnector, image: Path
) -> None:
    with iscsi_target(image) as target:
        with pytest.raises(ConnectorError, match="it is no disk, but a device of the target itself"):
            connector.connect(info(target, targetLun=0))
        with pytest.raises(ConnectorError, match=r"cannot open LUN 300 .*: the target has no such LUN"):
            connector.connect(info(target, targetLun=300))
        with pytest.raises(ConnectorError, match="there is no such target at this portal"):
            connector.connect(info(target, targetIqn="iqn.2026-01.test:another"))


def test_behind_a_password_the_lun_is_asked_when_it_is_connected(connector: BlockingConnector, image: Path) -> None:
    with iscsi_target(image, chap=True) as target:
        with pytest.raises(AuthenticationError):
            connector.connect(info(target))
        right = info(target, authUsername=USER, authPassword=PASSWORD)
        found = connector.connect(right)
        assert found.identity.startswith("t10.IET")
        assert connector.connect(right) == found
        connector.disconnect(right)


def test_a_name_that_does_not_resolve_is_a_server_that_is_not_reached(connector: BlockingConnector) -> None:
    with pytest.raises(UnreachableError, match="cannot open LUN 1"):
        connector.connect(info(IscsiTarget("nohost.invalid:3260")))


@pytest.mark.parametrize("chap", [False, True], ids=["", "behind a password"])
def test_while_the_storage_system_is_away_a_look_says_so_and_the_volume_is_what_it_was(
    connector: BlockingConnector, image: Path, chap: bool
) -> None:
    with iscsi_target(image, chap=chap) as target:
        wanted = info(target, **({"authUsername": USER, "authPassword": PASSWORD} if chap else {}))
        found = connector.connect(wanted)
        admin_of(target)("--mode", "sys", "--op", "show")  # it has answered until now
        assert connector.device_path(VOLUME) == found.path
    started = time.monotonic()
    for call in (connector.device_path, connector.statistics):
        with pytest.raises(UnreachableError, match=f"it is here as {found.path}, but its storage system does not"):
            call(VOLUME, timeout_s=2)
    (listed,) = connector.list(foreign=False, timeout_s=2).attachments
    assert (listed.state, listed.present, "does not answer" in listed.problem) == ("connected", True, True)
    assert time.monotonic() - started < 30
    connector.disconnect(wanted, force=True)
    assert not loops_under(image.parent)
