"""Virtual hosts behave like hosts: they reach each other, keep what they should, and lose what they should."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quartermaster.support.errors import CommandDeadlineError, CommandError, HostError, InvalidError
from quartermaster.testing.lab import Lab, LabError, LabProcess, VirtualHost

pytestmark = pytest.mark.netns

PYTHON = [sys.executable, "-I", "-S", "-c"]
SERVER = (
    "import socket; s = socket.create_server(('', 7777)); print('ready', flush=True)\nwhile True: s.accept()[0].close()"
)
CLIENT = "import socket, sys; socket.create_connection((sys.argv[1], 7777), timeout=1).close()"


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with await Lab.create(tmp_path / "lab", hosts=2, disks=2, disk_size="512Mi") as made:
        yield made


async def said(process: LabProcess, words: str) -> None:
    async with asyncio.timeout(20):
        while words not in process.log.read_text():
            assert process.running, process.log.read_text()
            await asyncio.sleep(0.01)


async def serve(host: VirtualHost) -> None:
    log = host.directory / "server.log"
    log.unlink(missing_ok=True)
    await said(await host.spawn([*PYTHON, SERVER], log=log), "ready")


async def reaches(host: VirtualHost, other: str) -> bool:
    return (await host.run([*PYTHON, CLIENT, other], accept=(0, 1))).exit_code == 0


async def until_reached(host: VirtualHost, other: str) -> None:
    """After a cut the kernel asks again for the way only once in a second."""
    async with asyncio.timeout(20):
        while not await reaches(host, other):
            pass


async def machine_reaches(address: str) -> bool:
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_connection(address, 7777)
    except (OSError, TimeoutError):
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def python(host: VirtualHost, script: str) -> object:
    """What a script that uses this project on the host prints as JSON."""
    return json.loads((await host.run([sys.executable, "-c", script])).text)


async def test_hosts_reach_each_other_by_name_and_the_machine_reaches_them_by_address(lab: Lab) -> None:
    one, two = lab.hosts
    await serve(two)
    await until_reached(one, two.address)
    await until_reached(one, two.name)
    assert await machine_reaches(two.address)
    assert one.address != two.address


async def test_a_cut_host_is_reached_by_nobody_until_it_is_healed(lab: Lab) -> None:
    one, two = lab.hosts
    await serve(one)
    await serve(two)
    await two.cut()
    assert two.is_cut
    assert not await reaches(one, two.address)
    assert not await machine_reaches(two.address)
    await until_reached(two, "127.0.0.1")  # the host itself works on
    assert await machine_reaches(one.address)
    await two.heal()
    await until_reached(one, two.address)


async def test_a_host_that_was_cut_off_is_so_after_its_next_start(lab: Lab) -> None:
    one, two = lab.hosts
    await serve(one)
    await two.cut()
    await two.kill()
    await two.boot()
    assert not await reaches(two, one.address)
    await two.heal()
    await until_reached(two, one.address)


async def test_a_host_has_a_name_processes_and_files_of_its_own(lab: Lab) -> None:
    one, two = lab.hosts
    assert (await one.run(["hostname"])).text == "h1\n"
    assert (await one.run(["cat", "/etc/hostname"])).text == "h1\n"
    await one.run(
        ["sh", "-c", "for d in /etc /var/lib /var/log /run /dev/shm $HOME; do echo mine > $d/qm-lab-test; done"]
    )
    for directory in ("/etc", "/var/lib", "/var/log", "/run", "/dev/shm"):
        assert not Path(f"{directory}/qm-lab-test").exists()
        assert (await two.run(["test", "-e", f"{directory}/qm-lab-test"], accept=(0, 1))).exit_code == 1
    assert await python(one, "import json, os; print(json.dumps(os.getppid()))") == 0, "its parent is not on the host"
    ids = [(await host.run(["cat", "/etc/machine-id"])).text for host in lab.hosts]
    assert ids[0] != ids[1]


async def test_processes_are_told_where_they_are(lab: Lab) -> None:
    host = lab.hosts[0]
    shown = (await host.run(["env"], environment={"OWN": "1"})).text.splitlines()
    assert {"QM_DEVICE_ROOT=/dev", "QM_STATE_DIR=/var/lib/quartermaster", "OWN=1"} <= set(shown)
    await host.run(["sh", "-c", "echo there > $QM_STATE_DIR/file"])
    assert (host.state / "file").read_text() == "there\n"


async def test_the_disks_of_the_machine_are_not_on_a_host(lab: Lab) -> None:
    shown = (await lab.hosts[0].run(["find", "/dev", "-type", "b"])).text.split()
    assert [name for name in shown if not name.startswith("/dev/loop")] == []


DISCOVER = """
import asyncio, json, os
from pathlib import Path
from quartermaster.host import open_host, judge, Surroundings
host = open_host(Path(os.environ["QM_STATE_DIR"]), device_root=Path(os.environ["QM_DEVICE_ROOT"]))
found = asyncio.run(host.devices.discover())
verdicts = [judge(device, Surroundings(minimum_size=0)) for device in found]
print(json.dumps([[d.path, d.serial, d.size, v.usable] for d, v in zip(found, verdicts)]))
"""


async def test_discovery_finds_exactly_the_disks_of_its_host(lab: Lab) -> None:
    one, two = lab.hosts
    await two.add_disk("1Gi", serial="WD-42")
    size = 512 << 20
    assert await python(one, DISCOVER) == [["/dev/vdb", "H1-0001", size, True], ["/dev/vdc", "H1-0002", size, True]]
    assert await python(two, DISCOVER) == [
        ["/dev/vdb", "H2-0001", size, True],
        ["/dev/vdc", "H2-0002", size, True],
        ["/dev/vdd", "WD-42", 1 << 30, True],
    ]


FORMAT = """
import asyncio, json, os
from pathlib import Path
from quartermaster.host import FileSystem, Format, open_host
host = open_host(Path(os.environ["QM_STATE_DIR"]), device_root=Path(os.environ["QM_DEVICE_ROOT"]))
wanted = Format(FileSystem.XFS, "9f1c2f0e-0000-4000-8000-000000000001", "qm-test")
async def main():
    made = await host.formatting.format("/dev/vdb", wanted, identity=IDENTITY)
    again = await host.formatting.format("/dev/vdb", wanted, identity=IDENTITY)
    mounted = await host.mounts.mount("/dev/vdb", os.environ["QM_STATE_DIR"] + "/brick", type="xfs")
    return [made, again, mounted]
print(json.dumps(asyncio.run(main())))
"""
BRICK = "/var/lib/quartermaster/brick"


async def format_and_mount(host: VirtualHost) -> None:
    identity = host.disks[0].stand_in.wwn
    assert await python(host, f"IDENTITY = {identity!r}\n{FORMAT}") == [True, False, True]
    await host.run(["sh", "-c", f"echo kept > {BRICK}/file; sync"])


@pytest.mark.slow
async def test_a_disk_is_formatted_and_mounted_on_its_host_alone_and_survives_a_power_cut(lab: Lab) -> None:
    one, two = lab.hosts
    await format_and_mount(one)
    assert not (one.state / "brick/file").exists(), "mounts of a host are seen on it alone"
    assert await python(two, DISCOVER) == [
        ["/dev/vdb", "H2-0001", 512 << 20, True],
        ["/dev/vdc", "H2-0002", 512 << 20, True],
    ]
    await one.run(["sh", "-c", "echo own > /etc/qm-lab-test; echo gone > /run/qm-lab-test"])
    boot = (await one.run(["cat", "/proc/sys/kernel/random/boot_id"])).text
    await one.kill()
    assert not one.up
    await one.boot()
    assert (await one.run(["cat", "/etc/qm-lab-test"])).text == "own\n"
    assert (await one.run(["ls", "/run"])).text == "lock\n"
    assert (await one.run(["cat", "/proc/sys/kernel/random/boot_id"])).text != boot
    await one.run(["mount", "/dev/vdb", BRICK])
    assert (await one.run(["cat", f"{BRICK}/file"])).text == "kept\n"


@pytest.mark.slow
async def test_a_lost_disk_is_gone_and_an_error_to_its_users_and_a_new_one_is_blank(lab: Lab) -> None:
    one = lab.hosts[0]
    await format_and_mount(one)
    lost = await one.lose_disk(0)
    assert (lost.name, lost.lost) == ("vdb", True)
    assert await python(one, DISCOVER) == [["/dev/vdc", "H1-0002", 512 << 20, True]]
    with pytest.raises(CommandError, match="Input/output error"):
        await one.run(["cat", f"{BRICK}/file"])
    with pytest.raises(CommandError, match="Input/output error"):
        await one.run(["touch", f"{BRICK}/other"])
    replaced = await one.replace_disk("vdb")
    assert (replaced.name, replaced.stand_in.serial) == ("vdb", "H1-0003")
    found = await python(one, DISCOVER)
    assert found == [["/dev/vdb", "H1-0003", 512 << 20, True], ["/dev/vdc", "H1-0002", 512 << 20, True]]


READER = """
import os, time
fd = os.open("/dev/vdc", os.O_RDONLY)
print(len(os.pread(fd, 4096, 0)), flush=True)
while not os.path.exists("/var/lib/quartermaster/go"): time.sleep(0.01)
print(os.pread(fd, 4096, 1 << 20), flush=True)
"""


async def test_a_disk_is_lost_also_to_those_who_cannot_be_told(lab: Lab) -> None:
    one = lab.hosts[0]
    await one.run(["sh", "-c", f"mkfs.btrfs -q /dev/vdb && mkdir -p {BRICK} && mount /dev/vdb {BRICK}"])
    reader = await one.spawn([*PYTHON, READER])
    await said(reader, "4096")
    await one.lose_disk("vdb")
    await one.lose_disk("vdc")
    with pytest.raises(CommandError, match="Input/output error"):
        await one.run(["sh", "-c", f"echo text > {BRICK}/file && sync {BRICK}/file"])
    (one.state / "go").touch()
    await reader.wait(10)
    assert reader.log.read_text() == "4096\nb''\n", "nothing of what was there"


async def test_a_host_that_is_down_gets_and_loses_disks_too(lab: Lab) -> None:
    one = lab.hosts[0]
    await one.kill()
    await one.lose_disk("vdb")
    added = await one.add_disk("1Gi")
    assert added.name == "vdd", "the place of a lost disk is for its replacement"
    await one.boot()
    found = (await one.run(["sh", "-c", "ls /dev/vd?"])).text.split()
    assert found == ["/dev/vdc", "/dev/vdd"]


WATCH = """
import asyncio, os
from pathlib import Path
from quartermaster.host import open_host
host = open_host(Path(os.environ["QM_STATE_DIR"]), device_root=Path("/dev"))
async def main():
    async with host.events.watch(directories=[Path("/dev")]) as changes:
        print("watching", flush=True)
        while not Path("/dev/vdd").is_symlink():
            assert await changes.wait(20) is not None
        print("noticed", flush=True)
asyncio.run(main())
"""


async def test_a_new_disk_is_noticed_by_itself(lab: Lab) -> None:
    one = lab.hosts[0]
    watcher = await one.spawn([sys.executable, "-c", WATCH])
    await said(watcher, "watching")
    await one.add_disk("64Mi")
    assert await watcher.wait(20) == 0
    assert "noticed" in watcher.log.read_text()


DAEMON = """
import asyncio, json, os, sys
from pathlib import Path
from quartermaster.host import Daemon, open_host
host = open_host(Path(os.environ["QM_STATE_DIR"]), device_root=Path(os.environ["QM_DEVICE_ROOT"]))
async def main():
    if sys.argv[1:] == ["start"]:
        await host.daemons.ensure(Daemon("sleeper", ("sleep", "300")))
    status = await host.daemons.status("sleeper")
    return [status.state, status.pid, status.message]
print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.slow
async def test_a_daemon_outlives_its_starter_and_dies_with_its_host(lab: Lab) -> None:
    one = lab.hosts[0]
    state, pid, _ = json.loads((await one.run([sys.executable, "-c", DAEMON, "start"])).text)
    assert state == "running"
    assert await python(one, DAEMON) == ["running", pid, ""]
    (outside,) = [p for p in os.listdir("/proc") if p.isdecimal() and is_inside(p, one.pid, pid)]
    await one.kill()
    assert not Path(f"/proc/{outside}").exists()
    await one.boot()
    assert await python(one, DAEMON) == ["dead", 0, "the host was started again"]


def is_inside(pid: str, first: int, number: int) -> bool:
    """Whether it has this number on the host of that first process."""
    try:
        same = os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{first}/ns/pid")
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return same and re.search(rf"^NSpid:.*\s{number}$", status, re.MULTILINE) is not None


async def processes(host: VirtualHost) -> list[tuple[str, str]]:
    """Name and state of each."""
    shown = (await host.run(["sh", "-c", "cat /proc/[0-9]*/stat"], accept=(0, 1))).text
    return [(line.split()[1], line.split()[2]) for line in shown.splitlines()]


async def test_orphans_are_buried(lab: Lab) -> None:
    one = lab.hosts[0]
    await one.run(["sh", "-c", "(sleep 0.05 &) ; exit 0"])
    async with asyncio.timeout(10):
        while "(sleep)" in (found := dict(await processes(one))):
            await asyncio.sleep(0.02)
    assert "Z" not in found.values()


async def test_a_spawned_process_is_signalled_itself_and_its_exit_code_is_known(lab: Lab) -> None:
    one = lab.hosts[0]
    script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = await one.spawn(["sh", "-c", script], log=one.directory / "trap.log")
    await said(process, "ready")
    assert await process.stop() == 3
    assert process.log.read_text() == "ready\ncaught\n"
    stubborn = await one.spawn(["sleep", "300"])
    await stubborn.signal(signal.SIGKILL)
    assert await stubborn.wait(10) == -9
    await stubborn.signal(signal.SIGKILL)


async def test_a_command_has_a_deadline_and_its_failure_is_an_error(lab: Lab) -> None:
    one = lab.hosts[0]
    with pytest.raises(
        CommandDeadlineError, match=r"cannot run sleep on h1: nsenter took longer|took longer than 0.2 s"
    ):
        await one.run(["sleep", "300"], timeout_s=0.2)
    assert ("(sleep)", "S") not in await processes(one)
    with pytest.raises(CommandError, match=r"cannot run false on h1: false exited with 1"):
        await one.run(["false"])


async def test_a_killed_host_is_down_and_can_be_killed_again(lab: Lab) -> None:
    one, two = lab.hosts
    await serve(one)
    process = await one.spawn(["sleep", "300"])
    await one.kill()
    assert process.exit_code == -9
    assert not one.up
    assert not await machine_reaches(one.address)
    with pytest.raises(LabError, match="cannot use the host h1: it is down; `qm lab boot h1` starts it"):
        await one.run(["true"])
    await one.kill()
    await one.boot()
    await one.boot()
    await serve(one)
    await until_reached(two, "h1")


async def test_hosts_come_and_go_and_addresses_are_not_used_again(lab: Lab) -> None:
    one, two = lab.hosts
    second = two.address
    three = await lab.add_host(disks=1, disk_size="64Mi")
    await serve(three)
    await until_reached(one, "h3")
    await lab.remove_host(two)
    assert [host.name for host in lab.hosts] == ["h1", "h3"]
    assert not two.directory.exists()
    four = await lab.add_host("backup", disks=0)
    assert four.address not in {one.address, second, three.address}
    await until_reached(four, "h3")
    with pytest.raises(LabError, match='cannot find the host "h2" in the lab lab; there are: h1, h3, backup'):
        lab.host("h2")


async def test_two_labs_do_not_meet(lab: Lab, tmp_path: Path) -> None:
    await serve(lab.hosts[0])
    async with await Lab.create(tmp_path / "other", hosts=1, disks=0) as other:
        assert other.subnet != lab.subnet
        assert await machine_reaches(lab.hosts[0].address)
        assert not await reaches(other.hosts[0], lab.hosts[0].address)


async def test_another_process_works_on_the_same_lab(lab: Lab) -> None:
    same = Lab.open(lab.directory)
    await same.hosts[0].kill()
    assert not lab.hosts[0].up
    await lab.hosts[0].boot()
    assert same.hosts[0].pid == lab.hosts[0].pid
    await same.hosts[1].add_disk("64Mi")
    await lab.hosts[1].add_disk("64Mi")
    assert [disk.name for disk in lab.hosts[1].disks] == ["vdb", "vdc", "vdd", "vde"]


async def test_a_wrong_wish_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LabError, match="virtual hosts have a /var/lib of their own"):
        await Lab.create("/var/lib/quartermaster-lab-test")
    with pytest.raises(InvalidError, match='cannot name a lab "No Name"'):
        await Lab.create(tmp_path / "lab", name="No Name")
    with pytest.raises(LabError, match="cannot make a disk of 1: the least is 1Mi"):
        await Lab.create(tmp_path / "lab", disk_size=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(LabError, match=r"cannot make a lab in .*full: it is not empty"):
        await Lab.create(tmp_path / "full")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="cannot make virtual hosts: that needs root; run it with sudo"):
        await Lab.create(tmp_path / "lab")
    assert not (tmp_path / "lab").exists()
