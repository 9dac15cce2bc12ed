"""Our own object semantics over a revisioned key-value store."""

from quartermaster.stores.objects.store import ObjectStore

__all__ = ["ObjectStore"]
