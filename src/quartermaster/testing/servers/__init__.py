"""Real servers as test fixtures: a store is proven against the program that users run, not against a twin of it.

    async with EtcdCluster(directory, size=3) as etcd: ...
    async with KubernetesServer(directory) as kubernetes: ...

`python -m quartermaster.testing.servers etcd --directory D` keeps one running for as long as it is wanted.
"""

from .binaries import (
    ETCD_VERSION,
    KUBERNETES_VERSION,
    OLDEST_ETCD,
    ServerMissingError,
    build_is_running,
    find_etcd,
    find_program,
    wait_for_build,
)
from .certificates import CertificateFiles
from .etcd import EtcdAccess, EtcdCluster, EtcdMember
from .kubernetes import KubernetesAccess, KubernetesServer
from .ports import Ports
from .processes import ServerFailedError, ServerProcess

__all__ = [
    "ETCD_VERSION",
    "KUBERNETES_VERSION",
    "OLDEST_ETCD",
    "CertificateFiles",
    "EtcdAccess",
    "EtcdCluster",
    "EtcdMember",
    "KubernetesAccess",
    "KubernetesServer",
    "Ports",
    "ServerFailedError",
    "ServerMissingError",
    "ServerProcess",
    "build_is_running",
    "find_etcd",
    "find_program",
    "wait_for_build",
]
