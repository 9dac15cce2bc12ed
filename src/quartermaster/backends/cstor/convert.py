"""The old CSPCAuto as a CStorClusterConfig.

CSPCAuto declared each pool by itself: a label that identifies one node, a number of disks, their capacity. What differs
between its pools cannot be said in a CStorClusterConfig; then the greatest is taken, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from quartermaster.resources.agility import GROUP, RAID_TYPES, VERSION
from quartermaster.resources.quantity import Amount, check_quantity
from quartermaster.support.errors import InvalidError, Problem

OLD_KIND = "CSPCAuto"
CLASS_ANNOTATION = f"{GROUP}/storage-class-name"
DRIVER_ANNOTATION = f"{GROUP}/csi-driver-name"

Document = dict[str, Any]


class Converted(msgspec.Struct, frozen=True):
    document: Document
    notes: tuple[str, ...] = ()


def convert(old: Document) -> Converted:
    """InvalidError lists what cannot be read."""
    problems = list(_problems(old))
    if problems:
        raise InvalidError(f"cannot convert {OLD_KIND}", problems)
    metadata = old["metadata"]
    pools = old["spec"]["cspiList"]
    items = pools.get("items") or []
    notes: list[str] = []
    count = _common("diskCount", [item.get("diskCount") for item in items], max, notes)
    capacity = _common("diskCapacity", [item.get("diskCapacity") for item in items], _largest, notes)
    disks: Document = {}
    if count is not None:
        disks["minCount"] = int(count)
    if capacity is not None:
        disks["minCapacity"] = capacity
    annotations = dict(metadata.get("annotations") or {})
    class_name, driver = annotations.pop(CLASS_ANNOTATION, ""), annotations.pop(DRIVER_ANNOTATION, "")
    if class_name and driver:
        disks["externalProvisioner"] = {"csiAttacherName": driver, "storageClassName": class_name}
    else:
        disks["local"] = {}
        notes.append(f"without {CLASS_ANNOTATION} and {DRIVER_ANNOTATION}, disks that exist already are used")
    spec: Document = {
        "minPoolCount": len(items),
        "maxPoolCount": len(items),
        "allowedNodes": {"nodeSelectorTerms": [{"matchLabels": _labels(item["nodeLabel"])} for item in items]},
        "diskConfig": disks,
    }
    if pools.get("poolType"):
        spec["poolConfig"] = {"raidType": pools["poolType"]}
    head: Document = {"name": metadata["name"]}
    for name, texts in (("namespace", metadata.get("namespace")), ("labels", metadata.get("labels"))):
        if texts:
            head[name] = texts
    if annotations:
        head["annotations"] = annotations
    document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "CStorClusterConfig", "metadata": head, "spec": spec}
    return Converted(document, tuple(notes))


def _problems(old: Document) -> Iterator[Problem]:
    if old.get("kind") != OLD_KIND:
        yield Problem("kind", f"must be {OLD_KIND}, is {old.get('kind')}")
        return
    metadata = old.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        yield Problem("metadata.name", "is missing")
    spec = old.get("spec")
    pools = spec.get("cspiList") if isinstance(spec, Mapping) else None
    if not isinstance(pools, Mapping):
        yield Problem("spec.cspiList", "is missing")
        return
    if (kind := pools.get("poolType")) and kind not in RAID_TYPES:
        yield Problem("spec.cspiList.poolType", f"must be one of {', '.join(RAID_TYPES)}; is {kind}")
    items = pools.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        yield Problem("spec.cspiList.items", "must be a list of pools")
        return
    for position, item in enumerate(items):
        path = f"spec.cspiList.items[{position}]"
        if not _labels(label := item.get("nodeLabel")):
            wrong = "is missing" if label is None else f"must be KEY=VALUE, is {label}"
            yield Problem(f"{path}.nodeLabel", wrong, "for example kubernetes.io/hostname=node-1")
        count, capacity = item.get("diskCount"), item.get("diskCapacity")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            yield Problem(f"{path}.diskCount", f"must be a whole number of at least 1, is {count}")
        if capacity is not None and (wrong := check_quantity(capacity)):
            yield Problem(f"{path}.diskCapacity", f"{wrong}, is {capacity}", "for example 10Gi")


def _labels(given: Any) -> dict[str, str]:
    """A map, or "key=value", or "key: value"."""
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    if isinstance(given, str):
        for separator in ("=", ":"):
            key, found, value = given.partition(separator)
            if found and key.strip():
                return {key.strip(): value.strip()}
    return {}


def _common(name: str, values: list[Any], greatest: Any, notes: list[str]) -> Any:
    given = [value for value in values if value is not None]
    if not given:
        return None
    chosen = greatest(given)
    if any(value != chosen for value in given):
        notes.append(f"{name} differs between the pools; {chosen}, the greatest, holds for all of them now")
    return chosen


def _largest(quantities: list[str | int]) -> str | int:
    return max(quantities, key=Amount.of)
