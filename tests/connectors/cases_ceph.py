"""RBD by each of its clients, and NBD by the kernel's, as rows of the table."""

from __future__ import annotations

from typing import Any

from quartermaster.connectors.drivers.gluster_userspace import GlusterFilePlace
from quartermaster.connectors.drivers.rbd import Monitor, RbdPlace
from tests.connectors import cases_userspace
from tests.connectors.cases_userspace import daemons_in
from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.world import World

TOOLS = {
    "rbd": "tests.connectors.tools_ceph:rbd",
    "getent": "tests.connectors.tools_ceph:getent",
    "rbd-nbd": "tests.connectors.tools_ceph:rbd_nbd",
    "nbd-client": "tests.connectors.tools_ceph:nbd_client",
    "blockdev": "tests.connectors.tools_scsi:blockdev",
}
MONITORS = "192.0.2.1:6789,192.0.2.2:6789"
LINK = "{world}/dev/disk/by-id/quartermaster-volume-1"
KEYRING = "{world}/state/secrets/VOLUME"
FLUSHING = ["blockdev", "--flushbufs", "{world}/dev/nbd1"]


def info(**data: Any) -> dict[str, Any]:
    own = {
        "name": "volumes/image-1",
        "hosts": ["192.0.2.2", "192.0.2.1"],
        "ports": ["6789", "6789"],
        "auth_enabled": True,
        "auth_username": "cinder",
        "cluster_name": "ceph",
        "keyring": f"[client.cinder]\n\tkey = {CANARY}\n",
        "secret_type": "ceph",
        "secret_uuid": None,
        "volume_id": "volume-1",
    }
    return {"driver_volume_type": "rbd", "data": {**own, **data}}


def prepare(world: World) -> None:
    world.path("sys/bus/rbd").mkdir(parents=True)
    world.set_fact("images", {"volumes/image-1": "2048", "volumes/a/image-1@monday": "2048"})
    world.set_fact("ceph_key", CANARY)


def prepare_nbd(world: World) -> None:
    """The first device is somebody else's."""
    prepare(world)
    cases_userspace.prepare(world)
    world.set_fact("exports", ["disk"])
    world.add_device("nbd0", size="8", pid="1")
    for number in (1, 2):
        world.add_device(f"nbd{number}", size="0")


def prepare_names(world: World) -> None:
    prepare(world)
    world.set_fact("names", {"mon-1.example.org": "192.0.2.5"})


def reaching(monitors: str = MONITORS) -> list[str]:
    return ["--id", "cinder", "--mon_host", monitors, "--keyring", KEYRING]


def mapping(*words: str, monitors: str = MONITORS, options: str = "noudev") -> list[str]:
    return ["rbd", "device", "map", *reaching(monitors), *words, "--options", options]


UNMAPPING = ["rbd", "device", "unmap", "--options", "noudev", "{world}/dev/rbd0"]
RESOLVING = ["getent", "ahosts", "mon-1.example.org"]

CASES = [
    Case(
        "rbd",
        lambda _world: info(),
        connect=[mapping("--pool", "volumes", "--image", "image-1")],
        disconnect=[UNMAPPING],
        path=LINK,
        tools=TOOLS,
        prepare=prepare,
    ),
    Case(
        "rbd snapshot by name",
        lambda _world: info(name="volumes/a/image-1@monday", hosts="mon-1.example.org:3300", ports=None),
        connect=[
            RESOLVING,
            mapping(
                *("--pool", "volumes", "--namespace", "a", "--image", "image-1", "--snap", "monday", "--read-only"),
                monitors="mon-1.example.org:3300",
                options="noudev,ms_mode=prefer-crc",
            ),
        ],
        disconnect=[UNMAPPING],
        path=LINK,
        tools=TOOLS,
        prepare=prepare_names,
        looks=["getent"],
    ),
    Case(
        "rbd by rbd-nbd",
        lambda _world: info(),
        connect=[["rbd-nbd", "map", "-f", *reaching(), "--device", "{world}/dev/nbd1", "volumes/image-1"]],
        disconnect=[FLUSHING, ["rbd-nbd", "unmap", "{world}/dev/nbd1"]],
        path=LINK,
        tools=TOOLS,
        prepare=prepare_nbd,
        options={"clients": {"RBD": "rbd-nbd"}},
        stub=daemons_in,
    ),
    cases_userspace.case(
        "rbd userspace",
        {"driverVolumeType": "RBD", "data": {**info()["data"], "volumeId": "volume-1"}},
        RbdPlace((Monitor("192.0.2.1", 6789), Monitor("192.0.2.2", 6789)), "volumes", "", "image-1"),
        {
            "driver": "rbd",
            "pool": "volumes",
            "image": "image-1",
            "user": "cinder",
            "server": [{"host": "192.0.2.1", "port": "6789"}, {"host": "192.0.2.2", "port": "6789"}],
            "key-secret": "secret",
        },
        secret=True,
        encoded=True,
    ),
    Case(
        "nbd",
        lambda _world: {
            "driverVolumeType": "NBD",
            "data": {"host": "192.0.2.9", "export": "disk", "volumeId": "volume-1"},
        },
        connect=[
            [
                *("nbd-client", "-nonetlink", "-nofork", "-persist", "-name", "disk"),
                *("192.0.2.9", "10809", "{world}/dev/nbd1"),
            ]
        ],
        disconnect=[FLUSHING, ["nbd-client", "-d", "{world}/dev/nbd1"]],
        path=LINK,
        tools=TOOLS,
        prepare=prepare_nbd,
        stub=daemons_in,
    ),
    cases_userspace.case(
        "glusterfs userspace",
        {
            "driverVolumeType": "GLUSTERFS",
            "data": {
                "export": "192.0.2.1:/gv0",
                "name": "volume-1",
                "options": "-o backup-volfile-servers=192.0.2.2",
                "volumeId": "g1",
            },
        },
        GlusterFilePlace(("192.0.2.1", "192.0.2.2"), "gv0", "volume-1"),
        {
            "driver": "gluster",
            "volume": "gv0",
            "path": "volume-1",
            "server": [{"type": "inet", "host": f"192.0.2.{number}", "port": "24007"} for number in (1, 2)],
        },
    ),
]
