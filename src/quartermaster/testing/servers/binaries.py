"""Finds the programs of real servers, and says how to get one that is missing.

The versions stand here, once: the build tool, the tests and the documentation read them from this module. A program
is looked for in KUBEBUILDER_ASSETS (what users of Kubernetes test tools already have), then in the cache that
`make setup` fills, then on the PATH.
"""

import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from quartermaster.support.errors import QuartermasterError

ETCD_VERSION = "3.6.16"
KUBERNETES_VERSION = "1.36.3"
OLDEST_ETCD = "3.4"

PROGRAMS = {
    "etcd": ("etcd", "etcdctl"),
    "kubernetes": ("kube-apiserver", "kube-controller-manager", "kubectl"),
}
VERSIONS = {"etcd": ETCD_VERSION, "kubernetes": KUBERNETES_VERSION}

BUILD_WAIT_S = 25 * 60.0


class ServerMissingError(QuartermasterError):
    """The program of a server is not on this machine."""

    reason = "ServerMissing"


def servers_directory() -> Path:
    """Where built servers are kept, outside of any clone, so that clones share them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartermaster" / "servers"


def server_directory(server: str) -> Path:
    return servers_directory() / f"{server}-{VERSIONS[server]}"


def build_lock_path() -> Path:
    return servers_directory() / "build.lock"


def server_of(program: str) -> str:
    for server, programs in PROGRAMS.items():
        if program in programs:
            return server
    raise ServerMissingError(f"cannot find {program}: no known server has a program of that name")


def is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def find_built(program: str) -> Path | None:
    """The program in KUBEBUILDER_ASSETS or in the cache, in the version that the tests are written for."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    directories = ([Path(assets)] if assets else []) + [server_directory(server_of(program))]
    return next((directory / program for directory in directories if is_executable(directory / program)), None)


def find_program(program: str) -> Path:
    """Path of a server's program, or an error that says how to get it."""
    if built := find_built(program):
        return built
    if on_path := shutil.which(program):
        return Path(on_path)
    server = server_of(program)
    raise ServerMissingError(
        f"cannot find {program}: it is not in KUBEBUILDER_ASSETS, {server_directory(server)} or the PATH",
        hint=f"run `make setup`, or `python -m tools.servers build {server}` for this one alone",
    )


def find_etcd(program: str, version: str) -> Path:
    """etcd or etcdctl of a minor version such as "3.6"; the oldest one comes from the Debian packages."""
    if ETCD_VERSION.startswith(f"{version}."):
        return find_program(program)
    candidates = [Path(directory) / program for directory in os.get_exec_path()]
    for candidate in filter(is_executable, candidates):
        if version_of(candidate).startswith(f"{version}."):
            return candidate
    raise ServerMissingError(
        f"cannot find {program} {version} on the PATH",
        hint="run `make setup`, which installs the Debian packages etcd-server and etcd-client",
    )


def version_of(program: Path) -> str:
    arguments = [str(program), "version" if program.name == "etcdctl" else "--version"]
    environment = os.environ | {"ETCDCTL_API": "3"}
    try:
        shown = subprocess.run(arguments, capture_output=True, text=True, timeout=20, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"[Vv]ersion: v?(\d+\.\d+\.\d+)", shown.stdout)
    return match.group(1) if match else ""


def build_is_running() -> bool:
    """Whether some process is building servers now; the lock is the kernel's, so a killed build does not count."""
    try:
        with build_lock_path().open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def wait_for_build(server: str, progress: Callable[[str], None], timeout_s: float = BUILD_WAIT_S) -> None:
    """Block while the programs of `server` are being built elsewhere; returns at once when they are there.

    It does not raise when they are still missing in the end: whoever needs them calls `find_program`, which does.
    """
    started = time.monotonic()
    reported = started
    while not all(find_built(program) for program in PROGRAMS[server]) and build_is_running():
        now = time.monotonic()
        if now - started > timeout_s:
            return
        if now - reported >= 15:
            progress(f"waiting for the build of {server} {VERSIONS[server]} ({now - started:.0f} s)")
            reported = now
        time.sleep(0.5)
