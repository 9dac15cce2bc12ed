"""What Cinder's drivers send, in os-brick's keys, connects as it is."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import DriverType
from quartermaster.connectors.model import normal_type
from tests.connectors import cases_iscsi, cases_nvmeof, cases_vendors, stubs_vendors, tools_iscsi, tools_scsi
from tests.connectors.harness.case import CANARY
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

pytestmark = pytest.mark.slow

PAYLOADS = Path(__file__).parent / "payloads"
TOOLS = cases_vendors.TOOLS
SHARED = "volume-1e5177e7-95e5-4a0f-b170-e45f4b469f6a"
ISER = "iqn.2010-10.org.openstack:volume-ed2c2222-5fc0-11e4-aa15-123b93f75cba"
VOLUME = "60087173-e899-470a-9e3a-ba4cffa3e3e3"
FILE = "volume-4f711859-4928-4cb7-801a-a50c37ceaccc"


def has(source: str, name: str) -> Callable[[World], Any]:
    return lambda world: world.set_fact("files", {source: [name]})


def iser(world: World) -> None:
    cases_iscsi.prepare(world)
    world.set_fact("portals", {ISER: ["10.10.7.1:3260"]})
    world.set_fact("luns", {ISER: {"0": tools_scsi.lun()}})
    world.set_fact("chap", {ISER: ["stack-1-a60e2611875f40199931f2c76370d66b", "2FE0CQ8J196R"]})


# Payload → what the host has. Devices of the real host (/dev/drbd7) are the world's.
HOSTS: dict[str, Callable[[World], Any]] = {
    "aoe": cases_vendors.targets("e16.241"),
    "drbd": cases_vendors.drbd(),
    "scality": lambda world: world.set_fact("files", {"/etc/sfused.conf": [f"cinder/volumes/{FILE}"]}),
    "vzstorage": lambda world: world.set_fact("files", {"pstorage://cluster123": [FILE]}),
    "huaweisdshypervisor": lambda _world: None,
    "hgst": lambda _world: None,
    "scaleio": lambda world: world.path(f"dev/disk/by-id/emc-vol-2db9f0ab1d2c3e4f-{VOLUME}").symlink_to(
        world.add_device("scinia")
    ),
    "scaleio-with-gateway": lambda _world: None,
    "disco": lambda _world: None,
    "nfs": has("nfs-host1:/export", SHARED),
    "smbfs": has("//1.2.3.4/share1", f"{FILE}.vhdx"),
    "glusterfs": has("glusterfs-host1:/export", SHARED),
    "quobyte": has("quobyte://quobyte-host/openstack-volumes", "volume-abcdefab-cdef-abcd-efab-cdefabcdefab"),
    "gpfs": lambda world: world.path("dev/fakepath").touch(),
    "local": lambda world: world.add_device("vdb", serial="first"),
    "iser": iser,
    "nvmeof-1": cases_nvmeof.subsystem(cases_nvmeof.ONE),
    "nvmeof-2": cases_nvmeof.subsystem(cases_nvmeof.ONE, cases_nvmeof.TWO),
}
STUBS: dict[str, Callable[[World], AbstractContextManager[int]]] = {
    "scaleio-with-gateway": stubs_vendors.gateway,
    "disco": stubs_vendors.disco,
}
ALL_TOOLS = {
    **COMMON,
    **cases_vendors.AOE,
    **cases_vendors.DRBD,
    **cases_vendors.VZ,
    **cases_vendors.SDC,
    **cases_nvmeof.TOOLS,
    **tools_iscsi.TOOLS,
    "sds_cli": f"{TOOLS}:sds_cli",
    "vgc-cluster": f"{TOOLS}:vgc_cluster",
}


def payload(name: str, world: World) -> dict[str, Any]:
    """As it was sent, but for what the test cannot have: the host's /dev, and the port of a server."""
    text = (PAYLOADS / f"{name}.json").read_text()
    for key in ("device", "device_path"):
        text = text.replace(f'"{key}": "/dev/', f'"{key}": "{world.path("dev")}/')
    # Five digits may stand in any path of a test.
    text = text.replace("password=12345", f"password={CANARY}")
    info: dict[str, Any] = json.loads(text)["connection_info"]
    if name == "disco":
        info["data"]["conf"]["server_port"] = world.fact("tcp_port")
    if name == "scaleio-with-gateway":
        world.path("etc/connector.conf").write_text(f"[powerflex]\nsan_password = {CANARY}\n")
        info["data"] |= {
            "serverPort": str(world.fact("http_port")),
            "config_file": str(world.path("etc/connector.conf")),
        }
    return info


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_payload_of_cinder_connects_as_it_is(name: str, tmp_path: Path) -> None:
    world = World(tmp_path / "world").make()
    world.install(**ALL_TOOLS)
    HOSTS[name](world)
    with STUBS.get(name, lambda _world: nullcontext(0))(world):
        info = payload(name, world)
        before = world.snapshot()
        connector = connector_in(world)
        attachment = asyncio.run(connector.connect(info))
        assert attachment.path.startswith(str(world.directory))
        assert asyncio.run(connector.device_path(attachment.volume_id)) == attachment.path
        assert asyncio.run(connector.disconnect(info)) == attachment.path
        assert world.snapshot() == before


@pytest.mark.parametrize("file", sorted(PAYLOADS.glob("*.json")), ids=lambda file: file.stem)
def test_a_payload_says_from_which_version_and_file_of_cinder_it_is(file: Path) -> None:
    source = json.loads(file.read_text())["source"]
    assert re.match(r"(openstack/cinder at [0-9a-f]{40}|Cinder \d+\.\d+\.\d+ \(PyPI\)), cinder/volume/\S+\.py", source)


def test_every_driver_that_cinder_has_a_payload_for_is_here() -> None:
    """ISCSI, FIBRE_CHANNEL and RBD have theirs in tests of their own; NBD and CEPHFS Cinder has never sent."""
    names = [normal_type(file.stem.partition("-")[0]) for file in PAYLOADS.glob("*.json")]
    elsewhere = {DriverType.ISCSI, DriverType.FIBRE_CHANNEL}
    assert {*names} | elsewhere == {*DriverType} - {DriverType.NBD, DriverType.CEPHFS}
