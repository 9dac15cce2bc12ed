"""Clusters on virtual hosts, of both kinds; each test has its own, and nothing is left of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from quartermaster.testing.lab import Lab
from quartermaster.testing.servers import KubernetesServer

from .sites import ROOT, OnKubernetes, Site, Standalone, forwarded, kubeconfig_for

MakeSite = Callable[..., Awaitable[Site]]
KUBERNETES_PORT = 6443


@pytest.fixture(params=["etcd", "kubernetes"])
async def make_site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeSite]:
    """`await make_site(hosts=3)`: so many hosts are up and belong together."""
    async with AsyncExitStack() as stack:

        async def make(hosts: int = 3, spare: int = 0) -> Site:
            lab = await Lab.create(tmp_path / "lab", hosts=hosts + spare, disks=1, disk_size="1Gi", name="cluster")
            await stack.enter_async_context(lab)
            site: Site = Standalone(lab)
            if request.param == "kubernetes":
                crds = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
                server = KubernetesServer(tmp_path / "kubernetes", controller_manager=True, manifests=crds)
                await stack.enter_async_context(server)
                address, port = lab.machine_address, KUBERNETES_PORT
                await stack.enter_async_context(forwarded(address, port, int(server.url.rpartition(":")[2])))
                site = OnKubernetes(lab, server, kubeconfig_for(server, address, port, tmp_path / "kubeconfig"))
            await site.bring_up(hosts)
            return site

        yield make
