"""What must always be true of leader, agents and disks, and who notices when it is not.

The `Witness` sees every write to the store and every change of a disk at the moment at which it takes effect. What the
processes believe does not matter to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quartermaster.engine.election import LEADER_LEASE
from quartermaster.engine.runtime import Runtime
from quartermaster.host.devices.model import Device, Signature
from quartermaster.resources.codec import Document, decode_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import Event, Lease
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects.keys import held_key, kind_prefix
from quartermaster.testing.simulation import Process, SeededFaults, record
from quartermaster.testing.simulation.process import PROCESS
from tests.simulation.invariants import CONVERGES, FENCED, ONE_LEADER, ViolationError

CHOSEN = "no device is touched that was not chosen, or whose identity differs"
CONSENT = "nothing that might be somebody's data is wiped without a consent that names the disk"
INTENT_FIRST = "what is about to be done was written down before"
KEPT = "a finished volume is never made anew, and goes only when somebody asked for it"
NO_LEAK = "nothing is left over on a host"
QUIET = "a second configuration run changes nothing"

NAMESPACE = "default"
ASSIGNMENTS = kind_prefix(kind_of(Assignment))
NODES = kind_prefix(kind_of(StorageNode))
CLAIMS = kind_prefix(kind_of(PersistentVolumeClaim))
# Written without a fence: what keeps the lead itself, and what is said to people.
UNFENCED = (kind_prefix(kind_of(Lease)), kind_prefix(kind_of(Event)))
HELD = held_key(kind_of(Lease), NAMESPACE, LEADER_LEASE)

__all__ = [
    "CHOSEN",
    "CONSENT",
    "CONVERGES",
    "FENCED",
    "INTENT_FIRST",
    "KEPT",
    "NO_LEAK",
    "ONE_LEADER",
    "QUIET",
    "ViolationError",
    "Witness",
]


class Witness:
    """The `Faults` of the store: those of the seed, and a look at each write."""

    def __init__(self, kv: MemoryKeyValue, faults: SeededFaults) -> None:
        self.violation: ViolationError | None = None
        self.leaders: dict[Process[None], Runtime] = {}
        self.writes = 0  # but for leases and Events
        self.trace: list[tuple[str, str]] = []  # of those: who, and what
        self.chosen: Callable[[str, str], None] = lambda _host, _serial: None  # told of each disk, once
        self._kv = kv
        self._faults = faults
        self._revision = 1
        self._uuids: dict[tuple[str, str], str] = {}  # (host, UUID of a file system) → identity of the disk
        self._consents: dict[str, None] = {}  # that were ever given, and not used since
        self.finished = 0  # reports of volumes that are there
        self.wiped: dict[str, None] = {}  # serial numbers
        self._intents: dict[str, None] = {}  # uids of claims on which an intent was written
        self._finished: dict[tuple[str, str], str] = {}  # (host, volume) that somebody may have written to → its path
        kv.faults = self

    async def before(self, call: str, key: str) -> None:
        await self._faults.before(call, key)

    async def after(self, call: str, key: str) -> None:
        await self._look(key)
        await self._faults.after(call, key)

    async def deliver(self, key: str) -> None:
        await self._faults.deliver(key)

    def violated(self, invariant: str, detail: str) -> None:
        """Note the first violation, in whichever process it was noticed; the scenario ends with it."""
        if self.violation is None:
            self.violation = ViolationError(invariant, detail)
            record("violation", str(self.violation))

    def raise_violation(self) -> None:
        if self.violation is not None:
            raise self.violation

    def written(self, host: str, before: Device, signatures: tuple[Signature, ...]) -> None:
        """A disk is about to be changed by an agent."""
        record("disk", host, before.path, before.serial, *(f"{one.uuid} {one.label}" for one in signatures))
        if signatures:
            self._check_format(host, before, signatures)
        elif before.signatures:
            self._check_wipe(host, before)

    def mounted(self, host: str, device: Device) -> None:
        uuid = next((one.uuid for one in device.signatures), "")
        if self._uuids.get((host, uuid)) != device.serial:
            self.violated(CHOSEN, f"{host} mounts {device.path} ({device.serial}), which nobody assigned")

    def _check_format(self, host: str, before: Device, signatures: tuple[Signature, ...]) -> None:
        uuid = signatures[0].uuid
        wanted = self._uuids.get((host, uuid))
        if wanted is None:
            self.violated(INTENT_FIRST, f"{host} formats {before.path} as {uuid}, which no assignment names")
        elif wanted != before.serial:
            self.violated(CHOSEN, f"{host} formats {before.path}, which is {before.serial} and not {wanted}")
        if any(one.uuid != uuid for one in before.signatures):
            self.violated(CONSENT, f"{host} formats over {before.signatures[0].type} on {before.serial}")

    def _check_wipe(self, host: str, before: Device) -> None:
        if before.serial not in self._consents:
            self.violated(CONSENT, f"{host} wipes {before.path} ({before.serial})")
        self._consents.pop(before.serial, None)
        self.wiped[before.serial] = None

    def is_ours(self, host: str, device: Device) -> bool:
        return any(self._uuids.get((host, one.uuid)) == device.serial for one in device.signatures)

    def directory_made(self, host: str, path: str) -> None:
        if self._finished.get((host, _volume(path))) == path:
            self.violated(KEPT, f"{host} makes {path} again")

    def directory_removed(self, host: str, path: str) -> None:
        """What is left of an earlier try on another disk was asked for when that was taken back."""
        if self._finished.get((host, _volume(path))) == path:
            self.violated(KEPT, f"{host} removes {path}, and nobody asked for it")

    async def _look(self, key: str) -> None:
        revision = await self._kv.revision()
        if revision == self._revision:
            return
        self._revision = revision
        record("write", revision, key)
        self._check_leaders()
        if key.startswith(UNFENCED):
            return
        if not self._faults.overtaking:
            self.writes += 1
            process = PROCESS.get()
            self.trace.append((process.name if process is not None else "", key))
        self._check_fence(key)
        value = self._value(key) if key.startswith((ASSIGNMENTS, NODES, CLAIMS)) else None
        if value is not None:
            self._learn(key, value)

    def _value(self, key: str) -> Document | None:
        entry = self._kv._entries.get(key)
        return decode_document(entry.value) if entry is not None else None

    def _learn(self, key: str, value: Document) -> None:
        if key.startswith(ASSIGNMENTS):
            self._learn_assignment(value["spec"], value.get("status", {}))
        elif key.startswith(NODES):
            used = {one["id"] for one in value.get("status", {}).get("wiped", ())}
            for serial in value["spec"].get("wipe", ()):
                if serial not in used:
                    self._consents[serial] = None
        elif key.startswith(CLAIMS) and INTENT in value["metadata"].get("annotations", {}):
            self._intents[value["metadata"]["uid"]] = None

    def _learn_assignment(self, spec: dict[str, Any], status: dict[str, Any]) -> None:
        desired = spec.get("desired") or {}
        for entry in desired.get("devices", ()):
            if (spec["host"], entry["uuid"]) not in self._uuids:
                self._uuids[spec["host"], entry["uuid"]] = entry["id"]
                self.chosen(spec["host"], entry["id"])
        instance = spec.get("instance", "")
        if spec.get("absent"):
            self._finished.pop((spec["host"], instance), None)
        elif status.get("state") == SUCCEEDED and status.get("observedGeneration") == spec["generation"]:
            self._finished[spec["host"], instance] = desired.get("path", "")
            self.finished += instance.startswith("pvc-")
        if instance.startswith("pvc-") and desired and instance.removeprefix("pvc-") not in self._intents:
            self.violated(INTENT_FIRST, f"{instance} is made, and no claim says so")

    def _check_leaders(self) -> None:
        holding = [process.name for process, leader in self.leaders.items() if _leads(leader)]
        if len(holding) > 1:
            self.violated(ONE_LEADER, f"{' and '.join(holding)} both do")

    def _check_fence(self, key: str) -> None:
        """A write from a leader's process needs that leader to be the holder at this very moment."""
        process = PROCESS.get()
        leader = self.leaders.get(process) if process is not None else None
        if leader is None or self._faults.overtaking:
            return
        entry = self._kv._entries.get(HELD)
        held = entry.value.decode() if entry is not None else "nobody"
        leadership = leader.leadership
        fence = leadership.fence if leadership is not None else None
        if fence is None or held != f"{fence.epoch} {fence.holder}":
            self.violated(FENCED, f"{fence} wrote {key}, held by {held}")


def _volume(path: str) -> str:
    return path.rpartition("/")[2]


def _leads(runtime: Runtime) -> bool:
    return runtime.leadership is not None and runtime.leadership.holds
