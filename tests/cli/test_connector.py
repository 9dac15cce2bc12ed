"""`qm connector`: the interface for programs in any language."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
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
from quartermaster.connectors.connector import Connector
from quartermaster.connectors.files import HostFiles
from quartermaster.connectors.records import Records
from quartermaster.support.errors import CommandError
from quartermaster.support.log import logger
from quartermaster.testing.lab.disks import loops_under


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


@pytest.mark.parametrize(
    "words",
    [
        ("--bogus",),
        *[("connect", "--timeout", "abc"), ("path",), ("nope",), ("list", "-o", "xml")],
        ("list", "--client", "NDB=kernel"),
    ],
    ids=" ".join,
)
def test_a_mistake_of_the_command_line_is_json_too(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert run(["connector", *words]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "Usage"


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (ValueError("of ours"), 70)], ids=str)
def test_whatever_ends_a_call_is_json_too(
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
) -> None:
    def fail(*_arguments: Any, **_options: Any) -> None:
        raise error

    monkeypatch.setattr("quartermaster.cli.connecting.open_connector", fail)
    found, answer, _ = qm(directory, capsys, "recover")
    assert (found, answer["error"]["reason"]) == (code, "Interrupted" if code == 130 else "Internal")


def test_without_a_command_there_is_only_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["connector"]) == 2
    assert "error" not in capsys.readouterr().out


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_second_signal_does_not_end_the_taking_back_and_what_it_could_not_do_is_told(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, second: int
) -> None:
    taken_back = []

    async def recover(_connector: Connector) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            os.kill(os.getpid(), second)
            await asyncio.sleep(0.05)
            taken_back.append("all but one")
            error.add_note("and one could not be taken back")
            raise

    monkeypatch.setattr(Connector, "recover", recover)
    code, answer, _ = qm(directory, capsys, "recover")
    assert (code, taken_back) == (128 + signal.SIGTERM, ["all but one"])
    assert answer["error"]["reason"] == "Interrupted"
    assert answer["error"]["message"] == "it was ended before it was done; and one could not be taken back"


@pytest.mark.slow  # a process of its own, and a server that says nothing
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_call_that_is_ended_by_a_signal_takes_back_what_it_has_begun(
    tmp_path: Path, directory: Path, number: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        data = {"host": "127.0.0.1", "port": silent.getsockname()[1], "volumeId": "v1"}
        file = tmp_path / "nbd.json"
        file.write_text(json.dumps({"driverVolumeType": "NBD", "data": data}))
        argv = [sys.executable, "-m", "quartermaster", "connector", "connect", "-f", str(file)]
        options = ["--client", "NBD=userspace", "--directory", str(directory)]
        with subprocess.Popen([*argv, *options], stdout=subprocess.PIPE, text=True) as child:
            silent.settimeout(60)
            with silent.accept()[0]:  # its daemon asks
                child.send_signal(number)
                answer, _ = child.communicate(timeout=60)
    assert (child.returncode, json.loads(answer)["error"]["reason"]) == (128 + number, "Interrupted")
    assert list((directory / "attachments").iterdir()) == []


def test_a_signal_after_the_volume_is_connected_does_not_take_the_answer_away(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Connector.connect

    async def connected(connector: Connector, info: Any) -> Any:
        attachment = await connect(connector, info)
        os.kill(os.getpid(), signal.SIGTERM)
        return attachment

    monkeypatch.setattr(Connector, "connect", connected)
    code, answer, _ = qm(directory, capsys, "connect", "-f", volume(tmp_path, directory=str(tmp_path), volumeId="v1"))
    assert (code, answer["path"]) == (0, str(tmp_path))
    assert json.loads((directory / "attachments/v1.json").read_text())["state"] == "connected"


@pytest.mark.slow  # makes loop devices
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_in_each_step_of_a_connect_leaves_the_state_that_the_answer_tells(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Each place where a file is written, removed or linked is a step."""
    image, name = tmp_path / "disk.img", f"steps {tmp_path.name}"
    image.write_bytes(b"\0" * (1 << 20))
    file = volume(tmp_path, devicePath=str(image), volumeId=name)
    seen = set()
    for step in range(1, 50):
        left = step

        def stepping(called: Any) -> Any:
            def counted(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), number)
                return called(*arguments, **options)

            return counted

        with monkeypatch.context() as patched:
            for name in ("write", "remove", "link"):
                patched.setattr(HostFiles, name, stepping(getattr(HostFiles, name)))
            code, answer, _ = qm(directory, capsys, "connect", "-f", file)
        told = "error" not in answer
        assert (code, loops_under(tmp_path) != {}) == (0 if told else 128 + number, told)
        assert bool(list((directory / "attachments").iterdir())) is told
        seen.add(told)
        qm(directory, capsys, "disconnect", "-f", file)
        if left > 0:
            assert seen == {True, False}
            return
    pytest.fail("a connect has no end")


def _process(directory: Path, before: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`qm` after some lines that arrange for something."""
    argv = ["qm", "connector", *words, "--directory", str(directory)]
    lines = f"import atexit, os, signal, sys\nsys.argv = {argv!r}\n{before}\nfrom quartermaster.cli import main\nmain()"
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_while_a_finished_command_ends_does_not_change_its_exit_code(
    tmp_path: Path, directory: Path, number: int
) -> None:
    file = volume(tmp_path, directory=str(tmp_path), volumeId="v1")
    before = f"atexit.register(os.kill, os.getpid(), {int(number)})"
    done = _process(directory, before, "connect", "-f", file)
    assert (done.returncode, json.loads(done.stdout)["path"]) == (0, str(tmp_path))


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=str)
def test_a_signal_before_anything_is_begun_is_told_as_json(tmp_path: Path, directory: Path, number: int) -> None:
    file = volume(tmp_path, directory=str(tmp_path), volumeId="v1")
    before = (
        "from quartermaster.cli.session import Session\n"
        f"Session.override = lambda *_, **__: os.kill(os.getpid(), {int(number)})"
    )
    done = _process(directory, before, "connect", "-f", file)
    assert (done.returncode, json.loads(done.stdout)["error"]["reason"]) == (128 + number, "Interrupted")
    assert not directory.exists()


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=str)
def test_a_signal_while_the_program_is_imported_is_told_as_json(tmp_path: Path, directory: Path, number: int) -> None:
    file = volume(tmp_path, directory=str(tmp_path), volumeId="v1")
    before = (
        "class Ending:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'click': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Ending())"
    )
    done = _process(directory, before, "connect", "-f", file)
    assert (done.returncode, json.loads(done.stdout)["error"]["reason"]) == (128 + number, "Interrupted")
    assert not directory.exists()


def test_a_signal_ends_the_waiting_for_standard_input(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(io.BytesIO):
        def read(self, _size: int | None = -1) -> bytes:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("it was waited for on")

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Silent()))
    code, answer, _ = qm(directory, capsys, "connect")
    assert (code, answer["error"]["reason"]) == (143, "Interrupted")


def test_signals_mean_what_they_meant_before_when_a_command_is_done_and_the_process_goes_on(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    qm(directory, capsys, "recover")
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the records is one that a driver warns of."""
    every = Records.all

    def warned(records: Records) -> Any:
        logger("connectors").warning("a path fails", volume="v1", password="canary", error="cannot reach it")
        return every(records)

    monkeypatch.setattr(Records, "all", warned)


@pytest.mark.usefixtures("warning")
def test_a_command_that_looks_shows_no_line_of_the_log(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = qm(directory, capsys, "list", "--own")
    assert (code, said) == (0, "")


@pytest.mark.usefixtures("warning")
def test_a_warning_of_a_command_that_changes_something_is_a_sentence(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = qm(directory, capsys, "recover")
    assert (code, "canary" in said) == (0, False)
    assert said.startswith("warning: a path fails (volume v1, password ")
    assert said.endswith("): cannot reach it\n")


@pytest.mark.slow  # a process of its own: the log is set up for good
@pytest.mark.parametrize("word", ["list", "recover"])
def test_who_asks_for_the_log_gets_its_lines(directory: Path, word: str) -> None:
    before = (
        "from quartermaster.connectors.records import Records\n"
        "from quartermaster.support.log import logger\n"
        "Records.all = lambda _: logger('connectors').warning('a path fails', volume='v1') or iter(())"
    )
    done = _process(directory, before, word, "-v")
    assert done.returncode == 0
    assert "[warning  ] a path fails" in done.stderr
    assert "room=connectors" in done.stderr
