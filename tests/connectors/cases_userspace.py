"""Volumes that qemu-storage-daemon opens, as rows of the table."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from quartermaster.connectors import userspace
from quartermaster.connectors.drivers import iscsi_inquiry, iscsi_userspace
from quartermaster.connectors.drivers.iscsi_userspace import IscsiPath, IscsiUserspacePlace
from quartermaster.connectors.drivers.nbd import NbdPlace
from quartermaster.connectors.names import digest_of
from quartermaster.host.daemons import DetachedDaemons
from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.world import World

PORTAL, IQN = "192.0.2.20:3260", "iqn.2026-01.test:disk"
TOOLS = {
    "qemu-storage-daemon": "tests.connectors.tools_userspace:qemu_storage_daemon",
    "blockdev": "tests.connectors.tools_scsi:blockdev",
}


@contextmanager
def daemons_in(world: World) -> Iterator[None]:
    """Daemons are the world's own programs; whatever a test leaves of them ends with it."""

    def runtime(context: Any) -> DetachedDaemons:
        return DetachedDaemons(
            context.commands, context.directory / "daemons", search_path=f"{world.path('bin')}:{os.defpath}"
        )

    try:
        with patch.object(userspace, "runtime_of", runtime), patch.object(iscsi_userspace, "ask_lun", target_of(world)):
            yield
    finally:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                arguments = (process / "cmdline").read_bytes()
                if os.fsencode(world.path("bin")) in arguments:
                    os.kill(int(process.name), signal.SIGKILL)


def target_of(world: World) -> Any:
    """In place of the target: what its LUNs say they are, or the kind of its refusal where the world has one."""

    async def tell(_context: Any, lun: Any, **_login: Any) -> tuple[str, ...]:
        said = world.fact("target_says", f"naa.60014050000000000000000000000{lun.lun:03x}")
        if said.isalpha():
            raise iscsi_inquiry._failure(f"open {lun.name}", said, "as the world has it")
        return (said,) if said else ()

    return tell


def prepare(world: World) -> None:
    """The directories of the library that stay once they were made."""
    for name in ("state/userspace", "state/daemons/records", "state/daemons/logs"):
        world.path(name).mkdir(parents=True)


def directory_of(type: str, place: msgspec.Struct) -> str:
    known = {
        key: sorted(value, key=repr) if isinstance(value, list | tuple) else value
        for key, value in msgspec.to_builtins(place).items()
        if key != "wwid"
    }
    key = digest_of(f"{type} {msgspec.json.encode(known, order='sorted').decode()}")
    return f"{{world}}/state/userspace/{key}"


def opening(
    directory: str, options: dict[str, Any], *, secret: bool = False, encoded: bool = False, ro: bool = False
) -> list[list[str]]:
    def text(**values: Any) -> str:
        return json.dumps({key.replace("_", "-"): value for key, value in values.items()}, separators=(",", ":"))

    given: dict[str, Any] = {"qom_type": "secret", "id": "secret", "file": f"{directory}/secret"}
    given |= {"format": "base64"} if encoded else {}
    node = {"node-name": "volume", "read-only": ro, "discard": "unmap", **options}
    shown = text(type="fuse", id="export", node_name="volume", mountpoint=f"{directory}/volume", writable=not ro)
    return [
        [
            "qemu-storage-daemon",
            *(["--object", text(**given)] if secret else []),
            *["--blockdev", text(**node), "--export", f'{shown[:-1]},"allow-other":"off"}}'],
            *["--pidfile", f"{directory}/pid"],
        ],
        [
            *["losetup", "--find", "--show", "--nooverlap", *(["--read-only"] if ro else []), f"{directory}/volume"],
        ],
    ]


def case(
    name: str,
    info: dict[str, Any],
    place: msgspec.Struct,
    options: dict[str, Any],
    *,
    secret: bool = False,
    encoded: bool = False,
    ro: bool = False,
    disconnect: Sequence[Sequence[str]] = (
        ("blockdev", "--flushbufs", "{world}/dev/loop0"),
        ("losetup", "--detach", "{world}/dev/loop0"),
    ),
) -> Case:
    driver = info["driverVolumeType"]
    return Case(
        name,
        lambda _world: info,
        connect=opening(directory_of(driver, place), options, secret=secret, encoded=encoded, ro=ro),
        disconnect=disconnect,
        path=f"{{world}}/dev/disk/by-id/quartermaster-{info['data']['volumeId']}",
        tools=TOOLS,
        prepare=prepare,
        options={"clients": {driver: "userspace"}, "initiator": "iqn.2026-01.test:host"},
        stub=daemons_in,
    )


CASES = [
    case(
        "nbd userspace",
        {"driverVolumeType": "NBD", "data": {"host": "192.0.2.9", "export": "disk", "volumeId": "n1"}},
        NbdPlace("192.0.2.9", 10809, "", "disk"),
        {
            "driver": "nbd",
            "server": {"type": "inet", "host": "192.0.2.9", "port": "10809"},
            "export": "disk",
            "reconnect-delay": 120,
        },
    ),
    case(
        "nbd userspace socket to read",
        {
            "driverVolumeType": "NBD",
            "data": {"socket": "/run/nbd", "export": "disk", "volumeId": "n1", "accessMode": "ro"},
        },
        NbdPlace("", 0, "/run/nbd", "disk", read_only=True),
        {
            "driver": "nbd",
            "server": {"type": "unix", "path": "/run/nbd"},
            "export": "disk",
            "reconnect-delay": 120,
        },
        ro=True,
    ),
    case(
        "iscsi userspace",
        {
            "driverVolumeType": "ISCSI",
            "data": {
                "targetPortal": PORTAL,
                "targetIqn": IQN,
                "targetLun": "3",
                "volumeId": "i1",
                "authUsername": "host-1",
                "authPassword": CANARY,
            },
        },
        IscsiUserspacePlace((IscsiPath(PORTAL, IQN, 3),)),
        {
            "driver": "iscsi",
            "transport": "tcp",
            "portal": PORTAL,
            "target": IQN,
            "lun": 3,
            "initiator-name": "iqn.2026-01.test:host",
            "user": "host-1",
            "password-secret": "secret",
        },
        secret=True,
    ),
]
