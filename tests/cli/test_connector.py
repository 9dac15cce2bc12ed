"""`qm connector`: the interface for programs in any language."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from quartermaster.cli.connecting import exit_code
from quartermaster.cli.root import run
from quartermaster.connectors import (
    ConnectionDataError,
    IdentityMismatchError,
    NotAppearingError,
    NotAttachedError,
    VolumeBusyError,
)
from quartermaster.support.errors import CommandError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def qm(directory: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = run(["connector", *words, "--directory", str(directory)])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out.startswith("{") else said.out, said.err


def volume(tmp_path: Path, **data: Any) -> str:
    file = tmp_path / "volume.json"
    file.write_text(json.dumps({"driverVolumeType": "LOCAL", "data": data}))
    return str(file)


def test_a_volume_comes_and_goes(tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = volume(tmp_path, directory=str(tmp_path), volumeId="v1")
    code, answer, _ = qm(directory, capsys, "connect", "-f", file)
    assert (code, answer) == (
        0,
        {
            "volumeId": "v1",
            "driverVolumeType": "LOCAL",
            "path": str(tmp_path),
            "device": "",
            "identity": "",
            "uri": False,
        },
    )
    assert qm(directory, capsys, "path", "v1")[1] == answer
    assert qm(directory, capsys, "list", "--own", "-o", "json")[1]["attachments"][0]["present"] is True
    assert "connected" in qm(directory, capsys, "list", "--own")[1]
    assert qm(directory, capsys, "disconnect", "-f", file)[:2] == (0, {"path": str(tmp_path)})
    assert qm(directory, capsys, "disconnect", "-f", file)[:2] == (0, {"path": ""})
    assert qm(directory, capsys, "recover")[:2] == (0, {"recovered": []})


def test_the_connection_information_may_come_from_standard_input(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(volume(tmp_path, directory=str(tmp_path))).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert qm(directory, capsys, "connect")[1]["path"] == str(tmp_path)


def test_a_mistake_in_the_data_is_told_as_json_and_as_a_sentence(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer, said = qm(directory, capsys, "connect", "-f", volume(tmp_path))
    assert code == 3
    assert answer["error"]["reason"] == "ConnectionData"
    assert answer["error"]["problems"][0]["path"] == "data.devicePath"
    assert "data.devicePath: is missing" in said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandError("x"), 1),
        (ConnectionDataError("x"), 3),
        (NotAttachedError("x"), 4),
        (VolumeBusyError("x"), 5),
        (NotAppearingError("x"), 6),
        (IdentityMismatchError("x", expected="a", found="b"), 7),
    ],
)
def test_each_kind_of_failure_has_an_exit_code(error: Any, code: int) -> None:
    assert exit_code(error) == code


def test_a_wrong_command_line_is_2(tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert qm(directory, capsys, "connect", "-f", "/nowhere")[0] == 2
    file = volume(tmp_path, directory=str(tmp_path))
    assert qm(directory, capsys, "connect", "-f", file, "--client", "ISCSI")[0] == 2


def test_properties_are_the_specifications(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, answer, _ = qm(directory, capsys, "properties", "--multipath")
    assert (answer["multipath"], answer["osType"], answer["host"]) == (True, "LINUX", os.uname().nodename)


@pytest.mark.slow  # mounts for real
def test_a_volume_is_mounted_looked_at_and_unmounted(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    file = volume(tmp_path, directory=str(source), volumeId="v1")
    assert qm(directory, capsys, "mount", "v1", str(target))[0] == 4
    qm(directory, capsys, "connect", "-f", file)
    mounted = {"volumeId": "v1", "target": str(target), "source": str(source), "fileSystem": ""}
    assert qm(directory, capsys, "mount", "v1", str(target))[:2] == (0, mounted)
    (source / "seen").touch()
    assert (target / "seen").exists()
    code, answer, _ = qm(directory, capsys, "stats", "v1", str(target))
    assert (code, sorted(answer)) == (0, ["available", "files", "filesUsed", "size", "used"])
    assert qm(directory, capsys, "unmount", "v1", str(target))[:2] == (0, {"unmounted": True})
    assert qm(directory, capsys, "unmount", "v1", str(target))[:2] == (0, {"unmounted": False})
    assert qm(directory, capsys, "disconnect", "-f", file)[0] == 0


@pytest.mark.slow  # names a command that mounts
def test_a_key_that_cannot_be_read_is_a_mistake_of_the_command_line(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer, _ = qm(directory, capsys, "mount", "v1", str(tmp_path), "--key-file", str(tmp_path / "nothing"))
    assert (code, answer["error"]["reason"]) == (2, "Usage")
