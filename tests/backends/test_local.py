"""The backend without a storage system on a real host: a real disk, a real directory, real mounts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
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
from quartermaster.support.errors import HostError, MountConflictError
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


def shut_down(mounted: Path) -> None:
    """As a disk that fails does it: EXT4_IOC_SHUTDOWN without a last write of the journal."""
    directory = os.open(mounted, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, 0x8004587D, struct.pack("I", 2))
    finally:
        os.close(directory)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Host, str]]:
    with loop_device(tmp_path, size=64 << 20) as loop:
        root = tmp_path / "disks"
        path = str(add_disk(root, "vdb", loop, StandIn(serial="S1")))
        yield open_host(tmp_path / "state", device_root=root), path
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if str(tmp_path) in line:
                subprocess.run(["umount", line.split()[1]], check=True)
        for place in tmp_path.glob("*/mounts/*/*"):
            if place.is_dir():  # protected while nothing is mounted there, also from whoever clears up after tests
                subprocess.run(["chattr", "-i", str(place)], check=True)


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
async def test_a_disk_tells_what_writers_have_left_of_it(disk: tuple[Host, str], tmp_path: Path) -> None:
    machine, path = disk
    entry = {"id": "S1", "path": path, "uuid": UUID}
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [entry], "directories": []})
    await NodeAgent().initialize(node)
    (empty,) = (await NodeAgent().configure_local_service(node))["bases"]
    assert 0.9 < empty["free"] / empty["total"] <= 1  # ext4 keeps some of it for root
    volume = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{empty['path']}/pvc-1"})
    await VolumeAgent().initialize(volume)
    await VolumeAgent().configure_local_service(volume)
    with pytest.raises(OSError, match="No space left"):
        (Path(empty["path"]) / "pvc-1" / "all").write_bytes(bytes(empty["total"]))
    (full,) = (await NodeAgent().configure_local_service(node))["bases"]
    assert (full["total"], full["free"]) == (empty["total"], 0)


@pytest.mark.netns
async def test_a_volume_is_not_made_on_a_disk_that_is_being_given_up(
    disk: tuple[Host, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, path = disk
    entry = {"id": "S1", "path": path, "uuid": UUID}
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [entry], "directories": []})
    await NodeAgent().initialize(node)
    base = (await NodeAgent().configure_local_service(node))["bases"][0]["path"]
    volume = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{base}/pvc-1"})
    await VolumeAgent().initialize(volume)
    began, goes_on = asyncio.Event(), asyncio.Event()
    unmount = machine.mounts.unmount

    async def slowly(target: str, **options: Any) -> object:
        began.set()
        await goes_on.wait()
        return await unmount(target, **options)

    monkeypatch.setattr(machine.mounts, "unmount", slowly)
    leaving = asyncio.create_task(NodeAgent().destroy_local_service(node))
    await began.wait()
    making = asyncio.create_task(VolumeAgent().configure_local_service(volume))
    await asyncio.sleep(0.2)
    goes_on.set()
    await leaving
    with pytest.raises(HostError, match="the disk that it is on is not mounted"):
        await making
    assert not Path(base).exists()
    monkeypatch.undo()
    await NodeAgent().configure_local_service(node)
    await VolumeAgent().configure_local_service(volume)
    assert (Path(base) / "pvc-1").is_dir()


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


@pytest.mark.netns
async def test_a_volume_deleted_while_its_disk_is_away_is_gone_and_its_files_go_when_the_disk_is_back(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    entry = {"id": "S1", "path": path, "uuid": UUID}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    desired = {"devices": [entry], "directories": [str(elsewhere)]}
    node = context_of(NodeAgent(), machine, tmp_path, "default", desired)
    await NodeAgent().initialize(node)
    base = (await NodeAgent().configure_local_service(node))["bases"][1]["path"]
    volumes = [
        context_of(VolumeAgent(), machine, tmp_path, name, {"path": f"{base}/{name}"}) for name in ("pvc-1", "pvc-2")
    ]
    await VolumeAgent().initialize(volumes[0])
    for volume in volumes:
        await VolumeAgent().configure_local_service(volume)

    away = tmp_path / "away"
    (tmp_path / "disks" / "vdb").rename(away)
    failed = (await NodeAgent().configure_local_service(node))["failed"]
    assert failed[path].startswith(f"cannot find the disk that was {path}: none is S1")
    with pytest.raises(HostError, match=r"cannot reach .*pvc-1: cannot find the disk"):
        await VolumeAgent().configure_local_service(volumes[0])
    await VolumeAgent().destroy_local_service(volumes[0])
    await VolumeAgent().destroy_local_service(volumes[0])
    assert os.path.isdir(f"{base}/pvc-1")

    again = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{elsewhere}/pvc-1"})
    await VolumeAgent().configure_local_service(again)  # the claim is served from another place meanwhile

    away.rename(tmp_path / "disks" / "vdb")
    assert not (await NodeAgent().configure_local_service(node))["failed"]
    assert sorted(os.listdir(base)) == ["lost+found", "pvc-2"]
    await VolumeAgent().configure_local_service(volumes[1])
    assert (elsewhere / "pvc-1").is_dir()


@pytest.mark.netns
async def test_a_lost_disk_is_given_up_when_the_claims_of_its_volumes_are(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    entry = {"id": "S1", "path": path, "uuid": UUID}
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [entry], "directories": []})
    await NodeAgent().initialize(node)
    base = (await NodeAgent().configure_local_service(node))["bases"][0]["path"]
    volume = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{base}/pvc-1"})
    await VolumeAgent().initialize(volume)
    await VolumeAgent().configure_local_service(volume)
    (tmp_path / "disks" / "vdb").rename(tmp_path / "away")
    with pytest.raises(HostError, match="cannot find the disk"):
        await NodeAgent().configure_local_service(node)
    without = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [], "directories": ["/tmp"]})
    assert "the volume pvc-1 is on it" in (await NodeAgent().configure_local_service(without))["failed"][""]
    await VolumeAgent().destroy_local_service(volume)
    assert not (await NodeAgent().configure_local_service(without))["failed"]
    assert not os.path.exists(base)


@pytest.mark.netns
async def test_a_volume_of_a_node_that_was_given_up_while_its_host_was_away_does_not_wait_for_its_disk(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    entry = {"id": "S1", "path": path, "uuid": UUID}
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [entry], "directories": []})
    await NodeAgent().initialize(node)
    base = (await NodeAgent().configure_local_service(node))["bases"][0]["path"]
    volume = context_of(VolumeAgent(), machine, tmp_path, "pvc-1", {"path": f"{base}/pvc-1"})
    await VolumeAgent().initialize(volume)
    await VolumeAgent().configure_local_service(volume)
    subprocess.run(["umount", base], check=True)  # as after a boot
    await NodeAgent().destroy_local_service(node)
    await VolumeAgent().destroy_local_service(volume)
    await NodeAgent().configure_local_service(node)
    assert os.listdir(base) == ["lost+found"]


@pytest.mark.netns
async def test_a_volume_on_a_file_system_that_is_shut_down_is_not_mounted(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    base = tmp_path / "base"
    base.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    subprocess.run(["mount", path, base], check=True)
    (base / "pvc-1").mkdir()
    volume = PersistentVolume(
        metadata=ObjectMeta(name="pvc-1"),
        spec=PersistentVolumeSpec(local=LocalVolumeSource(path=str(base / "pvc-1"))),
    )
    target = tmp_path / "target"
    assert await LocalVolumes().mount(machine, volume, target) == target
    await LocalVolumes().unmount(machine, volume, target)
    shut_down(base)
    with pytest.raises(HostError, match=r"cannot mount pvc-1: the file system .* is corrupted"):
        await LocalVolumes().mount(machine, volume, target)
    assert not os.path.ismount(target)


def bound_volume(path: Path) -> PersistentVolume:
    source = LocalVolumeSource(path=str(path))
    return PersistentVolume(metadata=ObjectMeta(name="pvc-1"), spec=PersistentVolumeSpec(local=source))


@pytest.mark.netns
async def test_what_may_be_the_volume_of_a_disk_that_is_not_mounted_any_more_is_neither_unmounted_nor_denied(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, path = disk
    base, target = tmp_path / "base", tmp_path / "target"
    base.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    subprocess.run(["mount", path, base], check=True)
    (base / "pvc-1").mkdir()
    volume = bound_volume(base / "pvc-1")
    await LocalVolumes().mount(machine, volume, target)
    subprocess.run(["umount", base], check=True)
    with pytest.raises(MountConflictError, match=r"cannot tell whether /pvc-1 of .* is pvc-1.*nothing was changed"):
        await LocalVolumes().unmount(machine, volume, target)
    assert os.path.ismount(target)
    subprocess.run(["mount", path, base], check=True)
    assert await LocalVolumes().unmount(machine, volume, target)
    assert not target.exists()


@pytest.mark.netns
async def test_a_volume_whose_directory_was_removed_is_unmounted(disk: tuple[Host, str], tmp_path: Path) -> None:
    machine, _ = disk
    source, target = tmp_path / "pvc-1", tmp_path / "target"
    source.mkdir()
    await LocalVolumes().mount(machine, bound_volume(source), target)
    source.rmdir()
    assert await LocalVolumes().unmount(machine, bound_volume(source), target)
    assert not target.exists()


@pytest.mark.netns
async def test_a_volume_that_is_bound_twice_is_unmounted_twice_and_what_lies_beneath_stays(
    disk: tuple[Host, str], tmp_path: Path
) -> None:
    machine, _ = disk
    source, target = tmp_path / "pvc-1", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "foreign", target], check=True)
    for _ in range(2):
        subprocess.run(["mount", "--bind", source, target], check=True)
    assert await LocalVolumes().unmount(machine, bound_volume(source), target)
    table = machine.mounts.table()
    assert [mount.source for mount in table if mount.target == str(target)] == ["foreign"]


@pytest.mark.netns
async def test_what_was_moved_on_top_of_a_volume_is_seen_to_be_on_top(disk: tuple[Host, str], tmp_path: Path) -> None:
    machine, _ = disk
    source, around = tmp_path / "pvc-1", tmp_path / "around"
    source.mkdir()
    around.mkdir()
    # What is moved must not be below a shared mount.
    subprocess.run(["mount", "--bind", around, around], check=True)
    subprocess.run(["mount", "--make-private", around], check=True)
    elsewhere, target = around / "elsewhere", around / "target"
    elsewhere.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "foreign", elsewhere], check=True)
    await LocalVolumes().mount(machine, bound_volume(source), target)
    subprocess.run(["mount", "--move", elsewhere, target], check=True)
    with pytest.raises(MountConflictError, match=r"foreign .* is mounted on top of it"):
        await LocalVolumes().unmount(machine, bound_volume(source), target)
    assert len([mount for mount in machine.mounts.table() if mount.target == str(target)]) == 2


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


async def test_a_directory_that_was_given_up_is_known_when_it_is_offered_again(tmp_path: Path) -> None:
    srv, machine = tmp_path / "srv", open_host(tmp_path / "state")
    srv.mkdir()
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [], "directories": [str(srv)]})
    await NodeAgent().configure_local_service(node)
    await NodeAgent().destroy_local_service(node)
    srv.rename(tmp_path / "disk")
    srv.mkdir()  # the bare mount point
    with pytest.raises(HostError, match="it is not the directory that was offered"):
        await NodeAgent().configure_local_service(node)
    srv.rmdir()
    (tmp_path / "disk").rename(srv)
    assert (await NodeAgent().configure_local_service(node))["bases"]


@pytest.mark.netns
async def test_a_directory_that_was_cut_off_while_it_was_marked_is_known_by_its_file_system(
    disk: tuple[Host, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, path = disk
    srv = tmp_path / "srv"
    srv.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    subprocess.run(["mount", path, srv], check=True)
    node = context_of(NodeAgent(), machine, tmp_path, "default", {"devices": [], "directories": [str(srv)]})
    with monkeypatch.context() as cut:

        async def made_and_cut_off(path: str, **_: Any) -> bool:
            os.mkdir(path)
            raise HostError("cut off")

        cut.setattr(machine.directories, "ensure", made_and_cut_off)
        with pytest.raises(HostError, match="cut off"):
            await NodeAgent().configure_local_service(node)
    subprocess.run(["umount", srv], check=True)  # the bare mount point
    with pytest.raises(HostError, match="it is not the directory that was offered"):
        await NodeAgent().configure_local_service(node)
    subprocess.run(["mount", path, srv], check=True)
    assert (await NodeAgent().configure_local_service(node))["bases"]


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
