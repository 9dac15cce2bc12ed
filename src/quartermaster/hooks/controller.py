"""The controller of hooks: for each hook a controller of the engine on the kind that it watches.

`hook_controllers` makes them for a set of hooks. They share one inventory of what a cluster has very many of, and know
each other's finalizers, so that an object which one hook makes and another one watches is born with its finalizer.
"""

from __future__ import annotations

from collections.abc import Iterable

from quartermaster.backends.cstor.hook import Hook
from quartermaster.engine import Caches, Controller, Predicate, Reconciler, Scope, all_of, any_of, finalizers_changed
from quartermaster.hooks.callers import Caller, InProcess
from quartermaster.hooks.gathering import Gatherer, SharedInventory
from quartermaster.hooks.reconciling import HookReconciler
from quartermaster.hooks.watched import finalizer_of
from quartermaster.resources.model import Object

WORKERS = 4
TIMEOUT_S = 60.0


class HookController:
    """A `Service` of the engine: calls one hook for every object that it watches."""

    def __init__(
        self,
        hook: Hook,
        caller: Caller,
        shared: SharedInventory | None,
        finalizers: dict[type[Object], tuple[str, ...]],
        *,
        namespace: str | None = None,
        workers: int = WORKERS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.hook = hook
        self._namespace = namespace
        self._caller = caller
        self._shared = shared
        self._finalizers = finalizers
        self._workers = workers
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        return f"hook-{self.hook.name}"

    def prepare(self, caches: Caches) -> None:
        """Indexes and the inventory as well: they fill while the process is only a candidate."""
        Gatherer(self.hook, caches, self._shared, self._namespace)

    async def run(self, scope: Scope) -> None:
        gatherer = Gatherer(self.hook, scope.caches, self._shared, self._namespace)

        def build(term: Scope) -> Reconciler:
            return HookReconciler(self.hook, self._caller, term, gatherer, self._finalizers)

        controller = Controller(
            self.name,
            self.hook.watch,
            build,
            predicate=_predicate(self.hook),
            watches=gatherer.wakers(),
            namespace=self._namespace,
            workers=self._workers,
            timeout_s=self._timeout_s,
        )
        await controller.run(scope)


def hook_controllers(
    hooks: Iterable[Hook],
    *,
    caller: Caller | None = None,
    namespace: str | None = None,
    workers: int = WORKERS,
    timeout_s: float = TIMEOUT_S,
) -> tuple[HookController, ...]:
    """Services for a `Runtime`. Without a caller the hooks run in this process, without a namespace they serve all."""
    hooks = tuple(hooks)
    caller = caller or InProcess()
    finalizers: dict[type[Object], tuple[str, ...]] = {}
    for hook in hooks:
        if hook.finalize is not None:
            finalizers[hook.watch] = (*finalizers.get(hook.watch, ()), finalizer_of(hook))
    shared = SharedInventory() if caller.in_process else None
    return tuple(
        HookController(hook, caller, shared, finalizers, namespace=namespace, workers=workers, timeout_s=timeout_s)
        for hook in hooks
    )


def _predicate(hook: Hook) -> Predicate | None:
    if hook.matters is None:
        return None
    return any_of(hook.matters, all_of(finalizers_changed, _finalizers_matter(hook)), _deletion_began)


def _finalizers_matter(hook: Hook) -> Predicate:
    """Of what is being deleted, and where the hook's own is missing; that this controller added it is no news."""
    own = finalizer_of(hook) if hook.finalize is not None else None

    def matters(_: Object | None, new: Object | None) -> bool:
        if new is None or new.metadata.deletion_timestamp is not None:
            return True
        return own is not None and own not in new.metadata.finalizers

    return matters


def _deletion_began(old: Object | None, new: Object | None) -> bool:
    if old is None or new is None:
        return True
    return old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
