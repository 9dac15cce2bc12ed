"""Whether a host lives, as far as the leader can tell: what rules and managers are given to decide by."""

from __future__ import annotations

from typing import Protocol

import msgspec

# What is written into the state of a Host. The first is its condition, too.
READY = "Ready"
SILENT = "Silent"
LOST = "Lost"


class HostState(msgspec.Struct, frozen=True):
    """`healthy`: its heartbeat is fresh. `lost`: silent for so long that its data may move. Never both."""

    healthy: bool = True
    lost: bool = False
    silent_s: float = 0.0  # since the leader last saw its heartbeat change, by the leader's own clock


class HostHealth(Protocol):
    """Asks nothing of the store and never waits."""

    def of(
        self, host: str, *, unhealthy_after_s: float | None = None, move_data_after_s: float | None = None
    ) -> HostState:
        """The state of a host; without a heartbeat ever seen, silence counts from the beginning of the term.

        Times other than the orchestrator's own (a StorageCluster may have some) are remembered: from then on, a host
        that passes one of them causes a refresh too.
        """
        ...
