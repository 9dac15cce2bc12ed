"""The guest's root: the machine's own file system, read-only, under the packages of the lab and a layer of memory.

By system calls and not by programs: starting one is what a guest is slow at.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

READ_ONLY, MOVE = 1, 0x2000
FINIT_MODULE = 313  # on x86_64, the only machine that Debian has this kernel for
BASE = Path("/mnt")  # any directory that is there, on the root that is to be left

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", *, data: str = "", flags: int = 0) -> None:
    words = (source.encode(), target.encode(), kind.encode(), flags, data.encode())
    require(_libc.mount(*words), f"mount {target}")


def load_module(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    require(_libc.syscall(FINIT_MODULE, descriptor, b"", 0), f"load {path.name}")
    os.close(descriptor)


def require(result: int, verb: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {verb}: {os.strerror(number)}")


def share(name: str, target: str, path: str, *, kind: str, flags: int = 0) -> None:
    """A directory of the machine below: by its path, or by the name that an emulated machine has for it."""
    if kind == "hostfs":
        mount(name, target, kind, data=path, flags=flags)
    else:
        cache = "loose" if flags & READ_ONLY else "none"
        mount(name, target, "9p", data=f"trans=virtio,version=9p2000.L,msize=262144,cache={cache}", flags=flags)


def enter_root(layer: str, exchange: str, checkout: str, *, kind: str = "hostfs") -> None:
    """Afterwards / is the new root; the directory that both sides share is /run/exchange."""
    mount("memory", str(BASE), "tmpfs")
    for name in ("layer", "upper", "work", "root"):
        (BASE / name).mkdir()
    share("layer", str(BASE / "layer"), layer, kind=kind, flags=READ_ONLY)
    modules = BASE / "layer/usr/lib/modules" / os.uname().release / "kernel"
    load_module(modules / "fs/overlayfs/overlay.ko")
    load_module(modules / "fs/configfs/configfs.ko")
    layers = f"lowerdir={BASE}/layer:/,upperdir={BASE}/upper,workdir={BASE}/work"
    mount("root", str(BASE / "root"), "overlay", data=layers)
    os.chdir(BASE / "root")
    mount("proc", "proc", "proc")
    mount("sysfs", "sys", "sysfs")
    mount("configfs", "sys/kernel/config", "configfs")
    mount("devices", "dev", "devtmpfs")
    for name in ("dev/pts", "dev/shm"):
        Path(name).mkdir(exist_ok=True)
    mount("devpts", "dev/pts", "devpts")
    for name in ("dev/shm", "run", "tmp"):
        mount("memory", name, "tmpfs")
    # Somebody may have cloned the project into a directory for temporary files.
    if not (here := Path(checkout.lstrip("/"))).exists():
        here.mkdir(parents=True)
        share("checkout", str(here), checkout, kind=kind, flags=READ_ONLY)
    Path("run/exchange").mkdir()
    share("exchange", "run/exchange", exchange, kind=kind)
    mount(".", "/", flags=MOVE)
    os.chroot(".")
    os.chdir("/")
