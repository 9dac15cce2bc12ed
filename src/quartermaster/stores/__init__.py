"""Where objects live: the `Store` protocol and its four homes."""

from quartermaster.stores.base import Event, Fence, Page, Store
from quartermaster.stores.modify import modify
from quartermaster.stores.opening import open_store

__all__ = ["Event", "Fence", "Page", "Store", "modify", "open_store"]
