"""`qm volume`: the volume of a claim on this host, and what is said when that cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quartermaster.backends.base import Placement, Volume
from quartermaster.cli.volumes import volume_rows
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning.intent import Record, with_record
from quartermaster.provisioning.protocol import PROVISIONED_BY, mounts_of
from quartermaster.resources import Host, PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.codec import from_document
from quartermaster.resources.marks import HOSTNAME_LABEL, provisioner_of
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.orchestration import FAILED, Assignment, AssignmentSpec, AssignmentStatus, HostStatus
from quartermaster.stores import modify, open_store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ForbiddenError, NotFoundError
from tests.cli.conftest import Cli, table

pytestmark = [pytest.mark.slow]  # most of them start an operator, which answers what a host asks for

HOST = "here"
KEY = ClusterKey("default", "local", "default")


@pytest.fixture
def store_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> str:
    url = f"sqlite:{tmp_path}/store.db"
    monkeypatch.setenv("QM_STORE", url)
    monkeypatch.setenv("QM_STATE_DIR", str(tmp_path / "state"))
    return url


@pytest.fixture
def leader(store_url: str) -> Iterator[None]:
    """An operator as a process of its own, on the same store, and the host for which volumes are asked."""
    write(store_url, Host(metadata=ObjectMeta(name=HOST, namespace="default", labels={HOSTNAME_LABEL: HOST})))
    command = [sys.executable, "-m", "quartermaster", "operator", "--debounce", "0", "--store", store_url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(15)


def write(url: str, *objects: Object) -> list[Object]:
    async def work() -> list[Object]:
        store = await open_store(url)
        written = []
        for obj in objects:
            made = await store.create(obj)
            status = getattr(obj, "status", None)
            if status is not None:
                made = await store.update_status(msgspec.structs.replace(made, status=status))  # type: ignore[call-arg]
            written.append(made)
        await store.close()
        return written

    return asyncio.run(work())


def read(url: str, kind: type[Any], name: str, namespace: str = "") -> Any:
    async def work() -> Any:
        store = await open_store(url)
        try:
            return await store.get(kind, name, namespace)
        finally:
            await store.close()

    return asyncio.run(work())


def claim(phase: str = "Bound", *, volume: str = "v1", **more: Any) -> PersistentVolumeClaim:
    return from_document(
        PersistentVolumeClaim,
        {
            "metadata": {"name": "data", "namespace": "default", **more.pop("metadata", {})},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": volume,
                "storageClassName": "fast",
            },
            "status": {"phase": phase, "capacity": {"storage": "1Gi"} if phase == "Bound" else {}, **more},
        },
    )


def volume(uid: str, path: Path, *, host: str = HOST, provisioner: str = provisioner_of("local")) -> PersistentVolume:
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [host]}]}
    made = from_document(
        PersistentVolume,
        {
            "metadata": {"name": "v1", "annotations": {PROVISIONED_BY: provisioner}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"namespace": "default", "name": "data", "uid": uid},
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "fast",
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    return with_record(made, Record(KEY, Volume("v1", 1 << 30, Placement((host,)))))


def bound(url: str, path: Path, **about: Any) -> None:
    path.mkdir()
    (made,) = write(url, claim())
    write(url, volume(made.metadata.uid, path, **about))


@pytest.fixture
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody who may not mount; what he owns is his all the same."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_without_root_the_directory_itself_is_given(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, unprivileged: None
) -> None:
    bound(store_url, tmp_path / "made")
    result = cli("volume", "mount", "data", tmp_path / "target", "--host", HOST)
    assert (result.code, result.out) == (0, f"{tmp_path}/made\n")
    assert "without root, the volume is used where it is" in result.err
    assert not (tmp_path / "target").exists()


def test_what_is_in_use_is_written_on_the_volume_until_it_is_not(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, unprivileged: None
) -> None:
    bound(store_url, tmp_path / "made")
    for _ in range(2):
        assert cli("volume", "mount", "data", tmp_path / "target", "--host", HOST).code == 0
    while mounts_of(read(store_url, PersistentVolume, "v1")) != {HOST: (f"{tmp_path}/made",)}:
        time.sleep(0.05)  # the leader writes down where it turned out to be; the test's own timeout bounds this
    assert table(cli("volume", "list").out)[1][:6] == ["data", "Bound", "1Gi", "fast", HOST, f"{HOST}:{tmp_path}/made"]
    assert cli("volume", "unmount", "data", "--host", HOST).out == f"{tmp_path}/made released\n"
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {}
    assert (tmp_path / "made").is_dir()
    again = cli("volume", "unmount", "data", "--host", HOST)
    assert (again.code, again.out) == (0, "")
    assert f"data is not mounted on {HOST}" in again.err


def test_a_path_names_the_volume_as_well(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, unprivileged: None
) -> None:
    bound(store_url, tmp_path / "made")
    cli("volume", "mount", "data", tmp_path / "target", "--host", HOST)
    assert cli("volume", "unmount", tmp_path / "made", "--host", HOST).out == f"{tmp_path}/made released\n"


def test_a_volume_of_another_host_is_refused_with_its_name(
    cli: Cli, leader: None, store_url: str, tmp_path: Path
) -> None:
    bound(store_url, tmp_path / "made", host="far-away")
    result = cli("volume", "mount", "data", tmp_path / "target", "--host", HOST)
    assert result.code == 1
    assert "cannot mount data on here: its volume is on far-away; run the same command on far-away" in result.err
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {}


def test_a_volume_of_somebody_else_is_refused(cli: Cli, leader: None, store_url: str, tmp_path: Path) -> None:
    bound(store_url, tmp_path / "made", provisioner="rancher.io/local-path")
    result = cli("volume", "mount", "data", tmp_path / "target", "--host", HOST)
    assert result.code == 1
    assert "cannot mount data on here: its volume was made by rancher.io/local-path" in result.err


def test_a_failed_mount_leaves_no_trace(cli: Cli, leader: None, store_url: str, tmp_path: Path) -> None:
    bound(store_url, tmp_path / "made")
    (tmp_path / "made").rmdir()
    result = cli("volume", "mount", "data", tmp_path / "target", "--host", HOST)
    assert result.code == 1
    assert f"cannot mount v1: {tmp_path}/made is not on this host" in result.err
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {}


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Mounts something that is not ours, as somebody else does; whatever is mounted in the end goes."""

    def mount(target: Path) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "foreign", target], check=True)
        (target / "precious").touch()

    yield mount
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if str(tmp_path) in line:
            subprocess.run(["umount", line.split()[1]], check=True)


@pytest.mark.netns
def test_a_mount_that_is_refused_for_somebody_elses_leaves_no_record_and_that_one_alone(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, foreign: Callable[[Path], None]
) -> None:
    bound(store_url, tmp_path / "made")
    target = tmp_path / "target"
    target.mkdir()
    foreign(target)
    for path in (target, Path("/"), Path("/etc"), Path("/proc")):
        assert cli("volume", "mount", "data", path, "--host", HOST).code == 1
        assert cli("get", "mounts", "-o", "name").out == "", f"{path} is written down"
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {}
    again = cli("volume", "unmount", "data", "--host", HOST)
    assert (again.code, again.out) == (0, "")
    assert (target / "precious").exists()


@pytest.mark.netns
def test_what_somebody_else_has_mounted_in_place_of_a_volume_is_left_alone_and_the_record_goes(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, foreign: Callable[[Path], None]
) -> None:
    bound(store_url, tmp_path / "made")
    target = tmp_path / "target"
    assert cli("volume", "mount", "data", target, "--host", HOST).code == 0
    subprocess.run(["umount", target], check=True)
    foreign(target)
    result = cli("volume", "unmount", "data", "--host", HOST)
    assert (result.code, result.out) == (0, f"{target} released\n")
    assert "what is mounted there, foreign (tmpfs), was left alone" in result.err
    assert (target / "precious").exists()
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {}


@pytest.mark.netns
def test_what_lies_on_top_of_a_volume_is_not_unmounted_and_the_other_paths_are(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, foreign: Callable[[Path], None]
) -> None:
    bound(store_url, tmp_path / "made")
    targets = [tmp_path / name for name in "abc"]
    for target in targets:
        assert cli("volume", "mount", "data", target, "--host", HOST).code == 0
    for target in targets[:2]:
        foreign(target)
    result = cli("volume", "unmount", "data", "--host", HOST)
    assert (result.code, result.out) == (1, f"{targets[2]} unmounted\n")
    for target in targets[:2]:
        assert f"cannot unmount v1 from {target}: foreign (tmpfs) is mounted on top of it" in result.err
        assert (target / "precious").exists()
    assert result.err.count("nothing was changed") == 2
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {HOST: tuple(map(str, targets[:2]))}
    for target in targets[:2]:
        subprocess.run(["umount", target], check=True)
    assert cli("volume", "unmount", "data", "--host", HOST).code == 0
    assert not any(target.exists() for target in targets)


@pytest.mark.netns
def test_the_mount_of_a_volume_that_is_gone_is_cleared_away_where_it_says_which_it_was(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, foreign: Callable[[Path], None]
) -> None:
    bound(store_url, tmp_path / "made")
    own, other = tmp_path / "own", tmp_path / "other"
    for target in (own, other):
        assert cli("volume", "mount", "data", target, "--host", HOST).code == 0
        subprocess.run(["umount", target], check=True)
    assert cli("delete", "pvc", "data", "--force").code == 0
    is_gone(store_url, "v1")
    subprocess.run(["mount", "-t", "tmpfs", "server:/v1", own], check=True)
    foreign(other)
    result = cli("volume", "unmount", own, "--host", HOST)
    assert (result.code, result.out) == (0, f"{own} unmounted\n")
    refused = cli("volume", "unmount", other, "--host", HOST)
    assert (refused.code, refused.out) == (1, "")
    assert "its volume v1 is gone, and nobody can tell whether foreign (tmpfs)" in refused.err
    assert (other / "precious").exists()


def is_gone(url: str, volume: str) -> None:
    """As an agent would make it: there is none here."""

    def unheld(found: PersistentVolume) -> PersistentVolume:
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, finalizers=()))

    async def work() -> None:
        store = await open_store(url)
        await store.delete(PersistentVolume, volume)
        with suppress(NotFoundError):
            await modify(store, PersistentVolume, volume, "", unheld)
        await store.close()

    asyncio.run(work())


def test_a_claim_that_has_no_volume_in_time_says_why(cli: Cli, leader: None, store_url: str, tmp_path: Path) -> None:
    condition = {"type": "Provisioned", "status": "False", "message": "1Gi were asked for, and 10Mi are free"}
    write(store_url, claim("Pending", volume="", conditions=[condition]))
    result = cli("volume", "mount", "data", tmp_path / "target", "--timeout", "8s", "--host", HOST)
    assert result.code == 1
    assert "1Gi were asked for, and 10Mi are free" in result.err
    assert "1Gi were asked for" in cli("volume", "list").out


def test_a_claim_that_is_not_there_is_an_error(cli: Cli, store_url: str, tmp_path: Path) -> None:
    assert cli("volume", "mount", "nothing", tmp_path / "target").code == 1
    assert cli("volume", "unmount", "nothing").code == 1
    assert cli("volume", "unmount", "/nowhere").code == 0


def test_the_mounts_of_a_host_that_is_gone_are_given_up_by_name(
    cli: Cli, leader: None, store_url: str, tmp_path: Path, unprivileged: None
) -> None:
    bound(store_url, tmp_path / "made")
    cli("volume", "mount", "data", tmp_path / "target", "--host", HOST)
    assert cli("volume", "unmount", "data", "--host", "another").out == ""
    alive = cli("volume", "unmount", "data", "--gone", HOST)
    assert (alive.code, "it lives" in alive.err) == (1, True)
    assert cli("delete", "host", HOST, "--force").code == 0
    assert cli("volume", "unmount", "data", "--gone", HOST).out == f"{tmp_path}/made on {HOST} given up\n"
    assert mounts_of(read(store_url, PersistentVolume, "v1")) == {}


def test_the_list_says_what_is_wrong_with_a_volume_that_was_there(cli: Cli, store_url: str, tmp_path: Path) -> None:
    bound(store_url, tmp_path / "made")
    assert table(cli("volume", "list").out)[1][-1] == "<none>"
    spec = AssignmentSpec(host=HOST, agent="local-volume", instance="v1")
    status = AssignmentStatus(state=FAILED, message="cannot reach it", result={"path": "/x"})
    broken = Assignment(metadata=ObjectMeta(name="local-volume-v1.here", namespace="default"), spec=spec, status=status)
    write(store_url, broken)
    assert "cannot reach it" in cli("volume", "list").out


@pytest.mark.parametrize(("policy", "becomes"), [("Delete", "is being deleted"), ("Retain", "is kept (Retain)")])
def test_the_list_has_a_volume_whose_claim_is_gone_and_says_what_becomes_of_it(
    cli: Cli, store_url: str, tmp_path: Path, policy: str, becomes: str
) -> None:
    released = volume("of-a-claim-that-is-gone", tmp_path)
    spec = msgspec.structs.replace(released.spec, persistent_volume_reclaim_policy=policy)
    status = msgspec.structs.replace(released.status, phase="Released")
    write(store_url, msgspec.structs.replace(released, spec=spec, status=status))
    line = cli("volume", "list").lines[1]
    assert line.split()[:2] == ["data", "Released"]
    assert line.endswith(f"the claim of v1 is gone, and it {becomes}")
    spec_of = AssignmentSpec(host=HOST, agent="local-volume", instance="v1", absent=True)
    failed = AssignmentStatus(state=FAILED, message="it is in use")
    metadata = ObjectMeta(name="local-volume-v1.here", namespace="default")
    write(store_url, Assignment(metadata=metadata, spec=spec_of, status=failed))
    assert cli("volume", "list").lines[1].endswith(f"it {becomes}: it is in use")


def test_the_list_says_that_the_volume_of_a_claim_is_missing(cli: Cli, store_url: str) -> None:
    write(store_url, claim("Pending", volume="v9"))
    assert cli("volume", "list").lines[1].endswith('it names the volume "v9", and there is none of that name')


def test_the_list_says_that_a_class_is_missing(cli: Cli, store_url: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fats"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"}}
    write(store_url, from_document(PersistentVolumeClaim, {**claim, "spec": spec}))
    assert 'there is no StorageClass "fats"' in cli("volume", "list").out
    fast = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "x"}
    write(store_url, from_document(StorageClass, fast))
    assert 'there is no StorageClass "fats"; there are fast' in cli("volume", "list").out


def test_the_list_says_that_no_class_is_set_and_which_there_are(cli: Cli, store_url: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    write(
        store_url,
        from_document(PersistentVolumeClaim, {"metadata": {"name": "d", "namespace": "default"}, "spec": spec}),
    )
    fast = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "x"}
    write(store_url, from_document(StorageClass, fast))
    said = "no StorageClass is set: `qm edit pvc d` sets spec.storageClassName; the classes there are: fast"
    assert said in cli("volume", "list").out


async def test_who_may_see_claims_and_volumes_only_gets_their_table() -> None:
    class Limited(ObjectStore):
        async def list(self, kind: Any, *arguments: Any, **options: Any) -> Any:
            if kind not in (PersistentVolumeClaim, PersistentVolume):
                raise ForbiddenError(f"cannot list {kind.__name__}")
            return await super().list(kind, *arguments, **options)

    store = Limited(MemoryKeyValue())
    requests = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": requests}
    document = {"metadata": {"name": "data", "namespace": "default"}, "spec": spec}
    await store.create(from_document(PersistentVolumeClaim, document))
    (row,) = await volume_rows(store, "default")
    assert (row["name"], row["message"]) == ("data", "")


def test_the_list_says_when_nobody_reports_for_a_volume(cli: Cli, store_url: str, tmp_path: Path) -> None:
    bound(store_url, tmp_path / "made")
    write(store_url, Host(metadata=ObjectMeta(name=HOST, namespace="default"), status=HostStatus(state="Silent")))
    assert f"{HOST} does not report: it cannot be used" in cli("volume", "list").out


def test_the_list_is_for_programs_too(cli: Cli, store_url: str, tmp_path: Path) -> None:
    bound(store_url, tmp_path / "made")
    (row,) = json.loads(cli("volume", "list", "-o", "json").out)["volumes"]
    assert (row["name"], row["status"], row["volume"], row["hosts"]) == ("data", "Bound", "v1", [HOST])
    assert cli("volume", "list", "-o", "name").code == 2
