"""What a standalone cluster adds to an agent's process and to a leader's, put together in one place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quartermaster.backends.assigning import Assigning
from quartermaster.backends.base import ServiceAgent, ServiceManager
from quartermaster.backends.etcd.agent import EtcdAgent
from quartermaster.backends.etcd.authorizing import EtcdAuthorization
from quartermaster.backends.etcd.client import EtcdClient
from quartermaster.backends.etcd.files import CERTIFICATES
from quartermaster.backends.etcd.maintenance import Maintenance
from quartermaster.backends.etcd.manager import EtcdManager
from quartermaster.backends.etcd.member import LocalMember
from quartermaster.backends.etcd.membership import EtcdSettings, Membership
from quartermaster.backends.etcd.rights import Rights
from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope, Service
from quartermaster.orchestration.backups import Backups
from quartermaster.orchestration.joining.access import StoreAccess
from quartermaster.orchestration.joining.certificates import CertificateAgent
from quartermaster.orchestration.joining.endpoint import JoinEndpoint
from quartermaster.orchestration.joining.issuing import CertificateManager, has_member_certificates
from quartermaster.orchestration.joining.remains import BACKUPS
from quartermaster.orchestration.joining.wire import PORT
from quartermaster.planning.health import HostHealth
from quartermaster.resources.orchestration import Host
from quartermaster.stores.kv.etcd.settings import Settings, parse

if TYPE_CHECKING:
    from quartermaster.orchestration.leader import BuildManager

# A leader that cannot reach etcd steps down soon; nobody waits longer than that for an answer here.
_PATIENCE_S = 8.0


def standalone_agents(directory: Path) -> Sequence[ServiceAgent]:
    return (CertificateAgent(directory), EtcdAgent(directory))


class Standalone:
    """What the leader's process runs for an etcd of our own: one object for all terms of the process."""

    def __init__(self, access: StoreAccess, settings: EtcdSettings | None = None, *, port: int = PORT) -> None:
        self._access = access
        self._settings = settings or EtcdSettings()
        self._port = port
        self._connections = Connections(access)

    def managers(self) -> Sequence[BuildManager]:
        """For the Orchestrator. Certificates come first: a member needs them."""
        return (self._certificates, self._etcd)

    def services(self) -> Sequence[Service]:
        """The endpoint for hosts that join listens where the host's member does: there it is known to the others."""
        access = self._access
        member = LocalMember(Path(access.directory)).read()
        address = member.address if member is not None else ""
        endpoint = JoinEndpoint(
            access.tls, self._connections.users, namespace=access.namespace, address=address, port=self._port
        )
        return (endpoint, Backups(access.leader_url, Path(access.directory) / BACKUPS), self._connections)

    def _certificates(self, scope: Scope, _health: HostHealth) -> ServiceManager:
        return CertificateManager(scope, namespace=self._access.namespace)

    def _etcd(self, scope: Scope, health: HostHealth) -> ServiceManager:
        namespace, tool = self._access.namespace, self._connections.tool()
        assigning = Assigning(scope, namespace)
        rights = Rights(self._connections.users(), scope.caches.of(Host, namespace))
        membership = Membership(
            scope,
            health,
            tool,
            rights,
            namespace=namespace,
            certified=lambda host: has_member_certificates(assigning.get(host, CERTIFICATES)),
            settings=self._settings,
        )
        return EtcdManager(scope, membership, rights, Maintenance(tool), namespace=namespace, settings=self._settings)


class Connections:
    """A leader's connections to etcd itself: opened when they are first used in a term, closed at its end."""

    name = "etcd-connections"

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._tool: EtcdClient | None = None
        self._users: EtcdAuthorization | None = None

    def tool(self) -> EtcdClient:
        if self._tool is None:
            self._tool = EtcdClient(self._settings())
        return self._tool

    def users(self) -> EtcdAuthorization:
        if self._users is None:
            self._users = EtcdAuthorization(self._settings(), namespace=self._access.namespace)
        return self._users

    def prepare(self, caches: Caches) -> None:
        """It reads no objects."""

    async def run(self, scope: Scope) -> None:
        try:
            await scope.stopping.wait()
        finally:
            opened = [one for one in (self._tool, self._users) if one is not None]
            self._tool = self._users = None
            for one in opened:
                await one.close()

    def _settings(self) -> Settings:
        return parse(self._access.leader_url, {}, deadline_s=_PATIENCE_S)
