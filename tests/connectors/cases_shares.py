"""File systems of servers, as rows of the table."""

from __future__ import annotations

from typing import Any

from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.world import World


def mounts_of(type: str, source: str, *options: str) -> str:
    from pathlib import Path

    from quartermaster.connectors.mounting import target_of

    return target_of(Path("{world}/state/mounts"), type, source, options)


NFS = mounts_of("nfs", "192.0.2.1:/vol", "as ")
NFS_SOFT = mounts_of("nfs", "192.0.2.1:/vol", "soft", "vers=3", "as ")
SMB = mounts_of("cifs", "//192.0.2.1/share", "vers=3.0", "username=alice", "as alice")
SMB_GUEST = mounts_of("cifs", "//192.0.2.1/open", "as ")
GLUSTER = mounts_of("glusterfs", "192.0.2.1:/gv0", "backup-volfile-servers=192.0.2.2", "as ")
QUOBYTE = mounts_of("quobyte", "192.0.2.1/volume", "as ")
CEPH_SOURCE = "192.0.2.1:6789,192.0.2.2:6789:/volumes/a"
CEPH = mounts_of("cephfs", CEPH_SOURCE, "as alice", "of fs1", "by kernel")
CEPH_FUSE = mounts_of("cephfs", CEPH_SOURCE, "as alice", "of fs1", "by fuse")


def unmounting(target: str) -> list[list[str]]:
    return [["umount", "--no-canonicalize", target]]


def mounting(type: str, source: str, target: str, options: str = "") -> list[str]:
    chosen = ["-o", options] if options else []
    return ["mount", "-t", type, *chosen, "--source", source, "--target", target]


def looking(path: str) -> list[str]:
    return ["stat", "--dereference", "--format=%F", path]


def has(source: str, *names: str) -> Any:
    return lambda world: world.set_fact("files", {source: list(names)})


def info(type: str, **data: Any) -> Any:
    return lambda _world: {"driverVolumeType": type, "data": data}


def only_version_3(world: World) -> None:
    world.set_fact("nfs_versions", ["3"])
    world.set_fact("files", {"192.0.2.1:/vol": ["volume-1"]})


CASES = [
    Case(
        "nfs",
        info("nfs", export="192.0.2.1:/vol", name="volume-1", options=None),
        connect=[mounting("nfs", "192.0.2.1:/vol", NFS, "vers=4.2"), looking(f"{NFS}/volume-1")],
        disconnect=unmounting(NFS),
        path=f"{NFS}/volume-1",
        prepare=has("192.0.2.1:/vol", "volume-1"),
    ),
    Case(
        "nfs of an old server",
        info("NFS", export="192.0.2.1:/vol", name="volume-1"),
        connect=[
            mounting("nfs", "192.0.2.1:/vol", NFS, "vers=4.2"),
            mounting("nfs", "192.0.2.1:/vol", NFS, "vers=4.1"),
            mounting("nfs", "192.0.2.1:/vol", NFS),
            looking(f"{NFS}/volume-1"),
        ],
        disconnect=unmounting(NFS),
        path=f"{NFS}/volume-1",
        prepare=only_version_3,
    ),
    Case(
        "nfs with a version",
        info("NFS", export="192.0.2.1:/vol", options="-o soft,vers=3"),
        connect=[mounting("nfs", "192.0.2.1:/vol", NFS_SOFT, "soft,vers=3")],
        disconnect=unmounting(NFS_SOFT),
        path=NFS_SOFT,
    ),
    Case(
        "smbfs",
        info("smbfs", export="//192.0.2.1/share", options=f"-o vers=3.0,username=alice,password={CANARY}"),
        connect=[mounting("cifs", "//192.0.2.1/share", SMB, "vers=3.0,credentials={world}/state/secrets/VOLUME")],
        disconnect=unmounting(SMB),
        path=SMB,
    ),
    Case(
        "smbfs for everybody",
        info("SMBFS", export="//192.0.2.1/open"),
        connect=[mounting("cifs", "//192.0.2.1/open", SMB_GUEST, "guest")],
        disconnect=unmounting(SMB_GUEST),
        path=SMB_GUEST,
    ),
    Case(
        "glusterfs",
        info("glusterfs", export="192.0.2.1:/gv0", name="volume-1", options="-o backup-volfile-servers=192.0.2.2"),
        connect=[
            mounting("glusterfs", "192.0.2.1:/gv0", GLUSTER, "backup-volfile-servers=192.0.2.2"),
            looking(f"{GLUSTER}/volume-1"),
        ],
        disconnect=unmounting(GLUSTER),
        path=f"{GLUSTER}/volume-1",
        prepare=has("192.0.2.1:/gv0", "volume-1"),
    ),
    Case(
        "quobyte",
        info("QUOBYTE", export="192.0.2.1/volume"),
        connect=[mounting("quobyte", "192.0.2.1/volume", QUOBYTE)],
        disconnect=unmounting(QUOBYTE),
        path=QUOBYTE,
    ),
    Case(
        "cephfs",
        info(
            "CEPHFS",
            monitors=["192.0.2.1:6789", "192.0.2.2:6789"],
            path="/volumes/a",
            user="alice",
            secret=CANARY,
            fileSystem="fs1",
        ),
        connect=[
            mounting("ceph", CEPH_SOURCE, CEPH, "name=alice,secretfile={world}/state/secrets/VOLUME,mds_namespace=fs1")
        ],
        disconnect=unmounting(CEPH),
        path=CEPH,
    ),
    Case(
        "cephfs by fuse",
        info(
            "CEPHFS",
            monitors="192.0.2.1:6789,192.0.2.2:6789",
            path="/volumes/a",
            user="alice",
            secret=CANARY,
            fileSystem="fs1",
        ),
        connect=[
            mounting(
                "fuse.ceph",
                "none",
                CEPH_FUSE,
                "ceph.name=client.alice,ceph.mon_host=192.0.2.1:6789;192.0.2.2:6789,"
                "ceph.keyring={world}/state/secrets/VOLUME,ceph.client_fs=fs1,ceph.client_mountpoint=/volumes/a",
            )
        ],
        disconnect=unmounting(CEPH_FUSE),
        path=CEPH_FUSE,
        options={"clients": {"CEPHFS": "fuse"}},
    ),
]
