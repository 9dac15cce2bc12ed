"""The kernel's own NFS server. It exports a file system in memory, and forgets its clients after seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.hostlab.programs import alive, load, run, wait_for

SERVER = "127.0.0.1"
CONTROL = Path("/proc/fs/nfsd")
EXPORTED = Path("/srv/nfs")
VERSIONS = ("4.2", "4.1", "4.0")
GRACE_S = 10  # the shortest that the kernel takes


class NfsServer:
    """Each of the names is a directory that clients mount as SERVER:/NAME."""

    def __init__(self, names: Sequence[str] = ("one", "two")) -> None:
        load("nfsd", "nfs", "nfsv4")
        if not EXPORTED.is_mount():
            EXPORTED.mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "exported", EXPORTED)
            run("mount", "-t", "nfsd", "nfsd", CONTROL)
        for name in names:
            (EXPORTED / name).mkdir(exist_ok=True)
        # The root of what is exported, by name: the one that the kernel would make up lies on a file system of layers.
        options = "rw,insecure,no_root_squash,no_subtree_check,crossmnt"
        Path("/etc/exports").write_text(f"{EXPORTED} *({options},fsid=0)\n")
        self._options: list[str] = []

    def start(self, versions: Sequence[str] = VERSIONS) -> None:
        refused = [option for one in (*VERSIONS, "3") if one not in versions for option in ("--no-nfs-version", one)]
        self._options = [option for one in versions for option in ("--nfs-version", one)] + refused
        for name in ("nfsv4leasetime", "nfsv4gracetime"):
            (CONTROL / name).write_text(f"{GRACE_S}\n")
        run("exportfs", "-r")
        if not alive("rpc.mountd"):
            run("rpc.mountd", "--no-nfs-version", "3")
            wait_for(lambda: alive("rpc.mountd"))
        self.start_again()
        # Nobody has files open from before: no need to wait for them to say so.
        (CONTROL / "v4_end_grace").write_text("Y\n")

    def stop(self) -> None:
        run("rpc.nfsd", "0")

    def start_again(self) -> None:
        """As after a crash: who had files open says so before anybody gets new ones."""
        run("rpc.nfsd", *self._options, "4")


def nfs_mounts() -> dict[str, str]:
    """What is mounted of the server, with the version that is spoken."""
    found = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        source, _, kind, options = line.split()[:4]
        if kind in ("nfs", "nfs4"):
            words = dict(word.partition("=")[::2] for word in options.split(","))
            found[source] = words["vers"]
    return found
