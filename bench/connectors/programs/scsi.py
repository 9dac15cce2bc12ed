"""What looks at SCSI disks, and what writes to their attributes in sysfs."""

from __future__ import annotations

import re
from pathlib import Path

from bench.connectors.kernel import Kernel, Target, page_83
from bench.connectors.programs.answer import Answer, failed, said


def tee(kernel: Kernel, arguments: list[str], stdin: str) -> Answer:
    """An attribute of sysfs is written."""
    path = arguments[-1]
    if not (kernel.root / path.lstrip("/")).exists():
        return failed(1, f"tee: {path}: No such file or directory")
    if found := re.search(r"/host(\d+)/scan$", path):
        kernel.scan(int(found[1]), int(stdin.split()[2]))
    elif found := re.search(r"/(sd[a-z]+)/device/delete$", path):
        kernel.delete(found[1])
    elif path.endswith("/port_rescan"):
        _show_ports(kernel, kernel.root / path.lstrip("/"))
    elif path.endswith("/unit_add"):
        _add_unit(kernel, kernel.root / path.lstrip("/"), stdin.strip())
    elif path.endswith("/unit_remove"):
        (kernel.root / path.lstrip("/")).with_name(stdin.strip()).rmdir()
    return said(stdin)


def _show_ports(kernel: Kernel, attribute: Path) -> None:
    for target in _ports(kernel):
        directory = attribute.parent / f"0x{target.name}"
        directory.mkdir(exist_ok=True)
        for name in ("unit_add", "unit_remove"):
            (directory / name).write_text("")


def _add_unit(kernel: Kernel, attribute: Path, unit: str) -> None:
    attribute.with_name(unit).mkdir(exist_ok=True)
    target = kernel.targets[attribute.parent.name.removeprefix("0x")]
    kernel.scan(target.host, int(unit, 16) >> 48)


def _ports(kernel: Kernel) -> list[Target]:
    return [each for each in kernel.targets.values() if each.bus]


def sg_vpd(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    """Asked over the wire: what the storage system has there by now."""
    known = kernel.lun_of(Path(arguments[-1]).name)
    if known is None or Path(arguments[-1]).name not in kernel.disks():
        return failed(15, f"sg_vpd: error opening file: {arguments[-1]}: No such file or directory")
    return Answer(out=page_83(known.wwid))


def scsi_id(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    path = (kernel.root / arguments[-1].lstrip("/")).resolve()
    known = kernel.lun_of(path.name)
    return said(f"3{known.wwid}\n") if known is not None else failed(1, "scsi_id: no such device")


def blockdev(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    name = Path(arguments[-1]).name
    if name in kernel.unflushable or name not in kernel.disks():
        return failed(1, f"blockdev: ioctl error on BLKFLSBUF: {arguments[-1]}: Input/output error")
    return Answer()


def multipathd(_kernel: Kernel, _arguments: list[str], _stdin: str) -> Answer:
    return failed(1, "error connecting to multipathd: no such daemon")
