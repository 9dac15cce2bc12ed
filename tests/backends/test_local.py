"""The backend without a storage system on a real host: a real disk, a real directory, real mounts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.backends.base import AgentContext, ServiceAgent
from quartermaster.backends.local.agents import NodeAgent, VolumeAgent
from quartermaster.backends.local.volumes import LocalVolumes
from quartermaster.host import Host, open_host
from quartermaster.host.devices import StandIn, add_disk
from quartermaster.resources import ObjectMeta, PersistentVolume
from quartermaster.resources.kubernetes.volumes import LocalVolumeSource, PersistentVolumeSpec
from quartermaster.resources.orchestration import Assignment, AssignmentSpec
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import HostError
from tests.host.namespaces import loop_device

UUID = "0b7a7a1e-7c53-4a5c-9f1f-0d2f5c3b8a22"


def context_of(
    agent: ServiceAgent, machine: Host, directory: Path, instance: str, config: dict[str, Any]
) -> AgentContext:
    async def report(_: str) -> None:
        pass

    spec = AssignmentSpec(host="h", agent=agent.name, instance=instance, generation=1, desired=config)
    return AgentContext(
        host="h",
        namespace="storage",
        machine=machine,
        directory=directory / agent.name,
        store=ObjectStore(MemoryKeyValue()),
        assignment=Assignment(metadata=ObjectMeta(name="x"), spec=spec),
        report=report,
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Host, str]]:
    with loop_device(tmp_path, size=64 << 20) as loop:
        root = tmp_path / "disks"
        path = str(add_disk(root, "vdb", loop, StandIn(serial="S1")))
        yield open_host(tmp_path / "state", device_root=root), path
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if str(tmp_path) in line:
                subprocess.run(["umount", line.split()[1]], check=True)


@pytest.mark.netns
async def test_a_disk_is_formatted_mounted_and_released_when_no_volume_is_on_it_any_more(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    entry = {"id": "S1", "path": path, "uuid": UUID}
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [entry], "directories": []})
    await NodeAgent().initialize(node)
    result = await NodeAgent().configure_local_service(node)
    base = result["bases"][0]["path"]
    assert os.path.ismount(base)
    assert 32 << 20 < result["bases"][0]["total"] < 64 << 20
    assert await NodeAgent().configure_local_service(node) == result

    volume = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{base}/pvc-1"})
    await VolumeAgent().initialize(volume)
    await VolumeAgent().configure_local_service(volume)
    (Path(base) / "pvc-1" / "greeting").write_text("hello")

    with pytest.raises(HostError, match="the volume pvc-1 is on it"):
        await NodeAgent().destroy_local_service(node)
    subprocess.run(["umount", base], check=True)  # as after a boot
    for call in (VolumeAgent().configure_local_service, VolumeAgent().destroy_local_service):
        with pytest.raises(HostError):
            await call(volume)
    await NodeAgent().configure_local_service(node)
    assert (Path(base) / "pvc-1" / "greeting").read_text() == "hello"
    await VolumeAgent().destroy_local_service(volume)
    await NodeAgent().destroy_local_service(node)
    assert not os.path.exists(base)


@pytest.mark.netns
async def test_a_disk_with_somebody_s_data_is_refused_and_wiped_only_by_its_serial_number_and_only_once(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    subprocess.run(["mkfs.ext4", "-q", "-L", "photos", path], check=True)
    entry = {"id": "S1", "path": path, "uuid": UUID}
    plain = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [entry], "directories": []})
    await NodeAgent().initialize(plain)
    with pytest.raises(HostError, match="photos"):
        await NodeAgent().configure_local_service(plain)
    consenting = {"devices": [{**entry, "wipe": "S1"}], "directories": []}
    allowed = context_of(NodeAgent(), machine, tmp_path, "default", consenting)
    assert (await NodeAgent().configure_local_service(allowed))["wiped"] == ["S1"]
    assert (await NodeAgent().configure_local_service(allowed))["wiped"] == ["S1"]
    await NodeAgent().destroy_local_service(allowed)
    subprocess.run(["wipefs", "--all", "--quiet", path], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-L", "music", path], check=True)
    with pytest.raises(HostError, match="the consent S1 was used already"):
        await NodeAgent().configure_local_service(allowed)


async def test_directories_need_no_root_and_a_missing_one_does_not_cost_the_others(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    config = {"devices": [], "directories": [str(tmp_path / "here"), str(tmp_path / "nowhere")]}
    context = context_of(NodeAgent(), open_host(tmp_path / "state"), tmp_path, "default", config)
    result = await NodeAgent().configure_local_service(context)
    assert [base["path"] for base in result["bases"]] == [str(tmp_path / "here")]
    assert list(result["failed"]) == [str(tmp_path / "nowhere")]
    config = {"devices": [], "directories": [str(tmp_path / "nowhere")]}
    with pytest.raises(HostError, match="cannot measure"):
        await NodeAgent().configure_local_service(context_of(NodeAgent(), context.machine, tmp_path, "default", config))


async def test_a_directory_whose_disk_is_not_mounted_after_a_boot_is_neither_offered_nor_written_to(
    tmp_path: Path,
) -> None:
    srv, machine = tmp_path / "srv", open_host(tmp_path / "state")
    srv.mkdir()
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [], "directories": [str(srv)]})
    await NodeAgent().configure_local_service(node)
    kept = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{srv}/pvc-1"})
    await VolumeAgent().initialize(kept)
    await VolumeAgent().configure_local_service(kept)
    (srv / "pvc-1" / "greeting").write_text("hello")

    srv.rename(tmp_path / "disk")
    srv.mkdir()  # the bare mount point
    new = context_of(VolumeAgent(), machine, tmp_path, "pvc-2", {"path": f"{srv}/pvc-2"})
    with pytest.raises(HostError, match="it is not the directory that was offered"):
        await NodeAgent().configure_local_service(node)
    for agent in (VolumeAgent().configure_local_service, VolumeAgent().destroy_local_service):
        with pytest.raises(HostError, match="it is not the directory that was offered"):
            await agent(kept)
    with pytest.raises(HostError, match="it is not the directory that was offered"):
        await VolumeAgent().configure_local_service(new)
    assert list(srv.iterdir()) == []

    srv.rmdir()
    (tmp_path / "disk").rename(srv)
    assert (await NodeAgent().configure_local_service(node))["bases"]
    assert await VolumeAgent().configure_local_service(kept) == {"path": f"{srv}/pvc-1"}
    assert (srv / "pvc-1" / "greeting").read_text() == "hello"


async def test_a_volume_s_directory_that_somebody_removed_is_not_made_again(tmp_path: Path) -> None:
    srv, machine = tmp_path / "srv", open_host(tmp_path / "state")
    srv.mkdir()
    await NodeAgent().configure_local_service(
        context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [], "directories": [str(srv)]})
    )
    volume = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{srv}/pvc-1"})
    await VolumeAgent().initialize(volume)
    await VolumeAgent().configure_local_service(volume)
    (srv / "pvc-1").rmdir()
    with pytest.raises(HostError, match="the volume was there, and is not made again"):
        await VolumeAgent().configure_local_service(volume)
    assert not (srv / "pvc-1").exists()
    await VolumeAgent().destroy_local_service(volume)  # its end is no error
    await VolumeAgent().configure_local_service(volume)  # and after its end it may begin again
    assert (srv / "pvc-1").is_dir()


async def test_without_root_a_volume_is_its_directory_and_elsewhere_it_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "pvc-1").mkdir()
    machine = open_host(tmp_path / "state")
    spec = PersistentVolumeSpec(local=LocalVolumeSource(path=str(tmp_path / "pvc-1")))
    volume = PersistentVolume(metadata=ObjectMeta(name="pvc-1"), spec=spec)
    assert await LocalVolumes().mount(machine, volume, tmp_path / "target") == tmp_path / "pvc-1"
    (tmp_path / "pvc-1").rmdir()
    with pytest.raises(HostError, match="is not on this host"):
        await LocalVolumes().mount(machine, volume, tmp_path / "target")
