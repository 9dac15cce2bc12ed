"""iscsiadm: records, sessions, logins."""

from __future__ import annotations

from pathlib import Path

from bench.connectors.kernel import Kernel
from bench.connectors.programs.answer import Answer, failed, said
from quartermaster.testing.arguments import option

NO_RECORD, NO_SESSION, REFUSED, THERE = 21, 21, 24, 15


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
