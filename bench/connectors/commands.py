"""How many programs an attach and a detach start, and why each of ours does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.host import FakeHost, Ran, fake_host
from bench.connectors.kernel import Lun
from bench.connectors.library import BRICK, OURS, start_library
from bench.connectors.volumes import (
    PCI,
    PORT,
    add_iscsi,
    connect,
    disconnect,
    fc_data,
    iscsi_data,
    nfs_data,
    rbd_data,
    wwid,
)
from bench.report import Bar, Table
from bench.running import require

KINDS = {"iscsi": "iSCSI", "fibre_channel": "Fibre Channel", "rbd": "RBD", "nfs": "NFS"}
SESSION = "iqn.2026-01.org.example:target-1"

# A command of ours that is not here fails the benchmark: somebody has to say what it is for.
REASONS: Mapping[str, str] = {
    "iscsiadm login": "there is no session to the target yet; its record is a file and takes no command",
    "iscsiadm logout": "no other volume uses the session, and this library made it",
    "tee scan": "shows this LUN and no other; a child does it, since a storage system may never answer",
    "tee delete": "the kernel forgets the disk; a child does it, since a disk may never answer",
    "sg_vpd": "the disk itself says which volume it is, before it is handed out, flushed or deleted",
    "blockdev": "what is in the buffers is on the disk before it goes",
    "rbd map": "the kernel maps the image",
    "rbd unmap": "the kernel gives the image up",
    "mount": "mounts the export, for all of its volumes",
    "umount": "nobody uses the mount any more",
}


class Lists(msgspec.Struct, frozen=True):
    """What one library ran for one volume."""

    connect: tuple[Ran, ...]
    disconnect: tuple[Ran, ...]


async def run(directory: Path, counts: Counts) -> Part:
    names = (OURS, BRICK) if counts.peer else (OURS,)
    found = {name: {kind: await measure(directory, name, kind) for kind in KINDS} for name in names}
    return summarise(found)


async def measure(directory: Path, name: str, kind: str) -> Lists:
    async with fake_host(directory, f"commands-{kind}-{name}") as host, start_library(directory, host, name) as running:
        data = declare(host, kind)
        host.ran.clear()  # of what was run to load it
        await running.well(connect(kind, data))
        connecting = tuple(host.ran)
        host.ran.clear()
        await running.well(disconnect(kind, data))
        return Lists(connecting, tuple(host.ran))


def declare(host: FakeHost, kind: str) -> dict[str, object]:
    if kind == "iscsi":
        return iscsi_data(add_iscsi(host.kernel, 1))
    if kind == "fibre_channel":
        host.kernel.add_port(PORT, {1: Lun(wwid(1))}, bus=PCI)
        return fc_data()
    return rbd_data("volumes/image-1") if kind == "rbd" else nfs_data()


def purpose(argv: Sequence[str]) -> str:
    """The key of its reason."""
    program = argv[0]
    if program == "iscsiadm":
        return next((f"iscsiadm {word}" for word in ("login", "logout") if f"--{word}" in argv), "iscsiadm")
    if program == "tee":
        return f"tee {argv[-1].rpartition('/')[2]}"
    if program == "rbd":
        return next((f"rbd {word}" for word in ("map", "unmap") if word in argv), "rbd")
    return program


def shown(argv: Sequence[str]) -> str:
    """Without what is only of this run."""
    text = shlex.join(argv)
    text = re.sub(r"\S*/hosts/[^/ ]+", "…", text)
    return text.replace(SESSION, "IQN").replace("192.0.2.2:3260", "PORTAL").replace(wwid(1), "WWID")


def summarise(found: Mapping[str, Mapping[str, Lists]]) -> Part:
    ours, peers = found[OURS], found.get(BRICK, {})
    rows, reasons, theirs = [], [], []
    for kind, word in KINDS.items():
        for verb in ("connect", "disconnect"):
            mine = getattr(ours[kind], verb)
            other = getattr(peers[kind], verb) if kind in peers else None
            rows.append((word, verb, str(len(mine)), "" if other is None else str(len(other))))
            for each in mine:
                key = purpose(each.argv)
                require(key in REASONS, f"nobody says why a {verb} over {word} runs {shown(each.argv)}")
                reasons.append((word, verb, shown(each.argv), REASONS[key]))
            theirs += [(word, verb, shown(each.argv)) for each in other or ()]
    total = sum(len(each.connect) + len(each.disconnect) for each in ours.values())
    brick = sum(len(each.connect) + len(each.disconnect) for each in peers.values())
    bars = (Bar("host commands of all four, beside os-brick's", float(total), "at most", float(brick), "commands"),)
    tables = [
        Table("Host commands per attach and detach", ("volume", "call", OURS, BRICK), tuple(rows)),
        Table(f"Commands of {OURS}, and why", ("volume", "call", "command", "why"), tuple(reasons)),
    ]
    if theirs:
        tables.append(Table(f"Commands of {BRICK}", ("volume", "call", "command"), tuple(theirs)))
    return Part(bars if peers else (), tuple(tables))
