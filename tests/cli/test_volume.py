"""`qm volume`: the volume of a claim on this host, and what is said when that cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quartermaster.backends.base import Placement, Volume
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning.intent import Record, with_record
from quartermaster.provisioning.protocol import PROVISIONED_BY, mounts_of
from quartermaster.resources import Host, PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.codec import from_document
from quartermaster.resources.marks import HOSTNAME_LABEL, provisioner_of
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.stores import open_store
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


def test_the_list_is_for_programs_too(cli: Cli, store_url: str, tmp_path: Path) -> None:
    bound(store_url, tmp_path / "made")
    (row,) = json.loads(cli("volume", "list", "-o", "json").out)["volumes"]
    assert (row["name"], row["status"], row["volume"], row["hosts"]) == ("data", "Bound", "v1", [HOST])
    assert cli("volume", "list", "-o", "name").code == 2
