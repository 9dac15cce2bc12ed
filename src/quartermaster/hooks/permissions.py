"""What a controller of hooks must be allowed to do on Kubernetes: read off the hooks' declarations, and no more.

Each verb stands for a call that the controller makes: caches list and watch; a create whose name is taken reads whose
it is, a delete reads what it deletes, and before that the watched object and what might speak against it are read anew
(get); own objects are made, replaced and deleted; parts of objects of others are applied (patch); the watched object is
replaced with its finalizer (update), and so is its status. `…/finalizers` is asked for where owner references block a
deletion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quartermaster.backends.cstor.hook import Access, Hook
from quartermaster.resources import Event, Lease
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object

Rule = dict[str, Any]

_READ = ("list", "watch")
_VERBS: dict[Access, tuple[str, ...]] = {
    "read": _READ,
    "update": (*_READ, "patch"),
    "own": (*_READ, "get", "create", "update", "patch", "delete"),
}
_ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")


def cluster_rules(hooks: Iterable[Hook]) -> list[Rule]:
    """The rules of a ClusterRole: what hooks watch, look at and write, and the Events about it."""
    verbs: dict[tuple[str, str], dict[str, None]] = {}

    def allow(cls: type[Object], allowed: Iterable[str], subresource: str = "") -> None:
        info = kind_of(cls)
        verbs.setdefault((info.group, info.plural + subresource), {}).update(dict.fromkeys(allowed))

    for hook in hooks:
        allow(hook.watch, (*_READ, "get", "update"))
        if kind_of(hook.watch).status_subresource:
            allow(hook.watch, ("update",), "/status")
        allow(hook.watch, ("update",), "/finalizers")
        for rule in hook.attachments:
            allow(rule.kind, _VERBS[rule.access])
            if rule.confirm is not None:
                allow(rule.kind, ("get",))
    allow(Event, ("create", "update"))
    return _grouped(verbs)


def lease_rules(name: str) -> list[Rule]:
    """The rules of a Role, in the namespace of the Lease by which leaders are elected."""
    info = kind_of(Lease)
    return [
        {"apiGroups": [info.group], "resources": [info.plural], "verbs": ["create"]},
        {
            "apiGroups": [info.group],
            "resources": [info.plural],
            "resourceNames": [name],
            "verbs": ["get", "list", "watch", "update"],
        },
    ]


def _grouped(verbs: dict[tuple[str, str], dict[str, None]]) -> list[Rule]:
    """One rule for all resources of a group that have the same verbs."""
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), allowed in sorted(verbs.items()):
        resources.setdefault((group, tuple(sorted(allowed, key=_ORDER.index))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": names, "verbs": list(allowed)}
        for (group, allowed), names in resources.items()
    ]
