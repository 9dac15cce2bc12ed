"""The embedded default: a revisioned key-value store in one SQLite file, for several processes at once.

    schema        tables, and the version of the file
    files         where the file is, who may read it, the sidecar beside it (write lock, notification)
    faults        what SQLite and the system say, as typed sentences
    opening       connections, and what must be so before the first one
    worker        one thread with one connection
    ledger        what a write does, inside one SQLite transaction
    queries       what a read does
    writer        group commit
    notification  the kernel's word that another process has written (inotify)
    watcher       one range that is watched, with its buffer
    watching      one reader of new changes for all watchers, and the timer of leases
    store         the `KeyValue` made of these

docs/design/embedded-store.md says why it is built this way.
"""

from quartermaster.stores.kv.sqlite.files import default_path
from quartermaster.stores.kv.sqlite.ledger import HistoryLimits
from quartermaster.stores.kv.sqlite.store import SqliteKeyValue

__all__ = ["HistoryLimits", "SqliteKeyValue", "default_path"]
