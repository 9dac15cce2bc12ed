"""A real etcd cluster on loopback whose members can be killed, paused and started again.

A store that promises to survive the loss of a member has to be shown that loss: tests, the demo and the benchmarks use
this class, and so may anybody who tests against Quartermaster.

    async with EtcdCluster(directory) as cluster:
        await cluster.etcdctl("put", "greeting", "hello")
        await cluster.members[0].kill()
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from .binaries import OLDEST_ETCD, find_etcd
from .certificates import CertificateFiles, create_certificates
from .ports import Ports
from .probe import fetch
from .processes import ServerFailedError, ServerProcess, run_tool

READY_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 20
ROOT_PASSWORD = "correct-horse"  # of throwaway servers on loopback


class EtcdAccess(msgspec.Struct, frozen=True, kw_only=True):
    """All that a client has to know; the JSON form travels between processes that share a cluster."""

    endpoints: tuple[str, ...]
    version: str
    tls: CertificateFiles | None = None
    user: str = ""
    password: str = ""

    async def etcdctl(self, *arguments: str, stdin: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run the etcdctl of the same version against all endpoints and return what it prints."""
        command = [str(find_etcd("etcdctl", self.version)), f"--endpoints={','.join(self.endpoints)}"]
        command.append(f"--command-timeout={timeout_s:.0f}s")
        if self.tls is not None:
            command += [f"--cacert={self.tls.authority}", f"--cert={self.tls.certificate}", f"--key={self.tls.key}"]
        # The oldest version speaks the previous API unless told; newer ones complain about being told.
        environment = os.environ | ({"ETCDCTL_API": "3"} if self.version == OLDEST_ETCD else {})
        if self.user:
            # In the environment, not among the arguments, which every user of the machine can read.
            environment["ETCDCTL_USER"] = f"{self.user}:{self.password}"
        return await run_tool([*command, *arguments], timeout_s=timeout_s + 5, environment=environment, stdin=stdin)


class EtcdMember:
    """One member; its data stay when it is killed and are used again by `start`."""

    def __init__(self, url: str, process: ServerProcess, tls: CertificateFiles | None) -> None:
        self.url = url
        self.process = process
        self._tls = tls

    @property
    def running(self) -> bool:
        return self.process.running

    async def start(self) -> None:
        """Start it, without waiting: `EtcdCluster.ready` does."""
        await self.process.start()

    async def kill(self) -> None:
        await self.process.kill()

    async def stop(self) -> None:
        await self.process.stop()

    def pause(self) -> None:
        """Freeze it: connections stay open and nobody answers, which is harder on clients than a crash."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    async def healthy(self) -> bool:
        """Whether it can serve a linearizable read, which needs a leader and a majority."""
        status, body = await fetch(f"{self.url}/health", tls=self._tls.context() if self._tls else None)
        if status != 200:
            return False
        with suppress(msgspec.DecodeError):
            answer = msgspec.json.decode(body, type=dict[str, str])
            return answer.get("health") == "true"
        return False


class EtcdCluster:
    """`size` members of one etcd version, in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        size: int = 3,
        version: str = "3.6",
        tls: bool = False,
        auth: bool = False,
        fsync: bool = False,
        flags: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.version = version
        self.members: list[EtcdMember] = []
        self._size = size
        self._tls = tls
        self._auth = auth
        self._fsync = fsync
        self._flags = flags
        self._ports = Ports()
        self._server_files: CertificateFiles | None = None
        self._client_files: CertificateFiles | None = None
        self._auth_enabled = False

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    @property
    def access(self) -> EtcdAccess:
        user, password = ("root", ROOT_PASSWORD) if self._auth_enabled else ("", "")
        return EtcdAccess(
            endpoints=self.endpoints, version=self.version, tls=self._client_files, user=user, password=password
        )

    async def etcdctl(self, *arguments: str, stdin: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        return await self.access.etcdctl(*arguments, stdin=stdin, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Create and start all members and wait until each is healthy; leaves nothing behind if that fails."""
        try:
            self._create_members()
            for member in self.members:
                await member.start()
            await self.ready(timeout_s)
            if self._auth:
                await self._enable_auth()
        except BaseException:
            self.kill_now()
            await self.close()
            raise

    async def ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every running member is healthy."""
        running = [member for member in self.members if member.running]
        if not running:
            raise ServerFailedError("cannot wait for etcd: no member is running", hint="start one first")
        for member in running:
            await member.process.until(member.healthy, timeout_s)

    def kill_now(self) -> None:
        for member in self.members:
            member.process.kill_now()

    async def close(self) -> None:
        """Kill all members; the data stay in the directory."""
        self.kill_now()
        try:
            for member in self.members:
                await member.kill()
        finally:
            self._ports.release()

    def _create_members(self) -> None:
        program = find_etcd("etcd", self.version)
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._tls:
            certificates = self.directory / "certificates"
            self._server_files, self._client_files = create_certificates(certificates, user="quartermaster", group="")
        scheme = "https" if self._tls else "http"
        names = [f"etcd{number}" for number in range(1, self._size + 1)]
        clients = {name: f"{scheme}://127.0.0.1:{self._ports.reserve()}" for name in names}
        # Members talk among themselves without TLS: what is under test is the client's side.
        peers = {name: f"http://127.0.0.1:{self._ports.reserve()}" for name in names}
        members = ",".join(f"{name}={url}" for name, url in peers.items())
        for name in names:
            flags = [*self._member_flags(name, clients[name], peers[name]), "--initial-cluster", members, *self._flags]
            log_path = self.directory / f"{name}.log"
            process = ServerProcess(name, [str(program), *flags], log_path, directory=self.directory)
            self.members.append(EtcdMember(clients[name], process, self._client_files))

    def _member_flags(self, name: str, client: str, peer: str) -> list[str]:
        flags = ["--name", name, "--data-dir", str(self.directory / name), "--initial-cluster-state", "new"]
        flags += ["--listen-client-urls", client, "--advertise-client-urls", client]
        flags += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        flags += ["--logger", "zap", "--log-level", "warn"]
        if not self._fsync and self.version != OLDEST_ETCD:  # the oldest version does not know the flag
            flags.append("--unsafe-no-fsync")
        if files := self._server_files:
            flags += ["--cert-file", files.certificate, "--key-file", files.key]
            flags += ["--client-cert-auth", "--trusted-ca-file", files.authority]
        return flags

    async def _enable_auth(self) -> None:
        await self.etcdctl("user", "add", f"root:{ROOT_PASSWORD}")
        await self.etcdctl("user", "grant-role", "root", "root")
        await self.etcdctl("auth", "enable")
        self._auth_enabled = True
