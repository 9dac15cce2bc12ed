"""The programs of a fake host: what each does to the kernel, whoever calls it.

They know what both libraries say to them and refuse the rest, as the real ones would, by an exit code and a sentence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.connectors.kernel import Kernel, Target, page_83

NO_RECORD, NO_SESSION, REFUSED, THERE = 21, 21, 24, 15


class Answer(msgspec.Struct, frozen=True):
    """`then` is what the program does itself, in the namespace of its caller."""

    code: int = 0
    out: bytes = b""
    err: bytes = b""
    then: tuple[str, ...] = ()


Program = Callable[[Kernel, list[str], str], Answer]


def said(text: str) -> Answer:
    return Answer(out=text.encode())


def failed(code: int, text: str) -> Answer:
    return Answer(code, err=text.encode())


def option(arguments: Sequence[str], *names: str) -> str:
    for place, argument in enumerate(arguments):
        if argument in names and place + 1 < len(arguments):
            return arguments[place + 1]
        for name in names:
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return ""


# iSCSI


def iscsiadm(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    mode = option(arguments, "-m")
    if mode == "session":
        return _log_out(kernel, option(arguments, "-r")) if "-r" in arguments else _sessions(kernel)
    if mode == "discoverydb":
        return said("".join(f"{kind}:\nNo targets found.\n" for kind in ("SENDTARGETS", "iSNS", "STATIC", "FIRMWARE")))
    if mode != "node":
        return failed(NO_RECORD, "iscsiadm: No records found")
    iqn, portal = option(arguments, "-T"), option(arguments, "-p")
    if not iqn:
        return said("".join(f"{path.name.replace(',', ':')},1 {path.parent.name}\n" for path in _records(kernel)))
    record = record_file(kernel, iqn, portal)
    operation = option(arguments, "--op", "-o")
    if operation == "new":
        write_record(kernel, iqn, portal, {"node.name": iqn, "node.startup": "automatic"})
        return said(f"New iSCSI node [{portal} {iqn}] added\n")
    if not record.exists():
        return failed(NO_RECORD, "iscsiadm: No records found")
    if operation == "update":
        write_record(kernel, iqn, portal, read_record(record) | {option(arguments, "-n"): option(arguments, "-v")})
        return Answer()
    if operation == "delete":
        record.unlink()
        record.parent.rmdir()
        return Answer()
    if "--logout" in arguments:
        target = kernel.targets.get(iqn)
        return _log_out(kernel, str(target.number) if target else "0")
    return _log_in(kernel, iqn, portal, read_record(record)) if "--login" in arguments else said(record.read_text())


def _log_in(kernel: Kernel, iqn: str, portal: str, record: dict[str, str]) -> Answer:
    target = kernel.targets.get(iqn)
    if target is None or target.portal != portal:
        return failed(8, f"iscsiadm: Could not login to [portal: {portal}]: connection timed out")
    given = [record.get(f"node.session.auth.{key}") for key in ("authmethod", "username", "password")]
    if target.chap is not None and given != ["CHAP", *target.chap]:
        return failed(
            REFUSED, "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)"
        )
    if kernel.session(iqn):
        return failed(THERE, "iscsiadm: initiator reported error (15 - session exists)")
    kernel.log_in(target)
    return said(f"Login to [iface: default, target: {iqn}, portal: {portal}] successful.\n")


def _log_out(kernel: Kernel, number: str) -> Answer:
    target = next((each for each in kernel.targets.values() if each.portal and str(each.number) == number), None)
    if target is None or not kernel.session(target.name):
        return failed(NO_SESSION, "iscsiadm: No matching sessions found")
    kernel.log_out(target)
    return Answer()


def _sessions(kernel: Kernel) -> Answer:
    found = [each for each in kernel.targets.values() if each.portal and kernel.session(each.name)]
    if not found:
        return failed(NO_SESSION, "iscsiadm: No active sessions.")
    return said("".join(f"tcp: [{each.number}] {each.portal},1 {each.name} (non-flash)\n" for each in found))


def record_file(kernel: Kernel, iqn: str, portal: str) -> Path:
    address, _, port = portal.rpartition(":")
    return kernel.root / "etc/iscsi/nodes" / iqn / f"{address},{port}"


def read_record(file: Path) -> dict[str, str]:
    lines = [line.partition(" = ") for line in file.read_text().splitlines() if not line.startswith("#")]
    return {key: value for key, _, value in lines}


def write_record(kernel: Kernel, iqn: str, portal: str, values: dict[str, str]) -> None:
    file = record_file(kernel, iqn, portal)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))


def _records(kernel: Kernel) -> list[Path]:
    return sorted((kernel.root / "etc/iscsi/nodes").glob("*/*"))


# SCSI


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


# Ceph


def rbd(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    words = arguments[1:] if arguments[0] == "device" else arguments
    if words[0] == "map":
        image = option(words, "--image") or words[1]
        monitors = option(words, "--mon_host")
        return said(kernel.map_image(option(words, "--pool"), image, monitors, option(words, "--id")) + "\n")
    if words[0] in ("showmapped", "list"):
        return said(json.dumps(kernel.images()))
    device = next(word for word in words if word.startswith("/dev/"))
    return Answer() if kernel.unmap_image(device) else failed(22, f"rbd: {device} is not mapped")


# File systems


def mount(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    plain = [word for word in arguments if not word.startswith("-") and "=" not in word]
    source = option(arguments, "--source") or plain[-2]
    target = option(arguments, "--target") or plain[-1]
    if target in kernel.mounts:
        return failed(32, f"mount.nfs: {target} is busy or already mounted")
    kernel.mounts[target] = source
    kernel.write_mounts()
    return Answer(then=("/usr/bin/mount", "-t", "tmpfs", source, target))


def umount(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    target = arguments[-1]
    if kernel.mounts.pop(target, None) is None:
        return failed(32, f"umount: {target}: not mounted.")
    kernel.write_mounts()
    return Answer(then=("/usr/bin/umount", target))


# The system's own, which do here what they always do


def the_real(name: str) -> Program:
    # By its last name: the links of /etc/alternatives are not on a fake host.
    program = os.path.realpath(f"/usr/bin/{name}")
    return lambda _kernel, arguments, _stdin: Answer(then=(program, *arguments))


def drv_cfg(_kernel: Kernel, _arguments: list[str], _stdin: str) -> Answer:
    return said("6d2a2a5c-0000-0000-0000-000000000001\n")


PROGRAMS: dict[str, Program] = {
    each.__name__: each for each in (iscsiadm, tee, sg_vpd, scsi_id, blockdev, multipathd, rbd, mount, umount, drv_cfg)
} | {name: the_real(name) for name in ("cat", "dd", "grep", "mkdir", "stat", "which")}
READS_STDIN = ("tee",)
