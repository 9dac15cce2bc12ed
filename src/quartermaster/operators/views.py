"""The clusters as the leader last saw them, for those who place volumes on them."""

from __future__ import annotations

from collections.abc import Mapping

from quartermaster.planning.cluster import ClusterKey, ClusterView


class ClusterViews:
    """Filled by each refresh; call it with a key. Empty until the first refresh of a term."""

    def __init__(self) -> None:
        self._views: dict[ClusterKey, ClusterView] = {}

    def __call__(self, key: ClusterKey) -> ClusterView | None:
        return self._views.get(key)

    def publish(self, views: Mapping[ClusterKey, ClusterView]) -> None:
        self._views = dict(views)

    def put(self, view: ClusterView) -> None:
        """One that is ONLINE from now on: known here before it is said, for whoever waits for that is woken by it."""
        self._views[view.key] = view

    def clear(self) -> None:
        """A new term begins: what an earlier one saw does not count."""
        self._views = {}
