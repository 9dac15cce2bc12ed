"""The process that holds everything: what the operator of one namespace runs while it leads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from quartermaster.backends.base import Backend
from quartermaster.backends.registry import installed_backends
from quartermaster.engine import Collector, Election, Expiry, Listen, Metrics, Runtime, Service
from quartermaster.engine.election import LEADER_LEASE, LEASE_S, RETRY_S
from quartermaster.operators.acting import WhenActing
from quartermaster.operators.cluster import READS, ClusterManager
from quartermaster.operators.ledger import Ledger
from quartermaster.operators.views import ClusterViews
from quartermaster.orchestration.joining.access import StoreAccess
from quartermaster.orchestration.leader import BuildManager, Orchestrator
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning import claims_controller
from quartermaster.resources.storage import DEFAULT_CLUSTER
from quartermaster.stores.base import Store
from quartermaster.support.log import logger

if TYPE_CHECKING:
    from quartermaster.backends.etcd.membership import EtcdSettings


_log = logger("operators.assembly")


def operator_runtime(
    store: Store,
    *,
    namespace: str = "default",
    types: Sequence[str] = (),
    backends: Sequence[Backend] | None = None,
    timings: Timings = Timings(),  # noqa: B008 - frozen
    access: StoreAccess | None = None,
    etcd: EtcdSettings | None = None,
    managers: Sequence[BuildManager] = (),
    identity: str = "",
    lease_s: int = LEASE_S,
    retry_s: float = RETRY_S,
    listen: Listen | None = None,
    metrics: Metrics | None = None,
    signals: bool = False,
) -> Runtime:
    """A candidate for the lead of a namespace; made inside a running loop.

    `types` narrows it to some storage systems, whose default clusters are then shown from the start. With `access`,
    that of an etcd of our own, it also keeps that etcd (by the times of `etcd`) and lets hosts join. `managers` come
    before all others.
    """
    used = metrics or Metrics()
    served = tuple(backends) if backends is not None else installed_backends(types)
    ledger, views = Ledger(), ClusterViews()
    clusters: BuildManager = partial(
        ClusterManager,
        namespace=namespace,
        backends=served,
        ledger=ledger,
        views=views,
        always=[ClusterKey(namespace, name, DEFAULT_CLUSTER) for name in sorted(types)],
        all_types=not types,
    )
    runtime = Runtime(
        store,
        component="quartermaster",
        election=Election(
            store,
            name=lease_name(types),
            namespace=namespace,
            identity=identity,
            lease_s=lease_s,
            retry_s=retry_s,
            metrics=used,
        ),
        listen=listen,
        metrics=used,
        signals=signals,
    )
    own, services = standalone_parts(access, etcd)
    # What became of a host is told before its member of etcd is asked, which takes seconds where it is cut off.
    runtime.add(Orchestrator([*managers, clusters, *own], timings, namespace=namespace, reads=READS))
    for service in services:
        runtime.add(service)
    for service in claims_controller(namespace, served, views, bind=store.fences):
        runtime.add(service)
    runtime.add(WhenActing(Collector(), namespace))
    runtime.add(Expiry())
    return runtime


def standalone_parts(
    access: StoreAccess | None, etcd: EtcdSettings | None = None
) -> tuple[Sequence[BuildManager], Sequence[Service]]:
    """What an etcd of our own adds: its managers, and the endpoint at which hosts join."""
    if access is None:
        return (), ()
    from quartermaster.orchestration.joining.roles import Standalone

    parts = Standalone(access, etcd)
    return parts.managers(), parts.services()


async def ensure_kinds(store: Store) -> None:
    """On an API server: the definitions of our kinds that are missing. Our own stores know the kinds by themselves."""
    if store.fences:
        return
    from quartermaster.stores.kubernetes.definitions import ensure_crds
    from quartermaster.stores.kubernetes.store import KubernetesStore

    if isinstance(store, KubernetesStore):
        verdicts = await ensure_crds(store)
        if differing := sorted(name for name, verdict in verdicts.items() if verdict == "differs"):
            # The server drops the fields that they do not know, and some are what decisions go by.
            hint = "replace them with `qm crd install --upgrade`"
            _log.warning("definitions are of another version", definitions=differing, hint=hint)


def lease_name(types: Sequence[str]) -> str:
    """Operators of different storage systems in one namespace lead beside each other."""
    return "-".join([LEADER_LEASE, *sorted(types)])
