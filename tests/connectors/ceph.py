"""A real Ceph cluster on loopback: one monitor, one OSD that keeps everything in memory and, for files, one MDS.

It is as small as a cluster can be that serves RBD and CephFS; what makes Ceph reliable is not in it. There is no
manager, so its health is never good, and nobody asks.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.connectors.servers import running, wait_for

POOL = "volumes"
FILES = "files"
USER = "host-1"
PORT = 6789  # on another port a client tries both of Ceph's protocols, and waits for ever where the key is wrong

CONFIGURATION = """[global]
fsid = {fsid}
mon_host = [v2:{address}:3300,v1:{address}:6789]
public_addr = {address}
ms_bind_ipv6 = false
auth_allow_insecure_global_id_reclaim = false
run_dir = {directory}
admin_socket = {directory}/$name.asok
log_file = {directory}/$name.log
keyring = {directory}/$name.keyring
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[mon]
mon_data = {directory}/mon
keyring = {directory}/mon.keyring
[osd]
osd_data = {directory}/osd
osd_objectstore = memstore
memstore_device_bytes = 1073741824
[mds]
mds_data = {directory}/mds
"""


@dataclass(frozen=True)
class Ceph:
    directory: Path
    fsid: str
    address: str

    @property
    def port(self) -> int:
        return PORT

    @property
    def monitor(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def key(self) -> str:
        """Of the user that volumes are attached as."""
        return self("auth", "print-key", f"client.{USER}").strip()

    def __call__(self, *words: str, stdin: str = "") -> str:
        return self.tool("ceph", "--connect-timeout", "30", *words, stdin=stdin)

    def tool(self, name: str, *words: str, stdin: str = "") -> str:
        argv = [name, "--conf", str(self.directory / "ceph.conf"), *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def make_image(self, name: str, *, mib: int) -> str:
        self.tool("rbd", "create", "--size", str(mib), f"{POOL}/{name}")
        return f"{POOL}/{name}"


@contextmanager
def ceph_cluster(directory: Path, *, files: bool = False) -> Iterator[Ceph]:
    """With the pool "volumes" for images and the user "host-1"; with `files`, a file system of that name."""
    directory.mkdir()
    fsid = Path("/proc/sys/kernel/random/uuid").read_text().strip()
    cluster = Ceph(directory, fsid, _address())
    text = CONFIGURATION.format(fsid=fsid, address=cluster.address, directory=directory)
    (directory / "ceph.conf").write_text(text)
    with ExitStack() as stack:
        _start_monitor(cluster, stack)
        _start_osd(cluster, stack)
        cluster("osd", "pool", "create", POOL, "4")
        cluster.tool("rbd", "pool", "init", POOL)
        if files:
            _start_files(cluster, stack)
        rights = ("mon", "profile rbd, allow r", "osd", "allow rwx", "mds", "allow rw")
        cluster("auth", "get-or-create", f"client.{USER}", *rights)
        yield cluster


def _start_monitor(cluster: Ceph, stack: ExitStack) -> None:
    directory = cluster.directory
    ring, admin, map_file = (str(directory / name) for name in ("mon.keyring", "client.admin.keyring", "monmap"))
    everything = [part for kind in ("mon", "osd", "mds", "mgr") for part in ("--cap", kind, "allow *")]
    _run("ceph-authtool", "-C", ring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _run("ceph-authtool", "-C", admin, "--gen-key", "-n", "client.admin", *everything)
    _run("ceph-authtool", ring, "--import-keyring", admin)
    addresses = f"[v2:{cluster.address}:3300,v1:{cluster.address}:{PORT}]"
    _run("monmaptool", "--create", "--fsid", cluster.fsid, "--addv", "a", addresses, map_file)
    cluster.tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", map_file, "--keyring", ring)
    stack.enter_context(running(["ceph-mon", "--conf", str(directory / "ceph.conf"), "-i", "a", "-f"]))
    cluster("mon", "stat")


def _start_osd(cluster: Ceph, stack: ExitStack) -> None:
    identity = Path("/proc/sys/kernel/random/uuid").read_text().strip()
    secret = _run("ceph-authtool", "--gen-print-key").strip()
    cluster("osd", "new", identity, "0", "-i", "-", stdin=json.dumps({"cephx_secret": secret}))
    (cluster.directory / "osd").mkdir()
    keyring = str(cluster.directory / "osd.0.keyring")
    _run("ceph-authtool", "-C", keyring, "-n", "osd.0", "--add-key", secret)
    cluster.tool("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", identity)
    stack.enter_context(running(["ceph-osd", "--conf", str(cluster.directory / "ceph.conf"), "-i", "0", "-f"]))
    wait_for(lambda: json.loads(cluster("osd", "stat", "--format", "json"))["num_up_osds"] == 1, seconds=90)


def _start_files(cluster: Ceph, stack: ExitStack) -> None:
    (cluster.directory / "mds").mkdir()
    rights = ("mon", "profile mds", "mds", "allow *", "osd", "allow *")
    keyring = cluster("auth", "get-or-create", "mds.a", *rights)
    (cluster.directory / "mds.a.keyring").write_text(keyring)
    for name in ("metadata", "data"):
        cluster("osd", "pool", "create", f"{FILES}-{name}", "4")
    cluster("fs", "new", FILES, f"{FILES}-metadata", f"{FILES}-data")
    stack.enter_context(running(["ceph-mds", "--conf", str(cluster.directory / "ceph.conf"), "-i", "a", "-f"]))
    wait_for(lambda: "up:active" in cluster("mds", "stat"), seconds=90)


def _address() -> str:
    """One of the loopback's for every run: the ports are always the same."""
    pid = os.getpid()
    return f"127.{100 + (pid >> 16) % 100}.{pid >> 8 & 255}.{pid & 255 or 255}"


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout
