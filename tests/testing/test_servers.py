"""The servers that other tests rely on: they start, survive what they should, and leave nothing behind."""

import asyncio
import fcntl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quartermaster.testing.servers import (
    EtcdAccess,
    EtcdCluster,
    KubernetesAccess,
    KubernetesServer,
    Ports,
    ServerFailedError,
    ServerMissingError,
    ServerProcess,
    binaries,
)

EtcdFactory = Callable[..., Awaitable[EtcdCluster]]
KubernetesFactory = Callable[..., Awaitable[KubernetesServer]]


async def test_shared_etcd_answers(etcd_servers: EtcdAccess) -> None:
    await etcd_servers.etcdctl("put", "/test-servers/greeting", "hello")
    answer = await etcd_servers.etcdctl("get", "/test-servers/greeting", "--print-value-only")
    assert answer.strip() == "hello"
    assert len(etcd_servers.endpoints) == 3


async def test_etcd_goes_on_without_one_member_and_takes_it_back(etcd_throwaway: EtcdFactory) -> None:
    cluster = await etcd_throwaway(size=3)
    await cluster.etcdctl("put", "key", "before")
    await cluster.members[0].kill()
    await cluster.ready()  # the killed one may have been the leader
    await cluster.etcdctl("put", "key", "after")
    await cluster.members[0].start()
    await cluster.ready()
    assert (await cluster.etcdctl("get", "key", "--print-value-only")).strip() == "after"


async def test_etcd_with_tls_and_passwords_refuses_strangers(etcd_throwaway: EtcdFactory) -> None:
    cluster = await etcd_throwaway(size=1, tls=True, auth=True)
    await cluster.etcdctl("put", "key", "value")
    stranger = EtcdAccess(endpoints=cluster.endpoints, version=cluster.version, tls=cluster.access.tls)
    with pytest.raises(ServerFailedError, match=r"user name is empty|permission denied"):
        await stranger.etcdctl("get", "key", timeout_s=5)


async def test_oldest_supported_etcd_starts(etcd_throwaway: EtcdFactory) -> None:
    cluster = await etcd_throwaway(size=1, version="3.4")
    assert "3.4." in await cluster.etcdctl("endpoint", "status")


async def test_paused_etcd_is_alive_and_silent(etcd_throwaway: EtcdFactory) -> None:
    cluster = await etcd_throwaway(size=1)
    cluster.members[0].pause()
    with pytest.raises(ServerFailedError):
        await cluster.etcdctl("put", "key", "value", timeout_s=1)
    assert cluster.members[0].running
    cluster.members[0].resume()
    await cluster.ready()


async def test_shared_kubernetes_answers_kubectl(kubernetes_server: KubernetesAccess) -> None:
    assert f"Server Version: v{binaries.KUBERNETES_VERSION}" in await kubernetes_server.kubectl("version")


async def test_client_certificate_of_kubeconfig_works(kubernetes_server: KubernetesAccess) -> None:
    assert "admin" in await kubernetes_server.kubectl("--context=certificate", "auth", "whoami")


async def test_kubernetes_keeps_data_when_it_is_killed_and_knows_its_users(
    kubernetes_throwaway: KubernetesFactory,
) -> None:
    server = await kubernetes_throwaway(tokens={"nobody": []})
    await server.kubectl("create", "configmap", "kept")
    with pytest.raises(ServerFailedError, match="Forbidden"):
        await server.kubectl("get", "configmaps", f"--token={server.tokens['nobody']}")
    with pytest.raises(ServerFailedError, match=r"Unauthorized|logged in"):
        await server.kubectl("get", "configmaps", "--token=expired")
    await server.kill()
    await server.start()
    assert "kept" in await server.kubectl("get", "configmaps", "--output=name")


async def test_controller_manager_collects_what_lost_its_owner(
    kubernetes_throwaway: KubernetesFactory,
) -> None:
    server = await kubernetes_throwaway(controller_manager=True)
    await server.kubectl("create", "namespace", "short-lived")
    await server.kubectl("delete", "namespace", "short-lived", "--timeout=25s")
    assert "short-lived" not in await server.kubectl("get", "namespaces", "--output=name")


async def test_error_shows_the_end_of_the_log_of_a_server_that_ended(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo the disk is on fire; exit 3"]
    process = ServerProcess("broken", command, tmp_path / "log", directory=tmp_path)
    await process.start()

    async def never() -> bool:
        return False

    with pytest.raises(ServerFailedError, match="the disk is on fire"):
        await process.until(never, timeout_s=10)
    await process.kill()


async def test_kill_takes_the_children_too(tmp_path: Path) -> None:
    command = ["sh", "-c", "sleep 600 & echo $! > child; wait"]
    process = ServerProcess("parent", command, tmp_path / "log", directory=tmp_path)
    await process.start()

    async def child_is_known() -> bool:
        return (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip() != ""

    await process.until(child_is_known, timeout_s=10)
    child = int((tmp_path / "child").read_text())
    await process.kill()
    async with asyncio.timeout(10):
        while Path(f"/proc/{child}").exists() and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
            await asyncio.sleep(0.02)


def test_two_reservations_never_share_a_port() -> None:
    first, second = Ports(), Ports()
    try:
        taken = [first.reserve() for _ in range(20)] + [second.reserve() for _ in range(20)]
        assert len(set(taken)) == 40
    finally:
        first.release()
        second.release()


def test_missing_server_is_an_error_that_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(ServerMissingError, match="make setup"):
        binaries.find_program("kube-apiserver")


@pytest.mark.slow
def test_tests_wait_for_a_build_only_while_somebody_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert not binaries.build_is_running()
    binaries.build_lock_path().parent.mkdir(parents=True)
    with binaries.build_lock_path().open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert binaries.build_is_running()
        binaries.wait_for_build("etcd", progress=print, timeout_s=0.1)
    assert not binaries.build_is_running()
