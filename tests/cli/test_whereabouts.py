"""HOSTS in `qm volume list`: where copies are now, and what was decided where nobody knows more."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from quartermaster.cli.whereabouts import hosts_of
from quartermaster.resources import Host, PersistentVolume, PersistentVolumeClaim, from_document
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores import open_store
from quartermaster.support.errors import ForbiddenError
from tests.cli.conftest import Cli
from tests.cli.test_stakes import COPIES, brick, three, told_by, volume
from tests.cli.test_volume import store_url, write

__all__ = ["store_url"]


def moved_to_h4(url: str) -> None:
    """A volume of three copies, of which the one on h1 was made anew on h4."""
    write(url, Host(metadata=ObjectMeta(name="h4", namespace="default")))
    told_by(url, "h3", "h4:/b/pvc-1.m1", "h2:/b/pvc-1", "h3:/b/pvc-1")
    moves = msgspec.json.encode({"pvc-1": {"count": 1, "bricks": {"0": brick("h4", ".m1")}}}).decode()
    memory = ObjectMeta(name="quartermaster-glusterfs-default", namespace="default")
    write(url, ConfigMap(metadata=memory, data={"moves": moves}))


def claimed(url: str) -> None:
    spec = {"volumeName": "pvc-1", "resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteMany"]}
    meta = {"name": "data", "namespace": "default"}
    write(url, from_document(PersistentVolumeClaim, {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}}))


def listed(cli: Cli) -> dict[str, Any]:
    (row,) = json.loads(cli("volume", "list", "-o", "json").out)["volumes"]
    assert isinstance(row, dict)
    return row


def test_a_copy_that_has_moved_is_listed_where_it_is_now(store_url: str, cli: Cli) -> None:
    three(store_url, "h1", "h2", "h3")
    volume(store_url, COPIES, "h1", "h2", "h3")
    claimed(store_url)
    assert listed(cli)["hosts"] == ["h1", "h2", "h3"]
    moved_to_h4(store_url)
    assert listed(cli)["hosts"] == ["h4", "h2", "h3"]


def test_a_volume_is_out_of_reach_by_where_it_is_now(store_url: str, cli: Cli) -> None:
    three(store_url)
    volume(store_url, COPIES, "h1", "h2", "h3")
    claimed(store_url)
    assert listed(cli)["message"] == "h1 and h2 and h3 do not report: it cannot be used"
    moved_to_h4(store_url)
    assert listed(cli)["message"] == ""


@pytest.mark.parametrize(("type", "hosts"), [("glusterfs", ("h1", "h2", "h3")), ("torus", ("h1", "h2", "h3"))])
async def test_where_nobody_may_look_it_is_where_it_was_placed(
    monkeypatch: pytest.MonkeyPatch, type: str, hosts: tuple[str, ...]
) -> None:
    store = await open_store("memory:")
    made: list[PersistentVolume] = []
    monkeypatch.setattr("tests.cli.test_stakes.write", lambda _url, *objects: made.extend(objects))
    volume("", COPIES, *hosts, type=type)
    looked: list[str] = []

    async def refused(_store: object, namespace: str, _backends: object) -> None:
        looked.append(namespace)
        raise ForbiddenError("cannot list hosts")

    monkeypatch.setattr("quartermaster.cli.whereabouts.look", refused)
    assert await hosts_of(store, made) == {"pvc-1": hosts}
    assert looked == (["default"] if type == "glusterfs" else [])
    await store.close()
