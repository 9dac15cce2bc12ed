"""The key-value interface on etcd 3.4 and later: several members, TLS, users; a lost member is latency and no more."""

import os

# gRPC's fork handlers stop all its threads around a fork, and deadlock when one of them is busy. Nothing here forks
# without exec, so they are switched off; gRPC reads the variable when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from quartermaster.stores.kv.etcd.keyvalue import EtcdKeyValue, connect
from quartermaster.stores.kv.etcd.settings import Settings

__all__ = ["EtcdKeyValue", "Settings", "connect"]
