"""What a device says it is."""

from pathlib import Path

import pytest

from quartermaster.connectors import IdentityMismatchError
from quartermaster.connectors.driver import Roots
from quartermaster.connectors.files import HostFiles
from quartermaster.connectors.identity import parse_page_83, read_identity, require_identity, same_identity
from tests.connectors.harness.world import World

NAA = bytes.fromhex("0103001060014050aabbccdd0011223344556677")
T10 = bytes.fromhex("0201000c") + b"LIO-ORG vol1"
PORT = bytes.fromhex("01130008500140500000ffff")


def page(*designators: bytes) -> bytes:
    body = b"".join(designators)
    return b"\x00\x83" + len(body).to_bytes(2, "big") + body


def test_the_best_name_of_the_logical_unit_is_taken_and_never_that_of_a_port() -> None:
    assert parse_page_83(page(PORT, T10, NAA)) == "naa.60014050aabbccdd0011223344556677"
    assert parse_page_83(page(PORT, T10)) == "t10.LIO-ORG vol1"
    assert parse_page_83(page(PORT)) == ""


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_a_page_cut_short_is_no_name_or_a_whole_one(cut: int) -> None:
    assert parse_page_83(page(T10, NAA)[:cut]) in ("", "t10.LIO-ORG vol1", "naa.60014050aabbccdd0011223344556677")


@pytest.mark.parametrize(
    ("name", "attributes", "identity"),
    [
        ("sdb", {"device__vpd_pg83": page(NAA)}, "naa.60014050aabbccdd0011223344556677"),
        ("sdb", {"device__wwid": "naa.6001405"}, "naa.6001405"),
        ("dm-0", {"dm__uuid": "mpath-36001405aabb"}, "naa.6001405aabb"),
        ("nvme0n1", {"nguid": "0000-0000", "uuid": "a1-b2"}, "uuid.a1-b2"),
        (
            "rbd0",
            {"device__name": "vol", "device__pool": "p", "device__cluster_fsid": "f", "device__current_snap": "-"},
            "rbd:f/p//vol",
        ),
        ("loop3", {"loop__backing_file": "/a.img"}, "loop:/a.img"),
        ("vdb", {"serial": "x"}, "serial:x"),
        ("vdc", {}, ""),
    ],
)
def test_a_device_is_known_by_what_its_kind_says(
    name: str, attributes: dict[str, str], identity: str, tmp_path: Path
) -> None:
    world = World(tmp_path).make()
    node = world.add_device(name, **attributes)
    assert read_identity(str(node), Roots(sysfs=world.path("sys"), dev=world.path("dev")), HostFiles()) == identity


def test_two_spellings_of_one_name_are_the_same() -> None:
    assert same_identity("naa.60014050aabbccdd0011223344556677", "360014050aabbccdd0011223344556677")
    assert same_identity("0x60014050aabbccdd0011223344556677", "naa.60014050AABBCCDD0011223344556677".lower())


def test_a_mismatch_names_both() -> None:
    with pytest.raises(IdentityMismatchError, match=r"it is naa\.2, and the volume is naa\.1"):
        require_identity("v", "/dev/sdb", expected="naa.1", found="naa.2")
    require_identity("v", "/dev/sdb", expected="", found="naa.2")
