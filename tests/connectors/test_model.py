"""The documents: their JSON is the specification's, key by key."""

import json
from typing import Any

import pytest

import quartermaster.connectors as connectors
from quartermaster.connectors import (
    ConnectionDataError,
    ConnectionInfo,
    ConnectorProperties,
    DriverType,
    Platform,
    to_map,
)
from quartermaster.connectors.drivers.iscsi import IscsiConnectionData
from quartermaster.connectors.model import normal_type, platform_of
from quartermaster.connectors.payload import decode

ISCSI: dict[str, Any] = {
    "driverVolumeType": "ISCSI",
    "data": {
        "targetDiscovered": False,
        "targetIqn": "iqn.2010-10.org.example:volume-1",
        "targetPortal": "192.0.2.1:3260",
        "targetLun": "1",
        "volumeId": "9a0d35d0-175a-11e4-8c21-0800200c9a66",
        "authUsername": "user",
        "authPassword": "secret",
    },
}
CINDER = {
    "driver_volume_type": "iscsi",
    "data": {"target_lun": 1, "qos_specs": None, "volume_id": "9a0d"},
    "serial": "9a0d",
    "connector": {"host": "h1"},
}


@pytest.mark.parametrize("document", [ISCSI, CINDER])
def test_a_round_trip_adds_loses_and_renames_nothing(document: dict[str, object]) -> None:
    text = json.dumps(document)
    again = ConnectionInfo.from_json(text)
    assert again.to_map() == document
    assert json.loads(again.to_json()) == document
    assert list(json.loads(again.to_json())) == list(document)


@pytest.mark.parametrize("change", [{}, {"authUsername": "", "authPassword": ""}, {"targetDiscovered": True}], ids=str)
def test_the_typed_data_of_iscsi_have_the_keys_and_values_of_the_specification(change: dict[str, object]) -> None:
    data = {**ISCSI["data"], **change}
    made = decode(IscsiConnectionData, data, driver="ISCSI")
    assert to_map(made) == data
    assert decode(IscsiConnectionData, to_map(made), driver="ISCSI") == made


def test_typed_data_with_lists_say_nothing_of_a_lun_that_they_do_not_name() -> None:
    several = {"targetPortals": ["192.0.2.1:3260"], "targetIqns": ["iqn.2026-01.test:disk"], "targetLuns": [1]}
    made = decode(IscsiConnectionData, several, driver="ISCSI")
    assert "targetLun" not in to_map(made)
    assert decode(IscsiConnectionData, to_map(made), driver="ISCSI") == made


def test_properties_have_the_seven_keys_of_the_specification_always() -> None:
    made = ConnectorProperties(True, "X86", "LINUX", "192.0.2.7", "h1", False, "iqn.1993-08.org.debian:01:abc")
    assert made.to_map() == {
        "doLocalAttach": True,
        "platform": "X86",
        "osType": "LINUX",
        "ip": "192.0.2.7",
        "host": "h1",
        "multipath": False,
        "initiator": "iqn.1993-08.org.debian:01:abc",
    }
    assert ConnectorProperties.from_map(made.to_map()) == made


def test_properties_carry_ports_and_names_where_the_host_has_them() -> None:
    made = ConnectorProperties(True, "X86", "LINUX", "", "h1", True, "", wwpns=("5001",), nvme_host_id="a-b")
    assert made.to_map()["wwpns"] == ("5001",)
    assert made.to_map()["nvmeHostId"] == "a-b"


def test_the_constants_have_the_spelling_of_the_specification() -> None:
    assert (connectors.PLATFORM_x86, connectors.OS_TYPE_WINDOWS, connectors.VOLUME_LINK_DIR) == (
        "X86",
        "WIN",
        "/dev/disk/by-id/",
    )
    assert len(DriverType) == 21
    assert connectors.HUAWEISDSHYPERVISOR == DriverType.HUAWEISDSHYPERVISOR == "HUAWEISDSHYPERVISOR"


def test_everything_that_is_exported_is_there() -> None:
    assert [name for name in connectors.__all__ if not hasattr(connectors, name)] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [("iscsi", "ISCSI"), ("fibre_channel", "FIBRE_CHANNEL"), ("nvmeof", "NVMEOF"), ("cifs", "SMBFS"), ("RBD", "RBD")],
)
def test_types_are_read_as_others_write_them(written: str, meant: str) -> None:
    assert normal_type(written) == meant


def test_the_platform_follows_from_the_machine() -> None:
    found = [platform_of(name) for name in ("x86_64", "s390x", "ppc64le", "aarch64", "riscv64")]
    assert found == [Platform.X86, Platform.S390, Platform.PPC64, Platform.AARCH64, Platform.ALL]


def test_it_never_shows_its_data() -> None:
    assert "secret" not in repr(ConnectionInfo.from_map(ISCSI))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "not an object"),
        ("{", "not JSON"),
        ("{}", "2 mistakes"),
        ('{"driverVolumeType": 1, "data": {}}', "driverVolumeType: is not text"),
        ('{"driverVolumeType": "NFS", "data": []}', "data: is not an object"),
    ],
)
def test_what_is_not_connection_information_is_said_to_be_so(text: str, words: str) -> None:
    with pytest.raises(ConnectionDataError, match=words):
        ConnectionInfo.from_json(text)
