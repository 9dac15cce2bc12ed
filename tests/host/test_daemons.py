"""Daemons: one conformance suite for every runtime, and what is special to each."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from quartermaster.host import procfs
from quartermaster.host.commands import Command, HostCommands, Result
from quartermaster.host.daemons import (
    Daemon,
    DaemonRuntime,
    DaemonState,
    DetachedDaemons,
    SystemdDaemons,
    choose_runtime,
)
from quartermaster.host.daemons.records import TOKEN_VARIABLE, Record, Records, live_process
from quartermaster.host.daemons.units import environment_of, fingerprint_of, unit_text
from quartermaster.host.fake import FakeCommands, FakeDaemons, FakeMachine
from quartermaster.support.errors import DaemonError, InvalidError, ToolMissingError
from quartermaster.support.tasks import TaskGroup

pytestmark = pytest.mark.slow

STANDIN = Path(__file__).with_name("standin_systemctl.py")
# Set where these tests run under a real systemd (test_systemd_real.py), which no other machine is lent to them.
REAL_SYSTEMD = os.environ.get("QM_TEST_REAL_SYSTEMD") == "1"
SLEEP = Daemon("sleeper", ("sleep", "300"))


class Home:
    """One runtime, and the same machine seen by the agent that comes next."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        self._machine = FakeMachine()
        self._machine.missing_tools.add("quartermaster-no-such-program")
        self._real_systemd = kind == "systemd" and REAL_SYSTEMD
        if kind == "systemd" and not self._real_systemd:
            self._install_standin()

    def runtime(self) -> DaemonRuntime:
        if self.kind == "fake":
            commands = FakeCommands()
            commands.handle("printenv", handler=printenv)
            return FakeDaemons(self._machine, commands=commands)
        if self._real_systemd:
            return SystemdDaemons(HostCommands())
        if self.kind == "systemd":
            path = f"{self._directory}:{os.environ['PATH']}"
            units, lasting = self._directory / "units", self._directory / "lasting"
            return SystemdDaemons(HostCommands(search_path=path), directory=units, lasting=lasting)
        return DetachedDaemons(HostCommands(), self._directory)

    def kill(self, name: str, pid: int) -> None:
        if self.kind == "fake":
            self._machine.kill(name)
        else:
            os.kill(pid, signal.SIGKILL)

    def reboot_leaves_nothing(self) -> None:
        if self._real_systemd:
            forget_units()
        for pid_file in self._directory.glob("state/*.pid"):
            _kill(int(pid_file.read_text()))
        for record in self._directory.glob("records/*.json"):
            _kill(msgspec.json.decode(record.read_bytes())["pid"])

    def _install_standin(self) -> None:
        for name in ("units", "lasting", "loaded", "state"):
            (self._directory / name).mkdir()
        for name in ("systemctl", "journalctl"):
            file = self._directory / name
            file.write_text(f"#!{sys.executable} -IS\n{STANDIN.read_text()}")
            file.chmod(file.stat().st_mode | stat.S_IXUSR)


def forget_units() -> None:
    subprocess.run(["systemctl", "kill", "--signal=KILL", "quartermaster-*"], check=False)
    subprocess.run(["systemctl", "stop", "quartermaster-*"], check=True)
    for place in ("/run/systemd/system", "/etc/systemd/system"):
        for unit in Path(place).glob("**/quartermaster-*"):
            unit.unlink()
    for verb in ("daemon-reload", "reset-failed"):
        subprocess.run(["systemctl", verb], check=True)


def printenv(command: Command) -> Result:
    return Result(stdout=f"{command.environment[command.argv[1]]}\n".encode())


def _kill(pid: int) -> None:
    if pid:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            return


@pytest.fixture(params=["fake", "detached", "systemd"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    found = Home(request.param, tmp_path)
    try:
        yield found
    finally:
        found.reboot_leaves_nothing()


@pytest.fixture
def runtime(home: Home) -> DaemonRuntime:
    return home.runtime()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_a_daemon_that_nobody_started_is_absent(runtime: DaemonRuntime) -> None:
    assert (await runtime.status("nobody")).state is DaemonState.ABSENT
    assert await runtime.stop("nobody") is False
    assert await runtime.list() == ()
    assert await runtime.logs("nobody") == ""


async def test_ensure_starts_once_and_a_second_time_changes_nothing(runtime: DaemonRuntime) -> None:
    first = await runtime.ensure(SLEEP)
    assert first.running
    assert first.pid > 0
    assert not first.outdated(SLEEP)
    assert await runtime.ensure(SLEEP) == first
    assert await runtime.list() == (first,)


async def test_the_next_agent_adopts_what_runs(home: Home) -> None:
    first = await home.runtime().ensure(SLEEP)
    assert await home.runtime().status("sleeper") == first
    assert await home.runtime().ensure(SLEEP) == first
    assert await home.runtime().stop("sleeper") is True


async def test_a_changed_description_restarts_nothing_until_it_is_replaced(runtime: DaemonRuntime) -> None:
    first = await runtime.ensure(SLEEP)
    changed = Daemon("sleeper", ("sleep", "301"))
    again = await runtime.ensure(changed)
    assert again.pid == first.pid
    assert again.outdated(changed)
    replaced = await runtime.replace(changed)
    assert replaced.pid != first.pid
    assert not replaced.outdated(changed)
    assert await runtime.replace(changed) == replaced


async def test_a_killed_daemon_is_dead_with_its_signal_and_ensure_starts_it_again(
    home: Home, runtime: DaemonRuntime
) -> None:
    first = await runtime.ensure(SLEEP)
    home.kill("sleeper", first.pid)

    async def dead() -> bool:
        return (await runtime.status("sleeper")).state is DaemonState.DEAD

    await until(dead)
    status = await runtime.status("sleeper")
    assert (status.exit_code, status.pid) == (-9, 0)
    second = await runtime.ensure(SLEEP)
    assert second.running
    assert second.pid != first.pid


async def test_stop_ends_and_forgets_and_may_be_repeated(runtime: DaemonRuntime) -> None:
    status = await runtime.ensure(SLEEP)
    assert await runtime.stop("sleeper") is True
    assert (await runtime.status("sleeper")).state is DaemonState.ABSENT
    assert not Path(f"/proc/{status.pid}/exe").exists()
    assert await runtime.stop("sleeper") is False
    assert await runtime.list() == ()


async def test_a_tool_beside_the_daemon_has_its_environment(runtime: DaemonRuntime) -> None:
    daemon = Daemon("sleeper", ("sleep", "300"), environment={"CLUSTER": 'a "b" $c 100%'})
    await runtime.ensure(daemon)
    assert (await runtime.run("sleeper", ["printenv", "CLUSTER"])).text == 'a "b" $c 100%\n'


async def test_a_missing_program_is_named(runtime: DaemonRuntime) -> None:
    with pytest.raises(ToolMissingError, match="cannot start ghost: quartermaster-no-such-program is not installed"):
        await runtime.ensure(Daemon("ghost", ("quartermaster-no-such-program",)))


@pytest.fixture(params=["detached", "systemd"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DaemonRuntime]:
    found = Home(request.param, tmp_path)
    try:
        yield found.runtime()
    finally:
        found.reboot_leaves_nothing()


async def test_arguments_arrive_word_by_word_and_output_is_kept(real: DaemonRuntime) -> None:
    words = ("a b", 'c"d', "$HOME", "100%", "back\\slash", "")
    await real.ensure(Daemon("talker", ("printf", "<%s>\\n", *words), environment={"X": "1"}))

    async def said() -> bool:
        return await real.logs("talker", lines=2) == "<back\\slash>\n<>\n"

    await until(said)
    assert await real.logs("talker") == "".join(f"<{word}>\n" for word in words)


async def test_an_exit_code_is_known(real: DaemonRuntime) -> None:
    await real.ensure(Daemon("failing", ("sh", "-c", "exit 3")))

    async def dead() -> bool:
        return (await real.status("failing")).state is DaemonState.DEAD

    await until(dead)
    assert (await real.status("failing")).exit_code == 3
    assert (await real.status("failing")).message == "exited with 3"


async def test_a_daemon_that_is_being_stopped_still_runs(real: DaemonRuntime) -> None:
    """Whoever took it for dead would start it again while it is on its way out."""
    slow = "trap 'sleep 1; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    daemon = Daemon("slow", ("sh", "-c", slow), stop_timeout_s=10.0)
    started = await real.ensure(daemon)

    async def ready() -> bool:
        return "ready" in await real.logs("slow")

    await until(ready)
    async with TaskGroup() as group:
        stopping = group.start(real.stop("slow"))
        await asyncio.sleep(0.3)
        assert not stopping.done()
        assert (await real.status("slow")).running
        assert (await real.ensure(daemon)).pid in (started.pid, 0)
        assert await stopping
    assert (await real.status("slow")).state is DaemonState.ABSENT


async def test_who_ignores_sigterm_is_killed_when_its_time_is_up(real: DaemonRuntime) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    await real.ensure(Daemon("stubborn", ("sh", "-c", script), stop_timeout_s=0.2))

    async def ready() -> bool:
        return await real.logs("stubborn") == "ready\n"

    await until(ready)
    assert await real.stop("stubborn") is True
    assert (await real.status("stubborn")).state is DaemonState.ABSENT


@pytest.mark.parametrize("keep", [False, True])
async def test_children_go_with_the_daemon_unless_they_are_to_stay(
    real: DaemonRuntime, keep: bool, tmp_path: Path
) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; wait"
    await real.ensure(Daemon("parent", ("sh", "-c", script), keep_children=keep))

    async def born() -> bool:
        return (tmp_path / "child").exists() and bool((tmp_path / "child").read_text())

    await until(born)
    child = int((tmp_path / "child").read_text())
    await real.stop("parent")

    async def as_wished() -> bool:
        found = procfs.process_stat(child)
        return (found is not None and found.lives) == keep

    await until(as_wished)
    if keep:
        os.kill(child, signal.SIGKILL)


def test_a_daemon_outlives_the_one_who_started_it(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from quartermaster.host.commands import HostCommands\n"
        "from quartermaster.host.daemons import Daemon, DetachedDaemons\n"
        f"runtime = DetachedDaemons(HostCommands(), Path({str(tmp_path)!r}))\n"
        "asyncio.run(runtime.ensure(Daemon('sleeper', ('sleep', '300'))))\n"
        "os.killpg(os.getpgid(0), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], start_new_session=True, check=False)
    assert ended.returncode == -9
    runtime = DetachedDaemons(HostCommands(), tmp_path)
    status = asyncio.run(runtime.status("sleeper"))
    assert status.running
    assert asyncio.run(runtime.stop("sleeper")) is True


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[DetachedDaemons]:
    found = Home("detached", tmp_path)
    try:
        yield DetachedDaemons(HostCommands(), tmp_path)
    finally:
        found.reboot_leaves_nothing()


async def test_a_daemon_whose_starter_died_before_it_wrote_the_number_is_found(
    detached: DetachedDaemons, tmp_path: Path
) -> None:
    status = await detached.ensure(SLEEP)
    records = Records(tmp_path / "records")
    record = records.read("sleeper")
    assert record is not None
    records.write(msgspec.structs.replace(record, pid=0, started=0, executable=""))
    successor = DetachedDaemons(HostCommands(), tmp_path)
    assert (await successor.ensure(SLEEP)).pid == status.pid
    adopted = records.read("sleeper")
    assert adopted is not None
    assert adopted.pid == status.pid


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "an earlier one"}])
async def test_a_process_that_only_has_its_number_is_never_touched(
    detached: DetachedDaemons, tmp_path: Path, change: dict[str, object]
) -> None:
    with subprocess.Popen(["sleep", "300"]) as stranger:
        try:
            found = procfs.process_stat(stranger.pid)
            assert found is not None
            record = Record(SLEEP, "token", procfs.boot_id(), stranger.pid, found.started, "/usr/bin/sleep")
            Records(tmp_path / "records").write(msgspec.structs.replace(record, **change))
            assert (await detached.status("sleeper")).state is DaemonState.DEAD
            assert await detached.stop("sleeper") is False
            assert stranger.poll() is None
        finally:
            stranger.kill()


async def test_a_process_that_runs_another_program_is_neither_stopped_nor_doubled(
    detached: DetachedDaemons, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "300"]) as stranger:
        try:
            found = procfs.process_stat(stranger.pid)
            assert found is not None
            record = Record(SLEEP, "token", procfs.boot_id(), stranger.pid, found.started, "/usr/sbin/glusterd")
            Records(tmp_path / "records").write(record)
            for call in (detached.status("sleeper"), detached.stop("sleeper"), detached.ensure(SLEEP)):
                with pytest.raises(DaemonError, match="cannot tell whether process"):
                    await call
            assert stranger.poll() is None
        finally:
            stranger.kill()
        Records(tmp_path / "records").remove("sleeper")


async def test_a_wrapper_that_became_its_program_is_still_known(detached: DetachedDaemons, tmp_path: Path) -> None:
    status = await detached.ensure(Daemon("wrapped", ("sh", "-c", "exec sleep 300")))
    record = Records(tmp_path / "records").read("wrapped")
    assert record is not None

    async def became() -> bool:
        assert live_process(record) is not None
        return procfs.arguments(status.pid) == ("sleep", "300")

    await until(became)
    assert procfs.executable(status.pid).endswith("sleep")
    assert procfs.environment_value(status.pid, TOKEN_VARIABLE) == record.token


async def test_a_damaged_record_starts_no_second_daemon(detached: DetachedDaemons, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records/sleeper.json").write_bytes(b'{"daemon":')
    with pytest.raises(DaemonError, match=r"sleeper.json is damaged"):
        await detached.ensure(SLEEP)
    (tmp_path / "records/sleeper.json").unlink()


async def test_a_directory_that_is_missing_is_an_error_and_not_a_running_daemon(detached: DetachedDaemons) -> None:
    with pytest.raises(DaemonError, match=r"cannot start lost: .*No such file or directory"):
        await detached.ensure(Daemon("lost", ("sleep", "300"), directory="/quartermaster/nowhere"))
    assert (await detached.status("lost")).state is DaemonState.DEAD


async def test_the_log_is_bounded_while_the_daemon_writes_on(detached: DetachedDaemons, tmp_path: Path) -> None:
    script = "read x < {0}; yes line | head -c 50000; echo first half; read x < {0}; echo second half; sleep 300"
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    await detached.ensure(Daemon("noisy", ("sh", "-c", script.format(fifo)), log_limit=10_000))
    fifo.write_text("go\n")

    async def half() -> bool:
        return "first half" in await detached.logs("noisy", lines=1)

    await until(half)
    await detached.status("noisy")
    assert (tmp_path / "logs/noisy.log").stat().st_size == 0
    assert (tmp_path / "logs/noisy.log.1").stat().st_size == 10_000
    fifo.write_text("go\n")

    async def whole() -> bool:
        return await detached.logs("noisy", lines=2) == "first half\nsecond half\n"

    await until(whole)
    assert (tmp_path / "logs/noisy.log").read_text() == "second half\n", "no hole where the cut was"


def test_systemd_is_used_where_it_runs(tmp_path: Path) -> None:
    wanted = SystemdDaemons if Path("/run/systemd/system").is_dir() else DetachedDaemons
    assert isinstance(choose_runtime(HostCommands(), tmp_path), wanted)


def test_who_may_not_make_units_has_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartermaster.host.daemons.systemd_is_running", lambda: True)
    assert isinstance(choose_runtime(HostCommands(), tmp_path), SystemdDaemons)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert isinstance(choose_runtime(HostCommands(), tmp_path), DetachedDaemons)


def test_the_unit_of_a_lasting_daemon_has_it_started_again_after_its_end_and_after_a_boot() -> None:
    text = unit_text(Daemon("agent", ("qm", "agent"), lasting=True), "/usr/bin/qm")
    assert "Restart=always\n" in text
    assert "StartLimitIntervalSec=0\n" in text
    assert "\n[Install]\nWantedBy=multi-user.target\n" in text


def test_a_unit_says_what_the_daemon_is_and_leaves_the_rest_to_the_agent() -> None:
    daemon = Daemon("glusterd", ("glusterd", "-N", "--log=a b$"), {"A": 'x "y" 5%'}, "/var", keep_children=True)
    text = unit_text(daemon, "/usr/sbin/glusterd")
    assert 'ExecStart=/usr/sbin/glusterd -N "--log=a b$$"\n' in text
    assert 'Environment="A=x \\"y\\" 5%%"\n' in text
    assert "KillMode=process\n" in text
    assert "Restart=no\n" in text
    assert "[Install]" not in text
    assert fingerprint_of(text) == daemon.fingerprint
    assert environment_of(text) == daemon.environment


@pytest.mark.parametrize("name", ["", "UP", "a/b", "../x", "a_b", "-a", "a" * 64])
def test_a_name_that_cannot_be_a_file_and_a_unit_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="cannot run a daemon named"):
        Daemon(name, ("sleep",))
