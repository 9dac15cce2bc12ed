"""What tests do to the store itself, by where it is: an etcd on the hosts, or an API server beside them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import ROOT, OnKubernetes, Site, Standalone

from .gluster import LONG_S

CRDS = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
# What is left of a host whose store is lost: what agents keep, and the records of daemons that run on.
KEPT = ("agents", "daemons")


async def until_the_store_outlives_a_host(site: Site) -> None:
    """One that is kept by the hosts themselves does from three members on, whichever hosts have them."""
    if isinstance(site, Standalone):
        standalone = site

        async def three() -> bool:
            return len(await standalone.members()) >= 3

        await site.until("etcd has three members", three, timeout_s=LONG_S)


async def start_again(site: Site, host: VirtualHost) -> None:
    """A host that was down, as its administrator would."""
    await host.boot()
    if isinstance(site, Standalone):
        await site.qm("up", host=host)
    else:
        await site.add(host)


def processes_of(site: Site) -> list[tuple[VirtualHost, str]]:
    """Who runs where: hosts that keep their store themselves also lead."""
    agents = [(host, "agent") for host in site.lab.hosts]
    return agents if isinstance(site, Standalone) else [(site.first, "leader"), *agents]


async def throw_the_store_away(site: Site, hosts: Sequence[VirtualHost]) -> None:
    """With all that was ever written to it; whoever used it has ended before. `hosts` are those that it knew."""
    if isinstance(site, OnKubernetes):
        await site.end_process(site.first, "leader")
        for host in hosts:
            await site.end_process(host, "agent")
        await site.server.kill()
        await site.server.etcd.etcdctl("del", "", "--prefix")
        await site.server.start()
        await site.server.kubectl("apply", "--server-side", *(f"--filename={path}" for path in CRDS))
        await site.server.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=20s")
        await site.server.restart_controller_manager()
        return
    for host in hosts:
        for name in ("agent", "quartermaster-etcd"):
            await _kill(host, name)
    for host in hosts:
        for entry in host.state.iterdir():
            if entry.name not in KEPT:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for entry in (host.state / "agents").iterdir():
            if not entry.name.startswith("gluster"):
                shutil.rmtree(entry)


async def _kill(host: VirtualHost, name: str) -> None:
    for record in (host.state / "daemons" / "records").glob(f"{name}*.json"):
        await host.run(["kill", "-KILL", str(json.loads(record.read_text())["pid"])], accept=(0, 1))
        record.unlink()
