"""Fetches the kernel and the programs of the host lab (tests/hostlab), once per machine.

    python -m tools.hostlab build          fetches them unless they are here
    python -m tools.hostlab path           shows where they are
    python -m tools.hostlab build --qemu   the same of the lab with an emulated machine

The host lab boots a User-Mode Linux on the file system of this machine, read-only, with one more layer over it: the
Debian packages of tests/hostlab/packages.txt and whatever they need that is not installed here. They are unpacked into
the cache and not installed, for a host that tests run on has no use for another NFS server or multipathd. A second
layer (tests/hostlab/qemu/packages.txt) has Debian's own kernel, and the program that emulates a machine for it.
"""

import argparse
import fcntl
import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.setup import ROOT, SetupError, cache_directory, run

PACKAGES = ROOT / "tests" / "hostlab" / "packages.txt"
REGISTERS = ROOT / "tests" / "hostlab" / "xstate.c"
QEMU_PACKAGES = ROOT / "tests" / "hostlab" / "qemu" / "packages.txt"
FORMAT = "1"  # of the layer; another one makes everybody build it anew
UNPACK_TIMEOUT_S = 300
MERGED = ("bin", "lib", "lib64", "sbin")  # links into usr on the machine below
LEFT_OUT = ("./usr/share/doc", "./usr/share/man", "./usr/share/locale")


def say(message: str) -> None:
    print(f"hostlab: {message}", file=sys.stderr, flush=True)


def package_names(packages: Path) -> list[str]:
    lines = packages.read_text().splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def layer_directory(packages: Path = PACKAGES) -> Path:
    digest = hashlib.sha256(" ".join([FORMAT, *package_names(packages), REGISTERS.read_text()]).encode()).hexdigest()
    return cache_directory() / f"hostlab-{digest[:12]}"


def kernel_release(layer: Path) -> str:
    return next((layer / "usr/lib/modules").iterdir()).name


def preloaded(layer: Path) -> Path:
    """What its kernel needs on processors that are younger than it."""
    return layer / "usr/lib/xstate.so"


def build(packages: Path = PACKAGES) -> Path:
    """The layer, which is made if it is not here. Two builds at once make it once."""
    layer = layer_directory(packages)
    if layer.exists():
        return layer
    layer.parent.mkdir(parents=True, exist_ok=True)
    with (layer.parent / "hostlab.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layer.exists():
            started = time.monotonic()
            say(f"fetching Debian packages into {layer}")
            with tempfile.TemporaryDirectory(dir=layer.parent, prefix=".hostlab-") as scratch:
                archives, staged = Path(scratch) / "archives", Path(scratch) / "layer"
                download(archives, package_names(packages))
                say(f"unpacking {len(list(archives.glob('*.deb')))} packages")
                unpack(archives, staged)
                run(["gcc", "-O2", "-shared", "-fPIC", "-o", preloaded(staged), REGISTERS])
                staged.rename(layer)
            say(f"ready after {time.monotonic() - started:.0f} s")
    return layer


def download(archives: Path, names: list[str]) -> None:
    """The packages with all that they need, but for what this machine has installed."""
    if not shutil.which("apt-get"):
        raise SetupError("the host lab needs a Debian system: its kernel is the package user-mode-linux.")
    (archives / "partial").mkdir(parents=True)
    # --reinstall: also those that are installed here, which somebody may remove while the layer stays.
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "--download-only", "--reinstall"]
    places = ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    fetch: list[str | Path] = [*command, *places, *names]
    try:
        run(fetch, DEBIAN_FRONTEND="noninteractive")
    except SetupError:
        say("the package lists may be old: updating them")
        run(["apt-get", "update"], DEBIAN_FRONTEND="noninteractive")
        run(fetch, DEBIAN_FRONTEND="noninteractive")


def unpack(archives: Path, layer: Path) -> None:
    for name in MERGED:
        (layer / "usr" / name).mkdir(parents=True)
        (layer / name).symlink_to(f"usr/{name}")
    options = ["--extract", "--keep-directory-symlink", "--directory", str(layer)]
    options += [f"--exclude={path}" for path in LEFT_OUT]
    for archive in sorted(archives.glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as reader:
            done = subprocess.run(["tar", *options], stdin=reader.stdout, timeout=UNPACK_TIMEOUT_S, check=False)
        if done.returncode != 0 or reader.returncode != 0:
            raise SetupError(f"cannot unpack {archive.name}")
    make_links_relative(layer)
    modules = layer / "usr/lib/modules"
    modules.mkdir(exist_ok=True)
    for release in (layer / "usr/lib/uml/modules").glob("*"):
        release.rename(modules / release.name)
    libraries = ":".join(str(path) for path in (layer / "usr/lib").glob("*-linux-gnu*"))
    run([layer / "usr/sbin/depmod", "--basedir", layer, kernel_release(layer)], LD_LIBRARY_PATH=libraries)
    for image in (layer / "boot").glob("vmlinuz-*"):
        image.with_name("vmlinux").write_bytes(kernel_inside(image.read_bytes()))


def kernel_inside(image: bytes) -> bytes:
    """Of an image that unpacks itself, which is slow in an emulated machine. Its header says where the kernel lies."""
    sectors = image[0x1F1]
    offset, length = struct.unpack_from("<II", image, 0x248)
    begin = (sectors + 1) * 512 + offset
    return lzma.LZMADecompressor().decompress(image[begin : begin + length])


def make_links_relative(layer: Path) -> None:
    """The first program of the guest runs before the layer lies over the machine's root."""
    for directory, directories, files in os.walk(layer):
        for name in [*directories, *files]:
            path = Path(directory) / name
            if path.is_symlink() and os.path.isabs(target := os.readlink(path)):
                inside = layer / target.lstrip("/")
                if os.path.lexists(inside):
                    path.unlink()
                    path.symlink_to(os.path.relpath(inside, directory))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.hostlab")
    parser.add_argument("command", choices=["build", "path"])
    parser.add_argument("--qemu", action="store_true", help="of the lab with an emulated machine")
    arguments = parser.parse_args()
    packages = QEMU_PACKAGES if arguments.qemu else PACKAGES
    try:
        if arguments.command == "build":
            build(packages)
        else:
            print(layer_directory(packages))
    except (SetupError, OSError, subprocess.SubprocessError) as error:
        say(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
