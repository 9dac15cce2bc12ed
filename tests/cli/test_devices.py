"""`qm devices`: what agents reported, with the reason beside each disk that cannot be used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from quartermaster.resources.devices import Device
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostStatus, Inventory
from quartermaster.resources.storage import StorageNode, StorageNodeSpec, StorageNodeStatus
from quartermaster.stores import open_store
from tests.cli.conftest import Cli

DISKS = (
    Device(path="/dev/vda", size=10 << 30, state="Rejected", reason="SystemDisk", message="/dev/vda holds the system"),
    Device(path="/dev/vdb", id="S1", size=(5 << 30) + 512, rotational=True, state="Available"),
)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/store.db"
    monkeypatch.setenv("QM_STORE", url)

    async def work() -> None:
        store = await open_store(url)
        for name in ("h1", "h2"):
            made = await store.create(Host(metadata=ObjectMeta(name=name, namespace="default")))
            if name == "h1":
                status = HostStatus(inventory=Inventory(devices=DISKS))
                await store.update_status(msgspec.structs.replace(made, status=status))
        await store.close()

    asyncio.run(work())


@pytest.mark.usefixtures("hosts")
def test_every_disk_is_shown_with_its_state_and_the_reason(cli: Cli) -> None:
    result = cli("devices")
    assert result.out.splitlines() == [
        "HOST   PATH       SIZE   STATE       MESSAGE",
        "h1     /dev/vda   10Gi   Rejected    /dev/vda holds the system",
        "h1     /dev/vdb   5Gi    Available   <none>",
    ]
    assert "note: h2 has not reported its devices yet" in result.err


@pytest.mark.usefixtures("hosts")
def test_a_disk_that_a_node_has_lost_is_shown_although_its_host_does_not_see_it(cli: Cli, tmp_path: Path) -> None:
    lost = Device(path="/dev/vdc", id="S2", state="Missing", message="it is gone")
    status = StorageNodeStatus(host="h1", devices=(DISKS[1], lost))

    async def work() -> None:
        store = await open_store(f"sqlite:{tmp_path}/store.db")
        spec = StorageNodeSpec(type="local")
        made = await store.create(StorageNode(metadata=ObjectMeta(name="n1", namespace="default"), spec=spec))
        await store.update_status(msgspec.structs.replace(made, status=status))
        await store.close()

    asyncio.run(work())
    rows = cli("devices", "h1").out.splitlines()
    assert rows[-1].split() == ["h1", "/dev/vdc", "<none>", "Missing", "it", "is", "gone"]
    assert len(rows) == 4


async def replace_disks(url: str, host: str, disks: tuple[Device, ...]) -> None:
    store = await open_store(url)
    found = await store.get(Host, host, "default")
    await store.update_status(msgspec.structs.replace(found, status=HostStatus(inventory=Inventory(devices=disks))))
    await store.close()


@pytest.mark.usefixtures("hosts")
def test_what_can_be_done_about_rejected_disks_is_said_once_for_all_of_a_kind(cli: Cli, tmp_path: Path) -> None:
    used = tuple(Device(path=f"/dev/vd{end}", state="Rejected", reason="ForeignData") for end in "bcdef")
    mounted = Device(path="/dev/vdg", state="Rejected", reason="Mounted")
    asyncio.run(replace_disks(f"sqlite:{tmp_path}/store.db", "h1", (DISKS[0], *used, mounted)))
    notes = [line for line in cli("devices", "h1").err.splitlines() if line.startswith("note: h1")]
    assert notes == [
        "note: h1 /dev/vdb, h1 /dev/vdc, h1 /dev/vdd and 2 more: if nothing on it is wanted,"
        " name its serial number or WWN (-o wide) in `wipe` of its StorageNode",
        "note: h1 /dev/vdg: unmount it, and take it out of /etc/fstab",
    ]
    assert "note: h1" not in cli("devices", "h1", "-o", "json").err


@pytest.mark.usefixtures("hosts")
def test_one_host_can_be_asked_for(cli: Cli) -> None:
    assert "/dev/vdb" in cli("devices", "h1", "-o", "wide").out
    assert cli("devices", "h2").out == ""
    missing = cli("devices", "h3")
    assert missing.code == 1
    assert 'cannot find the host "h3" in the namespace default; there are: h1, h2' in missing.err


@pytest.mark.usefixtures("hosts")
def test_programs_get_the_reasons_as_words(cli: Cli) -> None:
    rows = json.loads(cli("devices", "-o", "json").out)["devices"]
    assert [(row["path"], row["reason"]) for row in rows] == [("/dev/vda", "SystemDisk"), ("/dev/vdb", "")]


def test_this_machine_can_be_looked_at_without_a_store(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QM_STORE", "etcd://127.0.0.1:1")
    monkeypatch.setenv("QM_DEVICE_ROOT", str(tmp_path / "no-disks"))
    result = cli("devices", "--this-host")
    assert (result.code, result.out) == (0, "")
    assert cli("devices", "h1", "--this-host").code == 2
