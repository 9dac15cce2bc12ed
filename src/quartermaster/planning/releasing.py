"""Which disks a cluster has given up: written down before anybody is asked to, so that its node may have them back.

A disk is taken back as it is, without formatting, if three agree: this record of the cluster, the host that the disk
was on, and the UUID of the file system that is on it now. A label alone says nothing: every cluster writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from quartermaster.planning.cluster import Desired, NodeView

MOST_BYTES = 512 << 10  # a cluster's memory is one object in the store, which has its limits
_PREFIX = "released."


def record_name(host: str) -> str:
    return _PREFIX + host


def is_record(name: str) -> bool:
    return name.startswith(_PREFIX)


def released_on(record: str | None) -> dict[str, str]:
    """Of one host: the disk's identity, or its path where it has none → the UUID of the file system that is ours."""
    return msgspec.json.decode(record, type=dict[str, str]) if record else {}


def with_releases(
    memory: Mapping[str, str], nodes: Iterable[NodeView], assignments: Iterable[Desired]
) -> dict[str, str]:
    """What is to be remembered before `assignments` are written.

    A disk is forgotten only when its assignment names it again, and not when it is about to: whoever is cut off in
    between finds it in one of the two.
    """
    by_host = {node.host: node for node in nodes if node.reports}
    wanted = dict(memory)
    size = sum(map(len, wanted.values()))
    for desired in assignments:
        node, name = by_host.get(desired.host), record_name(desired.host)
        report = node.report(desired.agent, desired.instance) if node is not None else None
        if report is None or report.absent or (report.desired == desired.config and name not in wanted):
            continue
        before, after = _disks(report.desired), _disks(desired.config)
        known = released_on(wanted.get(name))
        kept = {disk: uuid for disk, uuid in known.items() if not before.get(disk) == uuid == after.get(disk)}
        kept |= {disk: uuid for disk, uuid in before.items() if after.get(disk) != uuid}
        size -= len(wanted.pop(name, ""))
        record = msgspec.json.encode(kept, order="sorted").decode() if kept else ""
        if record and size + len(record) <= MOST_BYTES:
            wanted[name] = record
            size += len(record)
    return wanted


def _disks(config: Mapping[str, Any] | None) -> dict[str, str]:
    return {entry["id"] or entry["path"]: entry["uuid"] for entry in (config or {}).get("devices", ())}
