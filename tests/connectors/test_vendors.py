"""What is special to AoE, DRBD, NVMe over fabrics and the storage systems with tools and servers of their own."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from quartermaster.connectors import ConnectionDataError
from quartermaster.connectors.drivers.disco import packet
from quartermaster.connectors.drivers.drbd import DrbdConnectionData, filled
from quartermaster.connectors.errors import (
    AuthenticationError,
    ConnectorError,
    NotAppearingError,
    UnreachableError,
)
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.servers import ANSWER_S, LEAST_S, answer_s
from quartermaster.host.commands import Command, HostCommands, Result
from quartermaster.support.errors import CommandError, QuartermasterError
from tests.connectors import cases_nvmeof, cases_vendors, stubs_vendors
from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.world import World

pytestmark = pytest.mark.slow


def case(name: str) -> Case:
    return next(each for each in [*cases_vendors.CASES, *cases_nvmeof.CASES] if each.name == name)


def connect(world: World, info: dict[str, Any], **options: Any) -> Any:
    return asyncio.run(connector_in(world, **options).connect(info))


def disconnect(world: World, info: dict[str, Any]) -> Any:
    return asyncio.run(connector_in(world).disconnect(info))


def requests(world: World) -> list[str]:
    lines = [json.loads(line) for line in world.path("log").read_text().splitlines()]
    return [line["http"].rpartition("/")[2] for line in lines if "http" in line]


def test_a_token_that_is_too_old_is_renewed_and_the_request_sent_again(tmp_path: Path) -> None:
    world = case("scaleio").world(tmp_path)
    with stubs_vendors.gateway(world):
        connect(world, case("scaleio").info(world))
        assert requests(world) == ["addMappedSdc", "login", "addMappedSdc", "setMappedSdcLimits"]


def test_a_gateway_with_an_untrusted_certificate_gets_no_password(tmp_path: Path) -> None:
    world = case("scaleio").world(tmp_path)
    with stubs_vendors.gateway(world):
        info = case("scaleio").info(world)
        info["data"]["verify_certificate"] = True
        with pytest.raises(AuthenticationError, match="is not who it says"):
            connect(world, info)
        assert requests(world) == []


def test_a_gateway_is_trusted_by_the_file_of_its_authority(tmp_path: Path) -> None:
    world = case("scaleio").world(tmp_path)
    file = tmp_path / "authority.pem"
    stubs_vendors.authority().cert_pem.write_to_path(file)
    with stubs_vendors.gateway(world):
        info = case("scaleio").info(world)
        info["data"] |= {"verify_certificate": True, "certificate_path": str(file)}
        assert connect(world, info).device.endswith("scinia")


def test_a_wrong_password_of_the_gateway_is_an_authentication_error(tmp_path: Path) -> None:
    world = case("scaleio").world(tmp_path)
    with stubs_vendors.gateway(world):
        info = case("scaleio").info(world)
        info["data"]["serverPassword"] = "wrong"
        with pytest.raises(AuthenticationError, match="refuses admin"):
            connect(world, info)
        assert list(world.path("state/secrets").iterdir()) == []


@pytest.mark.parametrize("name", ["scaleio", "disco"])
def test_a_server_that_does_not_answer_is_named(name: str, tmp_path: Path) -> None:
    world = case(name).world(tmp_path)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        connect(world, case(name).info(world))


@pytest.mark.parametrize("silent", [["login"], ["addMappedSdc", "removeMappedSdc"]], ids=["at once", "later"])
def test_a_gateway_that_goes_silent_holds_nobody_and_is_asked_again_later(silent: list[str], tmp_path: Path) -> None:
    world = case("scaleio by name").world(tmp_path)
    with stubs_vendors.gateway(world):
        info = case("scaleio by name").info(world)
        world.set_fact("silent", [])
        before = world.snapshot()
        world.set_fact("silent", silent)
        with questions() as asked, pytest.raises(UnreachableError, match="did not answer in time"):
            asyncio.run(connector_in(world).connect(info, timeout_s=6))
        waits_s = [each["timeout_s"] for each in asked if each["path"].rpartition("/")[2] in silent]
        assert len(waits_s) == len(silent)
        assert sum(waits_s) <= 6
        world.set_fact("silent", [])
        assert [one for one in asyncio.run(connector_in(world).recover()) if one.problem] == []
        assert world.snapshot() == before


@contextmanager
def questions() -> Iterator[list[dict[str, Any]]]:
    """What the program that asks servers is told: also how long it may wait for the answer."""
    run = HostCommands.run
    asked: list[dict[str, Any]] = []

    async def noted(self: HostCommands, command: Command) -> Result:
        if command.argv[-1].endswith("exchange.py"):
            asked.append(json.loads(command.stdin))
        return await run(self, command)

    with mock.patch.object(HostCommands, "run", noted):
        yield asked


def test_a_change_that_a_server_is_asked_for_leaves_time_to_take_it_back() -> None:
    assert answer_s(0.0, changes=True) == LEAST_S
    assert answer_s(3.0, changes=True) == 2.0
    assert answer_s(600.0, changes=True) == ANSWER_S


def test_a_disco_packet_is_what_its_service_expects() -> None:
    assert packet(1, 1234).hex() == "001800010000000000004d2".replace("4d2", "04d2") + b"DEFAULT-INSTID".hex()


def test_a_code_of_sds_cli_is_an_error_though_it_exits_with_0(tmp_path: Path) -> None:
    world = case("huaweisdshypervisor").world(tmp_path)
    world.set_fact("sds_code", {"attach": 330151401})
    with pytest.raises(ConnectorError, match=r"330151401 \(told to fail\)"):
        connect(world, case("huaweisdshypervisor").info(world))


def test_a_host_outside_the_cluster_is_told_so(tmp_path: Path) -> None:
    world = case("hgst").world(tmp_path)
    world.set_fact("domain", ["one.invalid"])
    with pytest.raises(ConnectorError, match="testhost is not in the cluster's domain"):
        connect(world, case("hgst").info(world))


def test_an_aoe_target_that_nobody_answers_for_ends_with_the_deadline(tmp_path: Path) -> None:
    world = case("aoe").world(tmp_path)
    world.set_fact("aoe_targets", [])
    with pytest.raises(NotAppearingError, match="nobody on the network answers"):
        asyncio.run(connector_in(world).connect(case("aoe").info(world), timeout_s=0.5))


def test_the_secret_goes_into_the_drbd_configuration_and_percent_signs_stay() -> None:
    data = DrbdConnectionData('secret "%(shared-secret)s"; rate 5%%;', "r0", "/dev/drbd0", Secret("s"))
    assert filled(data) == 'secret "s"; rate 5%;'


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("AOE", {"targetShelf": 70000, "targetLun": 1}),
        ("DRBD", {"config": "c", "name": "--force", "device": "/dev/drbd0"}),
        ("HGST", {"name": "../sda"}),
        ("SCALEIO", {"scaleIO_volume_id": "1"}),
        ("SCALITY", {"export": "../etc", "name": "x"}),
        ("VZSTORAGE", {"export": f":{CANARY}"}),
        ("NVMEOF", {"targetNqn": "nqn.x", "portals": [["192.0.2.1", 4420, "tcp"]], "volUuid": "no-uuid"}),
        ("NVMEOF", {"targetNqn": "nqn.x"}),
    ],
)
def test_data_that_cannot_be_right_are_refused_before_anything_is_done(
    type: str, data: dict[str, Any], tmp_path: Path
) -> None:
    world = World(tmp_path / "world").make()
    with pytest.raises(ConnectionDataError) as caught:
        connect(world, {"driverVolumeType": type, "data": data})
    assert CANARY not in str(caught.value)
    assert world.commands() == []


def test_a_controller_stays_until_the_last_of_its_volumes_goes(tmp_path: Path) -> None:
    world = case("nvmeof").world(tmp_path)
    one = cases_nvmeof.info(volUuid=cases_nvmeof.UUIDS["1"], volumeId="one")(world)
    ten = cases_nvmeof.info(volUuid=cases_nvmeof.UUIDS["10"], volumeId="ten")(world)
    assert [connect(world, info).device.rpartition("/")[2] for info in (one, ten)] == ["nvme0n1", "nvme0n10"]
    disconnect(world, one)
    assert connect(world, ten).device.endswith("nvme0n10")
    disconnect(world, ten)
    assert [argv[1] for argv in world.commands()] == ["connect", "disconnect"]


def test_a_namespace_that_is_made_later_is_found_on_a_controller_that_is_here(tmp_path: Path) -> None:
    first = {"1": cases_nvmeof.UUIDS["1"]}
    world = case("nvmeof").world(tmp_path)
    with world.facts() as known:
        known["subsystems"][cases_nvmeof.NQN]["namespaces"] = first
    connect(world, cases_nvmeof.info(volUuid=cases_nvmeof.UUIDS["1"], volumeId="one")(world))
    with world.facts() as known:
        known["subsystems"][cases_nvmeof.NQN]["namespaces"] = cases_nvmeof.UUIDS
    later = cases_nvmeof.info(volUuid=cases_nvmeof.UUIDS["10"], volumeId="ten")(world)
    assert connect(world, later).device.endswith("nvme0n10")


def test_without_anything_that_tells_the_namespace_several_are_not_guessed_from(tmp_path: Path) -> None:
    world = case("nvmeof").world(tmp_path)
    before = world.snapshot()
    with pytest.raises(QuartermasterError, match="cannot tell which namespace"):
        connect(world, cases_nvmeof.info()(world))
    assert world.snapshot() == before


def test_a_controller_of_somebody_else_is_not_disconnected(tmp_path: Path) -> None:
    world = case("nvmeof").world(tmp_path)
    from tests.connectors.tools_nvmeof import connect as connect_by_hand

    portal = {"nqn": cases_nvmeof.NQN, "transport": "tcp", "traddr": "192.0.2.1", "trsvcid": "4420"}
    assert connect_by_hand(world, portal) == ""
    info = case("nvmeof").info(world)
    connect(world, info)
    disconnect(world, info)
    assert world.path("sys/class/nvme/nvme0").is_dir()


def test_a_device_of_another_drbd_resource_is_not_given_out(tmp_path: Path) -> None:
    world = case("drbd").world(tmp_path)
    world.add_device("drbd7")
    before = world.snapshot()
    with pytest.raises(CommandError, match="exists already"):
        connect(world, case("drbd").info(world))
    assert world.snapshot() == before


def test_a_server_list_of_the_administrator_is_kept(tmp_path: Path) -> None:
    world = case("vzstorage").world(tmp_path)
    file = world.path("etc/pstorage/clusters/stor1/bs_list")
    file.parent.mkdir(parents=True)
    file.write_text("10.9.9.9\n")
    info = case("vzstorage").info(world)
    connect(world, info)
    disconnect(world, info)
    assert file.read_text() == "10.9.9.9\n"
