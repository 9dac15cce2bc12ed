"""The store on a real Kubernetes API server."""

from quartermaster.stores.kubernetes.connection import Connection, runs_in_cluster
from quartermaster.stores.kubernetes.store import KubernetesStore

__all__ = ["Connection", "KubernetesStore", "runs_in_cluster"]
