"""From a store's URL to the store. Each implementation is imported only when it is asked for.

memory:                                  gone when the process ends
sqlite:PATH                              the embedded store
etcd://HOST:PORT,HOST:PORT/PREFIX        our own objects in etcd; etcds:// with TLS
kubernetes:CONTEXT                       an API server, by a context of the kubeconfig ("" is its current one)
kubernetes:in-cluster                    the API server of the Pod that this runs in
"""

from __future__ import annotations

from pathlib import Path

from quartermaster.stores.base import Store
from quartermaster.support.errors import UsageError

IN_CLUSTER = "in-cluster"
PATIENCE_S = 30.0


async def open_store(url: str, *, manager: str = "quartermaster", patience_s: float = PATIENCE_S) -> Store:
    """The store of that URL. `manager` is the name under which its writes own fields.

    `patience_s` is how long a call waits for a server that does not answer, where the URL does not say it itself.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "kubernetes":
        return await _open_kubernetes(rest, manager, patience_s)
    if scheme not in ("memory", "sqlite", "etcd", "etcds"):
        raise UsageError(
            f'cannot open the store "{url}": it is neither memory:, sqlite:PATH, etcd://… nor kubernetes:CONTEXT',
            hint="for example --store sqlite:./store.db",
        )
    from quartermaster.stores.objects import ObjectStore

    if scheme == "memory":
        from quartermaster.stores.kv.memory import MemoryKeyValue

        return ObjectStore(MemoryKeyValue(), manager=manager)
    if scheme == "sqlite":
        from quartermaster.stores.kv.sqlite import SqliteKeyValue

        if not rest:
            raise UsageError("cannot open the embedded store: no path is given", hint="sqlite:PATH")
        return ObjectStore(await SqliteKeyValue.open(_path(rest)), manager=manager)
    try:
        from quartermaster.stores.kv.etcd import connect
    except ImportError as error:
        raise _missing_extra(url, "etcd") from error
    return ObjectStore(connect(url, deadline_s=patience_s), manager=manager)


def _path(text: str) -> Path:
    return Path(text).expanduser()


async def _open_kubernetes(context: str, manager: str, patience_s: float) -> Store:
    try:
        from quartermaster.stores.kubernetes import KubernetesStore
    except ImportError as error:
        raise _missing_extra(f"kubernetes:{context}", "kubernetes") from error
    if context == IN_CLUSTER:
        return await KubernetesStore.in_cluster(manager=manager, patience_s=patience_s)
    return await KubernetesStore.open(context, manager=manager, patience_s=patience_s)


def _missing_extra(url: str, extra: str) -> UsageError:
    hint = f"pip install quartermaster[{extra}]"
    return UsageError(f'cannot open the store "{url}": a package is missing', hint=hint)
