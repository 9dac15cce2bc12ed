"""Whether there was a reason to give up a brick, judged when the leader wrote down that it would.

A reason is something that happened to its host or disk, a disk that is not back yet, a host that was silent, or a node
that is to go. What the
leader had heard may be older than what is so: whatever happened lately counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from quartermaster.resources.codec import Document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ConfigMap, Lease
from quartermaster.stores.objects.keys import kind_prefix
from quartermaster.testing.simulation import record
from tests.simulation.orchestration.invariants import NODES

from .hosts import GlusterMachine

LEASES = kind_prefix(kind_of(Lease))
MEMORIES = kind_prefix(kind_of(ConfigMap))
LATELY_S = 90.0
SILENT_S = 30.0


class Judge:
    def __init__(self, addresses: Mapping[str, str], machines: Mapping[str, GlusterMachine]) -> None:
        """Both are by host."""
        self.verdicts: dict[str, bool] = {}  # brick → whether there was a reason
        self._hosts = {address: host for host, address in addresses.items()}
        self._machines = machines
        self._disturbed: dict[str, float] = {}
        self._beats: dict[str, float] = {}
        self._wipes: dict[str, tuple[str, ...]] = {}
        self._staying: dict[str, bool] = {}  # host → whether its node is to stay

    def disturbed(self, host: str) -> None:
        self._disturbed[host] = _now()

    def beat(self, host: str) -> None:
        if _now() - self._beats.get(host, 0.0) > SILENT_S:
            self.disturbed(host)
        self._beats[host] = _now()

    def saw(self, key: str, value: Document | None) -> None:
        if key.startswith(NODES):
            host = key.rpartition("/")[2].removeprefix("node-")
            wipe = tuple(value["spec"].get("wipe", ())) if value is not None else ()
            if wipe != self._wipes.get(host, ()):
                self._wipes[host] = wipe
                self.disturbed(host)  # somebody has given up a disk
            self._staying[host] = value is not None and not value["metadata"].get("deletionTimestamp")
        elif key.startswith(MEMORIES) and value is not None:
            record("memory", *(f"{name}: {value['data'].get(name, '')}" for name in ("behind", "down")))
            moves = msgspec.json.decode((value.get("data") or {}).get("moves", "{}"))
            for moved in moves.values():
                if moved.get("open"):
                    old = moved["open"]["old"]
                    self.verdicts.setdefault(old, self._has_reason(old.partition(":")[0]))

    def _has_reason(self, address: str) -> bool:
        host = self._hosts.get(address, "")
        lately = _now() - self._disturbed.get(host, -LATELY_S) < LATELY_S
        silent = _now() - self._beats.get(host, 0.0) > SILENT_S
        missing = host in self._machines and bool(self._machines[host].pulled)
        return not self._staying.get(host, False) or lately or silent or missing


def _now() -> float:
    return asyncio.get_running_loop().time()
