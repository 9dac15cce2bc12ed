"""The first root of an emulated machine: a shell, and the modules by which it sees the machine below."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.hostlab import kernel_release

MODULES = ("virtio_pci", "9p", "9pnet_virtio")
DIRECTORIES = ("bin", "dev", "machine", "modules")
SCRIPT = """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devices /dev
for module in {modules}; do /bin/busybox insmod /modules/$module; done
/bin/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose machine /machine
exec /bin/busybox switch_root /machine {program}
"""


def make_initrd(layer: Path, program: Sequence[str]) -> bytes:
    """An archive that the kernel unpacks into memory, with the program as its last word."""
    modules = list(ordered(layer / "usr/lib/modules" / kernel_release(layer)))
    script = SCRIPT.format(modules=" ".join(path.name for path in modules), program=shlex.join(program))
    entries = [(name, 0o040755, b"") for name in DIRECTORIES]
    entries += [("init", 0o100755, script.encode()), ("bin/busybox", 0o100755, busybox(layer).read_bytes())]
    entries += [(f"modules/{path.name}", 0o100644, path.read_bytes()) for path in modules]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(entry(number, *each) for number, each in enumerate(entries, 1))


def busybox(layer: Path) -> Path:
    return next(path for path in (layer / "usr/bin/busybox", layer / "bin/busybox") if path.exists())


def ordered(directory: Path) -> Iterator[Path]:
    """The files of the modules, each after those that it needs."""
    needs = {}
    for line in (directory / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).stem] = [path, *others.split()]
    seen: dict[str, None] = {}
    for name in MODULES:
        # What is not a module is in the kernel itself.
        seen |= dict.fromkeys(reversed(needs.get(name, [])))
    return (directory / path for path in seen)


def entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    """In the kernel's own format: thirteen numbers, the name and the data, each to a multiple of four."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return padded(header) + padded(data)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
