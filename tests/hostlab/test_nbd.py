"""NBD between the kernel's client and servers of two makes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, NotAnsweringError, VolumeBusyError, open_connector
from tests.hostlab.programs import STATE, load, read, run, wait_for

pytestmark = pytest.mark.slow

SIZE = 32 << 20
PORT = 10809
NAMES = ("one", "two")


def nbd_server() -> int:
    exports = "".join(f"[{name}]\nexportname = {STATE / name}\n" for name in NAMES)
    configuration, pid_file = STATE / "nbd-server.conf", STATE / "nbd-server.pid"
    configuration.write_text(f"[generic]\nport = {PORT}\n{exports}")
    pid_file.unlink(missing_ok=True)
    run("nbd-server", "-C", configuration, "-p", pid_file)
    return int(wait_for(lambda: read(pid_file)))


def qemu_nbd() -> int:
    pid_file = STATE / "qemu-nbd.pid"
    options = ("--format=raw", "--persistent", "--shared=4", "--fork", f"--pid-file={pid_file}", f"--port={PORT}")
    run("qemu-nbd", *options, "--export-name=one", STATE / "one")
    return int(read(pid_file))


@pytest.fixture
def files() -> None:
    load("nbd")
    for name in NAMES:
        (STATE / name).touch()
        os.truncate(STATE / name, SIZE)


@pytest.fixture(params=[nbd_server, pytest.param(qemu_nbd, marks=pytest.mark.deep)], ids=["nbd-server", "qemu-nbd"])
def server(request: pytest.FixtureRequest, files: None) -> Iterator[None]:
    pid = request.param()
    wait_for(answers)
    yield
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not answers())


def answers() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    clients = {"NBD": "kernel"}
    async with open_connector(directory=tmp_path / "state", timeout_s=60, clients=clients) as found:
        yield found
        assert devices() == []


def devices() -> list[str]:
    """Those that somebody serves, as the kernel sees it."""
    return sorted(path.parent.name for path in Path("/sys/class/block").glob("nbd*/pid"))


def volume(name: str) -> dict[str, Any]:
    data = {"host": "127.0.0.1", "port": PORT, "export": name, "volumeId": f"volume-{name}"}
    return {"driverVolumeType": "nbd", "data": data}


@pytest.mark.usefixtures("server")
async def test_what_was_written_is_there_after_another_attach(connector: Connector) -> None:
    attachment = await connector.connect(volume("one"))
    assert attachment.device.startswith("/dev/nbd")
    assert int(read(Path("/sys/class/block") / Path(attachment.device).name / "size")) * 512 == SIZE
    run("mkfs.ext4", "-q", attachment.path)
    run("mount", attachment.path, "/media")
    Path("/media/letter").write_text("kept")
    with pytest.raises(VolumeBusyError):
        await connector.disconnect(volume("one"))
    run("umount", "/media")
    await connector.disconnect(volume("one"))
    assert devices() == []
    again = await connector.connect(volume("one"))
    run("mount", again.path, "/media")
    assert Path("/media/letter").read_text() == "kept"
    run("umount", "/media")
    await connector.disconnect(volume("one"))


@pytest.mark.deep
@pytest.mark.parametrize("server", [nbd_server], ids=["nbd-server"], indirect=True)
@pytest.mark.usefixtures("server")
async def test_two_volumes_have_a_device_each(connector: Connector) -> None:
    one, two = await connector.connect(volume("one")), await connector.connect(volume("two"))
    assert sorted([one.device, two.device]) == [f"/dev/{name}" for name in devices()]
    await connector.disconnect(volume("one"))
    assert devices() == [Path(two.device).name]
    await connector.disconnect(volume("two"))


@pytest.mark.deep
@pytest.mark.usefixtures("files")
async def test_a_server_that_accepts_and_never_answers_is_named(connector: Connector) -> None:
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", PORT))
        silent.listen()
        with pytest.raises(NotAnsweringError, match=rf"nbd://127\.0\.0\.1:{PORT}/one: .* did not answer in time"):
            await connector.connect(volume("one"), timeout_s=5)
    assert devices() == []
