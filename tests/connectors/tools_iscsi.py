"""open-iscsi on a fake host: it believes the record file and nothing else.

The facts: `portals` = {iqn: [portal, …]}, `chap` = {iqn: [user name, password]}, `dead` = [portal, …], and
`discovery_chap` = [user name, password].
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from quartermaster.testing.arguments import option
from tests.connectors import tools_scsi
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World

TOOLS = {**tools_scsi.TOOLS, "iscsiadm": f"{__name__}:iscsiadm"}
SESSIONS, CONNECTIONS = "sys/class/iscsi_session", "sys/class/iscsi_connection"


def iscsiadm(world: World, arguments: list[str], _stdin: str) -> Answer:
    for _ in range(500):
        if not os.path.lexists(world.path("run/lock/iscsi/lock.write")):
            break
        time.sleep(0.01)
    else:
        return 6, "", "iscsiadm: Could not lock the database"
    if option(arguments, "-m") == "session":
        return _log_out(world, option(arguments, "-r"))
    portal, iqn = option(arguments, "-p"), option(arguments, "-T")
    address, _, port = portal.rpartition(":")
    if option(arguments, "-m") in ("discovery", "discoverydb"):
        return _discover(world, arguments, portal)
    record = read_record(world, f"nodes/{iqn}/{address.strip('[]')},{port}")
    if record.get("iface.iscsi_ifacename") != option(arguments, "-I"):
        return 21, "", "iscsiadm: No records found"
    wanted = {"node.startup": "manual", "node.session.scan": "manual", "node.tpgt": "-1"}
    if any(record.get(key) != value for key, value in wanted.items()):
        return 7, "", "iscsiadm: this record is not as it has to be"
    if portal in world.fact("dead", []):
        return 8, "", f"iscsiadm: Could not login to [portal: {portal}]: connection timed out"
    if portal not in world.fact("portals", {}).get(iqn, []):
        return 19, "", "iscsiadm: initiator reported error (19 - encountered non-retryable iSCSI login failure)"
    chap = world.fact("chap", {}).get(iqn)
    given = [record.get(f"node.session.auth.{key}") for key in ("authmethod", "username", "password")]
    if chap is not None and given != ["CHAP", *chap]:
        return 24, "", "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)"
    return _log_in(world, iqn, address.strip("[]"), port, option(arguments, "-I"))


def _discover(world: World, arguments: list[str], portal: str) -> Answer:
    if (option(arguments, "-t"), option(arguments, "-o")) != ("sendtargets", "nonpersistent"):
        return 7, "", "iscsiadm: this would write down what is found"
    if portal in world.fact("dead", []):
        return 4, "", f"iscsiadm: connection login retries (reopen_max) 5 exceeded to {portal}"
    record = {}
    if option(arguments, "-m") == "discoverydb":
        record = read_record(world, f"send_targets/{portal.replace(':', ',')}/st_config")
        if not record or "--discover" not in arguments:
            return 21, "", f"iscsiadm: Discovery record [{portal}] not found."
    chap = world.fact("discovery_chap")
    given = [record.get(f"discovery.sendtargets.auth.{key}") for key in ("authmethod", "username", "password")]
    if chap is not None and given != ["CHAP", *chap]:
        return 24, "", "iscsiadm: Login failed to authenticate with target"
    known = world.fact("portals", {})
    lines = [f"{each},1 {iqn}\n" for iqn, portals in known.items() for each in portals if portal in portals]
    return 0, "".join(lines), ""


def read_record(world: World, name: str) -> dict[str, str]:
    file = world.path(f"etc/iscsi/{name}")
    lines = file.read_text().splitlines() if file.exists() else []
    parts = [line.partition(" = ") for line in lines if not line.startswith("#")]
    return {key: value for key, _, value in parts}


def _log_in(world: World, iqn: str, address: str, port: str, interface: str) -> Answer:
    # By the target and not by who comes first: several log in at once, and their numbers have to be known.
    known = [(name, portal) for name, portals in sorted(world.fact("portals").items()) for portal in portals]
    number = next(place for place, (name, portal) in enumerate(known, 1) if name == iqn and address in portal)
    with world.alone():
        for session in world.path(SESSIONS).iterdir():
            connection = world.path(CONNECTIONS) / f"{session.name.replace('session', 'connection')}:0"
            there = [(session / "targetname").read_text(), (connection / "address").read_text()]
            if there == [iqn, address] and (session / "ifacename").read_text() == interface:
                return 15, "", "iscsiadm: session exists"
        make_session(world, number, iqn, address, port, interface)
    return 0, f"Login to [target: {iqn}, portal: {address},{port}] successful.\n", ""


def make_session(world: World, number: int, iqn: str, address: str, port: str, interface: str = "default") -> None:
    host = number + 2
    device = world.path(f"sys/devices/platform/host{host}/session{number}")
    device.mkdir(parents=True)
    tools_scsi.make_host(world, host)
    connection = {"persistent_address": address, "persistent_port": port, "address": address, "port": port}
    _write(world.path(CONNECTIONS) / f"connection{number}:0", connection)
    session = world.path(SESSIONS) / f"session{number}"
    _write(session, {"ifacename": interface, "target_id": "0", "state": "LOGGED_IN"})
    (session / "device").symlink_to(f"../../../devices/platform/host{host}/session{number}")
    _write(session, {"targetname": iqn})


def _log_out(world: World, number: str) -> Answer:
    session = world.path(SESSIONS) / f"session{number}"
    if not session.exists():
        return 21, "", "iscsiadm: No matching sessions found"
    host = (session / "device").resolve().parent
    tools_scsi.drop_host(world, int(host.name.removeprefix("host")))
    with world.alone():
        for directory in (session, world.path(CONNECTIONS) / f"connection{number}:0", host):
            shutil.rmtree(directory)
    return 0, "", ""


def _write(directory: Path, attributes: dict[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in attributes.items():
        (directory / name).write_text(value)
