"""What the tests of GlusterFS on virtual hosts share: declarations, files, and what they wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from quartermaster.support import entropy
from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import PATIENCE_S, Site

NODE = """apiVersion: coreos.com/v1
kind: StorageNode
metadata: {{name: {host}}}
spec: {{type: glusterfs, nodeSelector: {{kubernetes.io/hostname: {host}}}, devices: [/dev/vdb]}}
"""
CLUSTER = """apiVersion: coreos.com/v1
kind: StorageCluster
metadata: {name: gluster}
spec: {type: glusterfs, timings: {heartbeatSeconds: 1, unhealthyAfterSeconds: 4, moveDataAfterSeconds: 8}}
"""
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: default-glusterfs-default
  resources: {requests: {storage: 200Mi}}
"""
SIZE = 200 << 20
MOUNTED = "/var/lib/quartermaster/agents/glusterd/mounts/-/*"
LOOKS = r"\b(pool list|peer status|volume info|volume status|volume heal \S+ (info|statistics))\b"
LONG_S = 240.0  # a machine that is busy with other things as well
WRITE = "cd /mnt/data && for n in {files}; do head -c 4M /dev/urandom > file$n; done && sha256sum file* > sums && sync"
READ = "cd /mnt/data && sha256sum --check --quiet sums"


def new_serial(host: VirtualHost) -> str:
    """Of no other disk of this machine: labs are side by side, and the kernel mounts no XFS of a UUID that it has."""
    return f"{host.name.upper()}-{entropy.name_suffix(8)}"


async def replace_disk(host: VirtualHost) -> None:
    """It dies, and a blank one is in its place."""
    await host.replace_disk(0, serial=new_serial(host))


async def status_of(site: Site) -> dict[str, Any]:
    items = (await site.show("storagestatus"))["items"]
    found: dict[str, Any] = items[0] if items else {}
    return {"spec": {}, "status": {}, **found}  # an API server has an object before it has its status


async def is_whole(site: Site, nodes: int) -> bool:
    """ONLINE, so many nodes ready, and nothing missing."""
    found = await status_of(site)
    conditions = {one["type"]: one["status"] for one in found["status"].get("conditions", ())}
    ready = found["status"].get("readyCount") == nodes and found["status"].get("nodeCount") == nodes
    return found["spec"].get("status") == "ONLINE" and bool(ready) and conditions.get("Degraded") == "False"


async def until_whole(site: Site, nodes: int) -> None:
    await site.until(
        f"{nodes} nodes are ONLINE and nothing is missing", lambda: is_whole(site, nodes), timeout_s=LONG_S
    )


async def bricks_of(host: VirtualHost) -> list[str]:
    shown = (await host.run(["gluster", "--mode=script", "volume", "info"], timeout_s=PATIENCE_S)).text
    lines = [line for line in shown.splitlines() if line.startswith("Brick") and ":/" in line]
    return sorted(line.split()[1].partition(":")[0] for line in lines)


async def pool_has(host: VirtualHost, members: int) -> bool:
    shown = (await host.run(["gluster", "--mode=script", "pool", "list"], timeout_s=PATIENCE_S)).text
    return len(shown.strip().splitlines()) == members + 1


async def with_files(site: Site) -> None:
    """On three nodes, mounted on the second, which stays."""
    await site.apply(CLUSTER)
    for host in site.lab.hosts[:3]:
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 3)
    await site.apply(CLAIM)
    second = site.lab.hosts[1]
    await site.qm("volume", "mount", "data", "/mnt/data", host=second)
    await second.run(["sh", "-c", WRITE.format(files="1 2 3")])


async def history(host: VirtualHost) -> list[str]:
    """Every command that its glusterd was given, as that writes it down."""
    shown = await host.run(["cat", "/var/log/glusterfs/cmd_history.log"], accept=(0, 1))
    return shown.text.splitlines()


def changes(lines: Iterable[str]) -> list[str]:
    """Of commands that a glusterd was given, those that do not only look: to have a volume healed is none of these."""
    return [line for line in lines if not re.search(LOOKS, line)]


async def state_of_gluster(host: VirtualHost) -> str:
    """For whoever has to find out why something never came: what gluster itself says, with its last words."""
    script = (
        "exec 2>&1; g='timeout 60 gluster --mode=script'; $g pool list; $g volume info; $g volume status; "
        "for v in $($g volume list); do $g volume heal $v info; done; tail -n 20 /var/log/glusterfs/glustershd.log"
    )
    return (await host.run(["sh", "-c", f"{script}; true"], timeout_s=LONG_S)).text


async def left_over(host: VirtualHost) -> list[str]:
    """The directories of bricks on its disks, also those that are being removed; a disk that has died has none."""
    where = "/var/lib/quartermaster/agents/glusterd/mounts"
    argv = ["find", where, "-maxdepth", "3", "-type", "d", "(", "-name", "pvc-*", "-o", "-name", ".pvc-*", ")"]
    return (await host.run(argv, accept=(0, 1))).text.split()
