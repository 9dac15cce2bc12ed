"""The times of an orchestration, in one place: they are settings, and tests make seconds of them."""

from __future__ import annotations

import msgspec


class Timings(msgspec.Struct, frozen=True):
    heartbeat_s: float = 5.0  # between two heartbeats of an agent
    unhealthy_after_s: float = 30.0  # of silence: services may move
    move_data_after_s: float = 600.0  # of silence: data may move
    debounce_s: float = 5.0  # between the first change and the refresh that answers it
    sweep_s: float = 300.0  # between two looks at everything, for what was lost
    manager_s: float = 120.0  # the longest that one manager may take for one refresh
    verify_s: float = 60.0  # between two runs of a configuration that should change nothing
    daemons_s: float = 3.0  # between two looks whether the daemons still run
    inventory_s: float = 300.0  # between two full looks at the devices, beside those after a change
    deadline_s: float = 120.0  # of an assignment that has none of its own
