"""The controller's process: hooks, their caller, leadership, and what our own stores need beside it."""

from __future__ import annotations

from collections.abc import Iterable

from quartermaster.backends.cstor.hook import Hook
from quartermaster.engine import Collector, Election, Expiry, Listen, Metrics, Runtime
from quartermaster.hooks.callers import Caller
from quartermaster.hooks.controller import WORKERS, hook_controllers
from quartermaster.resources.names import DEFAULT_NAMESPACE
from quartermaster.stores.base import Store

LEASE = "cstorpoolauto-controller"


def controller_runtime(
    store: Store,
    hooks: Iterable[Hook],
    *,
    caller: Caller | None = None,
    watch_namespace: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    lease: str = LEASE,
    identity: str = "",
    listen: Listen | None = None,
    workers: int = WORKERS,
    signals: bool = False,
) -> Runtime:
    """A runtime that calls the hooks while it leads.

    `namespace` is where the Lease is, `watch_namespace` the one whose objects are served, None for all.
    """
    metrics = Metrics()
    election = Election(store, name=lease, namespace=namespace, identity=identity, metrics=metrics)
    runtime = Runtime(store, component=lease, election=election, listen=listen, metrics=metrics, signals=signals)
    for controller in hook_controllers(hooks, caller=caller, namespace=watch_namespace, workers=workers):
        runtime.add(controller)
    # Kubernetes does both by itself, and there they do nothing.
    runtime.add(Collector())
    runtime.add(Expiry())
    return runtime
