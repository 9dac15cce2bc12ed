"""Where an object stands among the keys.

    /objects/<group or core>/<plural>/<namespace or ->/<name>
    /objects/<group or core>/<plural>/<namespace>/<host or ->/<name>     kinds that belong to a host
    /held/<namespace>/<host or ->/<lease>                                 there while somebody keeps the Lease alive

All objects of a kind are one range, all of a namespace one range in it. What a host may write (its Host, its
Assignments' reports, its heartbeat) lies under `…/<namespace>/<host>/`, so an etcd role is limited by prefix: the
`-` that stands for "none" can be neither a namespace nor a host.
"""

from __future__ import annotations

from quartermaster.resources.kind import Kind
from quartermaster.stores.kv.base import prefix_end

NONE = "-"


def object_key(kind: Kind, namespace: str, name: str) -> str:
    middle = f"{kind.host_of(name) or NONE}/" if kind.host else ""
    return f"{kind_prefix(kind)}{namespace or NONE}/{middle}{name}"


def place_of(key: str) -> tuple[str, str]:
    """Namespace and name of the object at a key."""
    _, _, _, _, namespace, *_, name = key.split("/")
    return "" if namespace == NONE else namespace, name


def kind_prefix(kind: Kind) -> str:
    return f"/objects/{kind.group or 'core'}/{kind.plural}/"


def kind_range(kind: Kind, namespace: str | None) -> tuple[str, str]:
    """The range of a kind's objects, in one namespace or in all (None)."""
    prefix = kind_prefix(kind) if namespace is None else f"{kind_prefix(kind)}{namespace or NONE}/"
    return prefix, prefix_end(prefix)


def selected_range(kind: Kind, namespace: str | None, *, name: str | None, host: str | None) -> tuple[str, str]:
    """The part of that range in which the object of a name, or the objects of a host, can be.

    An agent that follows its own Assignments is then not told of those of ten thousand others.
    """
    place = namespace if kind.namespaced else ""
    if name and place is not None:
        key = object_key(kind, place, name)
        return key, key + "\0"
    if host and kind.host and namespace:
        prefix = f"{kind_prefix(kind)}{namespace}/{host}/"
        return prefix, prefix_end(prefix)
    return kind_range(kind, namespace)


def held_key(kind: Kind, namespace: str, name: str) -> str:
    """The key behind a Lease; `kind` is the Lease's."""
    return f"/held/{namespace}/{kind.host_of(name) or NONE}/{name}"


def host_prefixes(kinds: tuple[Kind, ...], namespace: str, host: str) -> tuple[str, ...]:
    """All that a host's own role may write."""
    own = tuple(f"{kind_prefix(kind)}{namespace}/{host}/" for kind in kinds if kind.host)
    return (*own, f"/held/{namespace}/{host}/")
