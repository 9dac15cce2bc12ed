"""Data of storage systems: any spelling of a key, every mistake at once, and secrets that stay so."""

import pickle

import msgspec
import pytest

from quartermaster.connectors import ConnectionDataError, ConnectionInfo, Secret, to_map
from quartermaster.connectors.options import parse_options, public
from quartermaster.connectors.payload import decode
from quartermaster.connectors.secret import secrets_in
from quartermaster.connectors.volumes import volume_id_of


class Data(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    target_portal: str
    target_lun: int
    auth_password: Secret = Secret()
    server_ip: str = ""
    no_remove_host: str = ""


def read(**data: object) -> Data:
    return decode(Data, data, driver="TEST", aliases={"conf.server_ip": "server_ip"})


@pytest.mark.parametrize("key", ["targetPortal", "target_portal", "targetportal", "TargetPortal"])
def test_a_key_is_known_however_it_is_written(key: str) -> None:
    assert read(**{key: "192.0.2.1:3260"}, targetLun=1).target_portal == "192.0.2.1:3260"


@pytest.mark.parametrize("lun", [5, "5"])
def test_a_number_may_be_text(lun: object) -> None:
    assert read(targetPortal="p", targetLun=lun).target_lun == 5


def test_a_key_inside_an_object_is_reached_by_its_alias() -> None:
    made = read(targetPortal="p", targetLun=1, conf={"server_ip": "192.0.2.9"}, noremovehost="h1")
    assert (made.server_ip, made.no_remove_host) == ("192.0.2.9", "h1")


def test_all_mistakes_come_at_once_with_their_keys() -> None:
    with pytest.raises(ConnectionDataError) as caught:
        read(targetLun="five", authPassword=7)
    found = {problem.path: problem.message for problem in caught.value.problems}
    assert found == {
        "data.targetPortal": "is missing",
        "data.targetLun": "must be a whole number, is text",
        "data.authPassword": "must be text, is a whole number",
    }


def test_two_spellings_of_one_key_must_agree() -> None:
    with pytest.raises(ConnectionDataError, match="says something else than targetPortal"):
        read(targetPortal="a", target_portal="b", targetLun=1)


def test_null_and_unknown_keys_are_nobodys_mistake() -> None:
    assert read(targetPortal="p", targetLun=1, serverIp=None, qos_specs=None, cacheable=False).server_ip == ""


def test_the_map_of_a_struct_has_the_specifications_keys_and_the_secret() -> None:
    made = Data("p", 1, auth_password=Secret("s3"))
    assert to_map(made) == {"targetPortal": "p", "targetLun": 1, "authPassword": "s3"}
    assert decode(Data, to_map(made), driver="TEST") == made


def test_a_secret_is_never_shown() -> None:
    made = Data("p", 1, auth_password=Secret("s3cret"))
    shown = f"{made} {made.auth_password} {made.auth_password!r} {made.auth_password:>9}"
    assert "s3cret" not in shown
    assert secrets_in(made) == ("s3cret",)
    with pytest.raises(TypeError):
        pickle.dumps(made.auth_password)
    with pytest.raises(TypeError):
        msgspec.json.encode(made)


@pytest.mark.parametrize("text", ["-o ro,vers=4.1", "ro,vers=4.1", "-oro,vers=4.1", ["ro", "vers=4.1"]])
def test_mount_options_are_read_as_others_write_them(text: str) -> None:
    assert parse_options(text) == ("ro", "vers=4.1")


def test_a_password_among_the_options_is_not_public() -> None:
    assert public(parse_options("-o username=a,password=b,ro")) == ("username=a", "ro")


@pytest.mark.parametrize(
    ("document", "volume_id"),
    [
        ({"driverVolumeType": "T", "data": {"volumeId": "from-data"}, "serial": "s"}, "from-data"),
        ({"driverVolumeType": "T", "data": {}, "volume_id": "beside", "serial": "s"}, "beside"),
        ({"driverVolumeType": "T", "data": {}, "serial": "s"}, "s"),
    ],
)
def test_the_volume_is_named_by_the_first_that_names_it(document: dict[str, object], volume_id: str) -> None:
    assert volume_id_of(ConnectionInfo.from_map(document), Data("p", 1)) == volume_id


def test_a_volume_without_a_name_has_one_by_what_it_is() -> None:
    info = ConnectionInfo("T", {})
    assert volume_id_of(info, Data("p", 1)) == volume_id_of(info, Data("p", 1)) != volume_id_of(info, Data("p", 2))


def test_what_is_nested_without_end_is_no_connection_information() -> None:
    with pytest.raises(ConnectionDataError, match="nested too deeply"):
        ConnectionInfo.from_json('{"a":' * 3_000)
