"""What a volume's data path costs without the kernel's clients: fio on our device, and on the bare target beside it.

The bare target is the same server, spoken to by fio itself where it knows the protocol. It has no iSCSI: there the file
behind the target stands for it, so that the protocol's own cost is in the difference.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.output import output_of
from bench.report import Plot, Table, show
from bench.running import ROOT, as_installed, say
from quartermaster.connectors import open_connector
from tests.connectors.ceph import POOL, USER, ceph_cluster
from tests.connectors.servers import iscsi_target, nbd_server

PATTERNS = {
    "sequential read": ("read", "1M", "8"),
    "sequential write": ("write", "1M", "8"),
    "4k random read": ("randread", "4k", "16"),
    "4k random write": ("randwrite", "4k", "16"),
}
FIO_OVER_S = 60.0
GLUSTER_S = 900.0


class Scale(msgspec.Struct, frozen=True):
    fio_s: float  # of each measurement
    image_mib: int


class Bench(msgspec.Struct, frozen=True):
    """A server that runs: how a connector is told of it, and how fio speaks to it."""

    info: dict[str, Any]
    bare: tuple[str, ...]
    bare_name: str
    environment: dict[str, str] = {}


class Measured(msgspec.Struct, frozen=True):
    route: str
    bare_name: str
    attach_ms: float
    bare: dict[str, float]  # pattern → MiB/s, or operations a second
    ours: dict[str, float]


async def run(directory: Path, counts: Counts) -> Part:
    found = []
    scale = Scale(counts.fio_s, counts.image_mib)
    for route in counts.routes:
        say(f"the data path of {route}")
        place = directory / f"data-{route.lower()}"
        place.mkdir()
        found.append(await (inside_gluster(place, scale) if route == "GLUSTERFS" else measure(place, route, scale)))
    return summarise(found)


async def measure(directory: Path, route: str, scale: Scale) -> Measured:
    with SERVERS[route](directory, scale.image_mib) as bench:
        connector = open_connector(directory=directory / "state", clients={route: "userspace"}, timeout_s=60)
        began = time.perf_counter()
        attachment = await connector.connect(bench.info)
        attach_ms = 1000 * (time.perf_counter() - began)
        try:
            device = ("--ioengine=libaio", "--direct=1", f"--filename={attachment.path}")
            ours = {name: await fio(directory, device, pattern, scale) for name, pattern in PATTERNS.items()}
        finally:
            await connector.disconnect(bench.info)
        bare = {
            name: await fio(directory, bench.bare, pattern, scale, environment=bench.environment)
            for name, pattern in PATTERNS.items()
        }
    return Measured(route, bench.bare_name, attach_ms, bare, ours)


async def fio(
    directory: Path,
    place: Sequence[str],
    pattern: Sequence[str],
    scale: Scale,
    *,
    environment: Mapping[str, str] | None = None,
) -> float:
    """MiB a second of whole megabytes, or operations a second of small ones."""
    kind, block, depth = pattern
    argv = (
        *("fio", "--name=bench", "--output-format=json", "--thread", *place, f"--rw={kind}", f"--bs={block}"),
        *(f"--iodepth={depth}", f"--size={scale.image_mib}M", "--time_based", f"--runtime={1000 * scale.fio_s:.0f}ms"),
    )
    output = await output_of(
        argv,
        what=f"fio {kind} on {' '.join(place)}",
        timeout_s=scale.fio_s + FIO_OVER_S,
        cwd=directory,
        environment={**os.environ, **(environment or {})},
    )
    return figure_of(output.decode(), kind)


def figure_of(output: str, kind: str) -> float:
    """fio may say something before its document."""
    job = json.loads(output[output.index("{") :])["jobs"][0]["read" if kind.endswith("read") else "write"]
    return float(job["iops"]) if kind.startswith("rand") else job["bw_bytes"] / 2**20


def image(directory: Path, mib: int) -> Path:
    """Written once, so that reads find something."""
    file = directory / "disk.img"
    with file.open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(1 << 20))
    return file


@contextmanager
def serve_nbd(directory: Path, mib: int) -> Iterator[Bench]:
    with nbd_server(image(directory, mib)) as port:
        data = {"host": "127.0.0.1", "port": port, "export": "disk", "volumeId": "bench"}
        bare = ("--ioengine=nbd", f"--uri=nbd://127.0.0.1:{port}/disk")
        yield Bench({"driverVolumeType": "NBD", "data": data}, bare, "fio's NBD client")


@contextmanager
def serve_iscsi(directory: Path, mib: int) -> Iterator[Bench]:
    file = image(directory, mib)
    with iscsi_target(file) as target:
        data = {
            "targetPortal": target.portal,
            "targetIqn": target.iqn,
            "targetLun": str(target.lun),
            "volumeId": "bench",
        }
        bare = ("--ioengine=libaio", "--direct=1", f"--filename={file}")
        yield Bench({"driverVolumeType": "ISCSI", "data": data}, bare, "the file behind the target")


@contextmanager
def serve_rbd(directory: Path, mib: int) -> Iterator[Bench]:
    with ceph_cluster(directory / "ceph") as cluster:
        name = cluster.make_image("bench", mib=mib)
        data = {"name": name, "hosts": [cluster.monitor], "auth_username": USER}
        data |= {"keyring": cluster.key, "volumeId": "bench"}
        bare = ("--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", "--rbdname=bench")
        environment = {"CEPH_CONF": str(cluster.directory / "ceph.conf")}
        yield Bench({"driverVolumeType": "RBD", "data": data}, bare, "fio's RBD client", environment)


@contextmanager
def serve_gluster(directory: Path, mib: int) -> Iterator[Bench]:
    """In namespaces of its own, which end with this process."""
    from tests.connectors.inside_gluster import ADDRESS, start_server

    export = start_server(directory)
    image(directory, mib).rename(directory / "brick" / "bench")
    data = {"export": export, "name": "bench", "volumeId": "bench"}
    bare = ("--ioengine=gfapi_async", "--volume=gv0", f"--brick={ADDRESS}", "--filename=bench")
    yield Bench({"driverVolumeType": "GLUSTERFS", "data": data}, bare, "fio's GlusterFS client")


SERVERS: dict[str, Callable[[Path, int], AbstractContextManager[Bench]]] = {
    "NBD": serve_nbd,
    "ISCSI": serve_iscsi,
    "RBD": serve_rbd,
    "GLUSTERFS": serve_gluster,
}


async def inside_gluster(directory: Path, scale: Scale) -> Measured:
    namespaces = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    given = (str(directory), "GLUSTERFS", msgspec.json.encode(scale).decode())
    argv = (*namespaces, "--propagation", "private", sys.executable, "-m", "bench.connectors.data", *given)
    output = await output_of(
        argv,
        what="the data path of GlusterFS",
        timeout_s=GLUSTER_S,
        cwd=ROOT,
        environment=as_installed(directory.parent),
    )
    return msgspec.json.decode(output.splitlines()[-1], type=Measured)


def summarise(found: Sequence[Measured]) -> Part:
    rows = []
    for each in found:
        rows.append((each.route, each.bare_name, "", *(unit(name, each.bare[name]) for name in PATTERNS)))
        cells = (f"{unit(name, each.ours[name])} ({share(each, name):.0f} %)" for name in PATTERNS)
        rows.append((each.route, "our device", f"{show(each.attach_ms)} ms", *cells))
    note = (
        "Userspace routes: qemu-storage-daemon opens the volume, FUSE shows it as a file, a loop device is on the file."
    )
    table = Table("Data path, beside the bare target", ("route", "what", "attach", *PATTERNS), tuple(rows), note)
    series = {name: tuple(share(each, name) for each in found) for name in PATTERNS}
    labels = tuple(each.route for each in found)
    plot = Plot("connectors-data", "Data path of userspace routes", "% of the bare target", labels, series, limit=100.0)
    return Part((), (table,), (plot,))


def share(each: Measured, name: str) -> float:
    return 100 * each.ours[name] / each.bare[name]


def unit(name: str, figure: float) -> str:
    return f"{show(figure)} {'op/s' if 'random' in name else 'MiB/s'}"


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[3], type=Scale)
    print(msgspec.json.encode(asyncio.run(measure(Path(sys.argv[1]), sys.argv[2], given))).decode())
