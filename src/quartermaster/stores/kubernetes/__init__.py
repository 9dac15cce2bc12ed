"""The store on a real Kubernetes API server.

`KubernetesStore` is loaded when it is first asked for: whoever only wants to know whether there is a kubeconfig or a
service account does not wait for an HTTP client to be imported.
"""

from typing import TYPE_CHECKING, Any

from quartermaster.stores.kubernetes.connection import Connection, runs_in_cluster

if TYPE_CHECKING:
    from quartermaster.stores.kubernetes.store import KubernetesStore

__all__ = ["Connection", "KubernetesStore", "runs_in_cluster"]


def __getattr__(name: str) -> Any:
    if name != "KubernetesStore":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from quartermaster.stores.kubernetes.store import KubernetesStore

    return KubernetesStore
