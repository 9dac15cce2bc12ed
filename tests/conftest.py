"""Real servers for tests, each shared one started once per run however many workers there are.

A shared server is kept by a process of its own (`python -m quartermaster.testing.servers`), started by the first worker
that needs it; the process that began the run ends it. A server that cannot be had fails the test: a skipped test would
look like a passed one.
"""

import fcntl
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from quartermaster.testing.servers import (
    EtcdAccess,
    EtcdCluster,
    KubernetesAccess,
    KubernetesServer,
    wait_for_build,
)

ROOT = Path(__file__).resolve().parent.parent
# The same examples in every run, unless a test asks for others: what deep forms look for is news, what CI finds is not.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
SERVERS = ("etcd", "kubernetes")
SHARED_FIXTURES = {
    "etcd_servers": "etcd",
    "kubernetes_server": "kubernetes",
    "kubernetes_collecting_server": "kubernetes-collecting",
}
START_TIMEOUT_S = 110.0
END_TIMEOUT_S = 15.0

run_directory = pytest.StashKey[Path]()
run_pid = pytest.StashKey[int]()
run_failed = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts a run in the background has Ctrl-C ignored for it; tests that interrupt programs need it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    workerinput = getattr(config, "workerinput", None)
    if workerinput is None:
        config.stash[run_directory] = Path(tempfile.mkdtemp(prefix="quartermaster-tests-"))
        config.stash[run_pid] = os.getpid()
    else:
        config.stash[run_directory] = Path(workerinput["quartermaster_directory"])
        config.stash[run_pid] = workerinput["quartermaster_pid"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["quartermaster_directory"] = str(node.config.stash[run_directory])
    node.workerinput["quartermaster_pid"] = os.getpid()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[run_failed] = exitstatus not in (0, 5)


def pytest_unconfigure(config: pytest.Config) -> None:
    directory = config.stash.get(run_directory, None)
    if directory is None or hasattr(config, "workerinput"):
        return
    for pid_file in directory.glob("*.pid"):
        end_process(int(pid_file.read_text()))
    if config.stash.get(run_failed, False) and any(directory.iterdir()):
        print(f"\nlogs of the shared servers: {directory}", file=sys.stderr)
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the servers that they use, and run those that need none first."""
    for item in items:
        for server in SERVERS:
            if any(name.startswith(server) for name in getattr(item, "fixturenames", ())):
                item.add_marker(server)
    items.sort(key=lambda item: max((SERVERS.index(server) + 1 for server in servers_of(item)), default=0))


def servers_of(item: pytest.Item) -> list[str]:
    return [server for server in SERVERS if item.get_closest_marker(server)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for a build and start shared servers before the clock of the test's own timeout runs."""

    def progress(message: str) -> None:
        capture = item.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(message, file=sys.stderr, flush=True)

    for server in servers_of(item):
        wait_for_build(server, progress)
    for fixture, server in SHARED_FIXTURES.items():
        if fixture in getattr(item, "fixturenames", ()):
            # The fixture meets the same failure again and reports it as the test's.
            with suppress(SharedServerError):
                shared_server(item.config, server)
    return (yield)


class SharedServerError(Exception):
    """A shared server did not start; every test that needs it fails with this."""


def shared_server(config: pytest.Config, server: str) -> bytes:
    """The access file of the server, which is started by whoever comes first."""
    directory = config.stash[run_directory]
    access_file = directory / f"{server}.json"
    failure_file = directory / f"{server}.failed"
    with (directory / f"{server}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failure_file.exists():
            raise SharedServerError(failure_file.read_text())
        if not access_file.exists():
            try:
                start_shared_server(config, server, access_file)
            except SharedServerError as error:
                failure_file.write_text(str(error))
                raise
    return access_file.read_bytes()


def start_shared_server(config: pytest.Config, server: str, access_file: Path) -> None:
    directory = config.stash[run_directory]
    log_path = directory / f"{server}.log"
    program, _, collecting = server.partition("-")
    command = [sys.executable, "-m", "quartermaster.testing.servers", program]
    command += ["--directory", str(directory / server), "--access-file", str(access_file)]
    command += ["--while-pid", str(config.stash[run_pid])]
    command += ["--controller-manager"] if collecting else []
    if program == "kubernetes":
        command += [f"--apply={path}" for path in sorted((ROOT / "deploy" / "crds").glob("*.yaml"))]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = [(os.POSIX_SPAWN_OPEN, number, str(log_path), flags, 0o644) for number in (1, 2)]
    # Not subprocess.Popen: this process outlives the worker that starts it, which Popen warns about.
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=log, setsid=True)
    (directory / f"{server}.pid").write_text(str(pid))
    deadline = time.monotonic() + START_TIMEOUT_S
    while not access_file.exists():
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            raise SharedServerError(f"cannot start {server} for the tests:\n{log_path.read_text()[-4000:]}")
        if time.monotonic() > deadline:
            end_process(pid)
            raise SharedServerError(f"cannot start {server} for the tests within {START_TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def end_process(pid: int) -> None:
    """SIGTERM, then SIGKILL: the kernel takes the servers with their keeper."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + END_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):  # it is the child of a worker that has ended
                os.waitpid(pid, os.WNOHANG)
            if not Path(f"/proc/{pid}").exists():
                return
            time.sleep(0.02)


@pytest.fixture(scope="session")
def etcd_servers(pytestconfig: pytest.Config) -> EtcdAccess:
    """Three members shared by all tests: use keys of your own, and do not stop it."""
    return msgspec.json.decode(shared_server(pytestconfig, "etcd"), type=EtcdAccess)


@pytest.fixture(scope="session")
def kubernetes_server(pytestconfig: pytest.Config) -> KubernetesAccess:
    """An API server with the resources of deploy/crds, shared by all tests: use a namespace of your own."""
    return msgspec.json.decode(shared_server(pytestconfig, "kubernetes"), type=KubernetesAccess)


@pytest.fixture(scope="session")
def kubernetes_collecting_server(pytestconfig: pytest.Config) -> KubernetesAccess:
    """The same with a controller manager, which deletes what owners have left behind."""
    return msgspec.json.decode(shared_server(pytestconfig, "kubernetes-collecting"), type=KubernetesAccess)


@pytest.fixture
async def etcd_throwaway(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[EtcdCluster]]]:
    """`await etcd_throwaway(size=3, tls=True)`: a cluster for this test alone, to be killed at will."""
    numbers = itertools.count(1)
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> EtcdCluster:
            cluster = EtcdCluster(tmp_path / f"etcd-cluster-{next(numbers)}", **options)
            return await stack.enter_async_context(cluster)

        yield start


@pytest.fixture
async def kubernetes_throwaway(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[KubernetesServer]]]:
    """`await kubernetes_throwaway(tokens={"reader": []})`: an API server for this test alone, to be killed at will."""
    numbers = itertools.count(1)
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> KubernetesServer:
            server = KubernetesServer(tmp_path / f"kubernetes-{next(numbers)}", **options)
            return await stack.enter_async_context(server)

        yield start
