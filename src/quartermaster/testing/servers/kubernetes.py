"""A real Kubernetes API server with an etcd of its own, for tests that must not believe in a fake.

No nodes and no scheduler: custom resources, watches, conflicts, access rights and restarts are the API server's work.
With `controller_manager=True` owner references and namespaces are collected as well.

    async with KubernetesServer(directory, tokens={"reader": ["viewers"]}) as server:
        await server.kubectl("get", "namespaces")
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from .binaries import find_program
from .certificates import CertificateFiles, create_certificates
from .etcd import EtcdCluster
from .ports import Ports
from .probe import fetch
from .processes import ServerProcess, run_tool

READY_TIMEOUT_S = 90.0
COMMAND_TIMEOUT_S = 30.0
ADMINISTRATORS = "system:masters"


class KubernetesAccess(msgspec.Struct, frozen=True, kw_only=True):
    """All that a client has to know; the JSON form travels between processes that share a server."""

    url: str
    kubeconfig: str
    token: str
    tls: CertificateFiles
    tokens: dict[str, str]

    async def kubectl(self, *arguments: str, stdin: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run the kubectl of the same version as administrator and return what it prints."""
        command = [str(find_program("kubectl")), "--kubeconfig", self.kubeconfig, f"--request-timeout={timeout_s:.0f}s"]
        # The usual cache goes by address, and another server may have had this one before.
        command += ["--cache-dir", f"{self.kubeconfig}-cache"]
        return await run_tool([*command, *arguments], timeout_s=timeout_s + 5, environment=os.environ, stdin=stdin)


class KubernetesServer:
    """kube-apiserver with RBAC, on loopback, in `directory`.

    `tokens` names further users and their groups; `access.tokens` then has the token of each. `flags` are added to
    those of kube-apiserver. `manifests` are applied at the first start, before the controller manager runs: it looks
    for new kinds twice a minute only.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controller_manager: bool = False,
        tokens: Mapping[str, Sequence[str]] | None = None,
        flags: Sequence[str] = (),
        manifests: Sequence[str | Path] = (),
    ) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.token = "token-of-admin"
        self.tokens = {name: f"token-of-{name}" for name in tokens or {}}
        self.etcd = EtcdCluster(directory / "etcd", size=1)
        self._groups = {"admin": [ADMINISTRATORS], **{name: list(groups) for name, groups in (tokens or {}).items()}}
        self._with_controller_manager = controller_manager
        self._flags = flags
        self._manifests = tuple(manifests)
        self._ports = Ports()
        self._port = 0
        self._client_files: CertificateFiles | None = None
        self._server: ServerProcess | None = None
        self._controller_manager: ServerProcess | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def access(self) -> KubernetesAccess:
        assert self._client_files is not None, "start the server first"
        return KubernetesAccess(
            url=self.url,
            kubeconfig=str(self.kubeconfig),
            token=self.token,
            tls=self._client_files,
            tokens={"admin": self.token, **self.tokens},
        )

    @property
    def process(self) -> ServerProcess:
        assert self._server is not None, "start the server first"
        return self._server

    async def kubectl(self, *arguments: str, stdin: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        return await self.access.kubectl(*arguments, stdin=stdin, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start what is not running and wait until it is ready; after `kill` the same data and address are used."""
        try:
            if not self.etcd.members:
                await self.etcd.start(timeout_s)
            if self._server is None:
                self._create()
            await self.process.start()
            await self.ready(timeout_s)
            await self._apply_manifests()
            if self._controller_manager is not None and not self._controller_manager.running:
                await self._controller_manager.start()
        except BaseException:
            await self.close()
            raise

    async def ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until /readyz says `ok` and nothing else: while hooks still run, the word is a part of a longer text."""
        context = self.access.tls.context()

        async def answers_ok() -> bool:
            return await fetch(f"{self.url}/readyz", tls=context, token=self.token) == (200, "ok")

        await self.process.until(answers_ok, timeout_s)

    async def _apply_manifests(self) -> None:
        manifests, self._manifests = self._manifests, ()
        if manifests:
            await self.kubectl("apply", "--server-side", *(f"--filename={path}" for path in manifests))
            await self.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=20s")

    async def kill(self) -> None:
        """SIGKILL to the API server; its etcd goes on, and `start` brings it back."""
        await self.process.kill()

    async def restart_controller_manager(self) -> None:
        """SIGKILL, and a new one that knows nothing of the old one's thoughts."""
        assert self._controller_manager is not None, "start the server with controller_manager=True"
        await self._controller_manager.kill()
        await self._controller_manager.start()

    def pause(self) -> None:
        """Freeze the API server: connections stay open and nobody answers."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    async def close(self) -> None:
        """Kill all of it: nobody needs a throwaway server to take its seconds for a graceful end."""
        processes = [process for process in (self._controller_manager, self._server) if process is not None]
        for process in processes:
            process.kill_now()
        self.etcd.kill_now()
        try:
            for process in processes:
                await process.kill()
            await self.etcd.close()
        finally:
            self._ports.release()

    def _create(self) -> None:
        certificates = self.directory / "certificates"
        server_files, self._client_files = create_certificates(certificates, user="admin", group=ADMINISTRATORS)
        self._port = self._ports.reserve()
        tokens = {"admin": self.token, **self.tokens}
        token_file = self.directory / "tokens.csv"
        rows = (f'{tokens[name]},{name},{name},"{",".join(groups)}"\n' for name, groups in self._groups.items())
        token_file.write_text("".join(rows))
        self.kubeconfig.write_bytes(self._kubeconfig_content(self._client_files))
        self._server = ServerProcess(
            "kube-apiserver",
            [find_program("kube-apiserver"), *self._server_flags(server_files, token_file), *self._flags],
            self.directory / "kube-apiserver.log",
            directory=self.directory,
        )
        if self._with_controller_manager:
            self._controller_manager = self._create_controller_manager(server_files)

    def _server_flags(self, files: CertificateFiles, token_file: Path) -> list[str]:
        return [
            *("--etcd-servers", ",".join(self.etcd.endpoints)),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self._port)),
            # The reconciler of endpoints refuses to advertise a loopback address, and nobody needs its result.
            *("--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none"),
            *("--tls-cert-file", files.certificate, "--tls-private-key-file", files.key),
            *("--client-ca-file", files.authority, "--token-auth-file", str(token_file)),
            *("--authorization-mode", "RBAC"),
            *("--service-cluster-ip-range", "10.98.0.0/24"),
            *("--service-account-issuer", "https://kubernetes.quartermaster.test"),
            *("--service-account-key-file", files.key, "--service-account-signing-key-file", files.key),
            # Without a controller manager no service account exists, and pods could not be created.
            *(() if self._with_controller_manager else ("--disable-admission-plugins", "ServiceAccount")),
        ]

    def _create_controller_manager(self, files: CertificateFiles) -> ServerProcess:
        command: list[str | Path] = [find_program("kube-controller-manager"), "--kubeconfig", self.kubeconfig]
        command += ["--secure-port", "0", "--leader-elect=false", "--root-ca-file", files.authority]
        command += ["--service-account-private-key-file", files.key]
        log_path = self.directory / "kube-controller-manager.log"
        return ServerProcess("kube-controller-manager", command, log_path, directory=self.directory)

    def _kubeconfig_content(self, files: CertificateFiles) -> bytes:
        """JSON is YAML: two users of the same rank, one by token and one by certificate."""
        cluster = {"server": self.url, "certificate-authority": files.authority}
        certificate = {"client-certificate": files.certificate, "client-key": files.key}
        contexts = {"token": "admin-token", "certificate": "admin-certificate"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [
                {"name": "admin-token", "user": {"token": self.token}},
                {"name": "admin-certificate", "user": certificate},
            ],
            "contexts": [
                {"name": name, "context": {"cluster": "test", "user": user}} for name, user in contexts.items()
            ],
            "current-context": "token",
        }
        return msgspec.json.format(msgspec.json.encode(content))
