"""A cluster on virtual hosts for GlusterFS, with a fourth host to spare: on an etcd of its own, or on an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from quartermaster.testing.lab import Lab
from quartermaster.testing.servers import KubernetesServer
from tests.cluster.conftest import KUBERNETES_PORT
from tests.cluster.sites import OnKubernetes, Site, Standalone, forwarded, kubeconfig_for

from .gluster import new_serial
from .homes import CRDS


@pytest.fixture(params=["etcd", pytest.param("kubernetes", marks=pytest.mark.deep)])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        lab = await Lab.create(tmp_path / "lab", hosts=4, disks=0, name="gluster")
        await stack.enter_async_context(lab)
        for host in lab.hosts:
            await host.add_disk("1Gi", serial=new_serial(host))
        made: Site = Standalone(lab)
        if request.param == "kubernetes":
            server = KubernetesServer(tmp_path / "kubernetes", controller_manager=True, manifests=CRDS)
            await stack.enter_async_context(server)
            address, port = lab.machine_address, KUBERNETES_PORT
            await stack.enter_async_context(forwarded(address, port, int(server.url.rpartition(":")[2])))
            made = OnKubernetes(lab, server, kubeconfig_for(server, address, port, tmp_path / "kubeconfig"))
        await made.bring_up(3)
        yield made
