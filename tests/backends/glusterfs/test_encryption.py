"""TLS by setting: what nodes and volumes are told, what a host has to have, and when a setting comes too late."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.encryption import (
    FILES,
    SECURE_ACCESS,
    VOLUME_OPTIONS,
    refuse_without_tls,
    secure,
    unsecure,
    uses_tls,
    what_differs,
)
from quartermaster.backends.glusterfs.facts import NODE
from quartermaster.host import Host
from quartermaster.host.commands import Command, Result
from quartermaster.host.fake import FakeCommands, FakeMachine, fake_host
from quartermaster.planning.cluster import ClusterView, NodeView
from quartermaster.support.errors import HostError

from .modelled import GIB, Cluster


async def view_of(cluster: Cluster, *, tls: bool) -> ClusterView:
    view = await cluster.bench.view()
    return replace(view, settings=replace(view.settings, tls=tls))


def bare() -> tuple[Host, list[Command]]:
    """And what it was asked to remove."""
    commands = FakeCommands()
    removed: list[Command] = []

    def remove(command: Command) -> Result:
        removed.append(command)
        return Result()

    commands.handle("rm", handler=remove)
    return fake_host(FakeMachine(), commands=commands), removed


async def furnished() -> tuple[Host, list[Command]]:
    host, removed = bare()
    for name in FILES:
        await host.directories.write(f"/usr/lib/ssl/{name}", b"PEM")
    return host, removed


async def test_nodes_are_set_up_with_tls_where_the_settings_say_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.bench.add("h1", "h2", "h3")
    plan = cluster.bench.backend.plan(await view_of(cluster, tls=True))
    told = [one.config or {} for one in plan.assignments if one.agent == NODE]
    assert [config.get("tls") for config in told] == [True] * 3


async def test_a_setting_that_comes_after_the_first_node_changes_nothing_and_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    view = await view_of(cluster, tls=True)
    assert not uses_tls(view)
    plan = cluster.bench.backend.plan(view)
    assert not any("tls" in (one.config or {}) for one in plan.assignments)
    assert plan.details["tls"] == what_differs(view)
    assert "without TLS" in what_differs(view)


async def test_volumes_of_such_a_cluster_are_served_with_tls_and_say_so_to_who_mounts_them(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    view = await view_of(cluster, tls=True)
    nodes = tuple(_set_up_with_tls(node) for node in view.nodes)
    driver = cluster.bench.backend.volumes()
    placed = driver.place(cluster.bench.request("pvc-2", GIB), replace(view, nodes=nodes))
    assert isinstance(placed, Placement)
    assert VOLUME_OPTIONS.items() <= placed.details["options"].items()
    source = driver.source(Volume("pvc-2", GIB, placed), {"volume": "pvc-2"})
    assert source["csi"]["volumeAttributes"]["tls"] == "true"


def _set_up_with_tls(node: NodeView) -> NodeView:
    reports = tuple(
        replace(one, desired={**(one.desired or {}), "tls": True}) if one.agent == NODE else one for one in node.reports
    )
    return replace(node, reports=reports)


async def test_without_certificates_glusterd_does_not_start_and_the_missing_ones_are_named() -> None:
    host, _ = bare()
    await host.directories.write("/usr/lib/ssl/glusterfs.pem", b"PEM")
    with pytest.raises(HostError, match=r"ssl/glusterfs\.key, \S+ssl/glusterfs\.ca is not there"):
        await secure(host)
    assert await host.directories.read(SECURE_ACCESS) is None


async def test_what_was_put_there_for_a_node_goes_with_it() -> None:
    host, removed = await furnished()
    await secure(host)
    await secure(host)
    await refuse_without_tls(host, "pvc-1")
    await unsecure(host)
    assert [command.argv[-1] for command in removed] == [SECURE_ACCESS]


async def test_what_somebody_else_has_put_there_stays() -> None:
    host, removed = await furnished()
    await host.directories.write(SECURE_ACCESS, b"")
    await secure(host)
    await unsecure(host)
    assert await host.directories.read(SECURE_ACCESS) == b""
    assert removed == []


async def test_a_host_that_is_not_set_up_for_tls_is_told_so_before_it_mounts() -> None:
    host, _ = bare()
    with pytest.raises(HostError, match="pvc-1: it is served with TLS"):
        await refuse_without_tls(host, "pvc-1")
