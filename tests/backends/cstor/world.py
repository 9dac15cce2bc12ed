"""A small world in which the hooks of the cStor backend run to rest: objects in a dict, and the parts around them.

It calls hooks as their contract says and applies the answers; stand-ins bind claims, attach volumes, show devices and
make pools as the CSI driver, the node disk manager and OpenEBS would. No store, no loop, no time of its own: what is
tested with it are the rules. The real parts have tests of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from quartermaster.backends.cstor import HOOKS
from quartermaster.backends.cstor.hook import CREATED_FOR_ANNOTATION, Attachments, Hook, SyncRequest, SyncResponse
from quartermaster.resources import from_document, kind_of, to_document
from quartermaster.resources.agility import GROUP, CStorClusterConfig, CStorClusterPlan, Storage
from quartermaster.resources.kind import applied_class
from quartermaster.resources.kubernetes.core import Node
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    POOL_CLUSTER_LABEL,
    POOL_INSTANCE_LABEL,
    VOLUME_LABEL,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
from quartermaster.resources.quantity import Amount
from quartermaster.support.clock import parse_timestamp

T = TypeVar("T", bound=Object)
GI = 2**30
OPENEBS = "openebs"
START = parse_timestamp("2020-01-01T00:00:00Z")
replace = msgspec.structs.replace


def timestamp(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(
    name: str, zone: str = "", *, ready: bool = True, cordoned: bool = False, uid: str = "", **labels: str
) -> Node:
    own = {HOSTNAME_LABEL: name, **({"topology.kubernetes.io/zone": zone} if zone else {}), **labels}
    return from_document(
        Node,
        {
            "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": own},
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
        },
    )


def device(name: str, host: str, gibibytes: int = 100, **changes: Any) -> BlockDevice:
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": OPENEBS,
            "uid": f"uid-{name}",
            "labels": {HOSTNAME_LABEL: host, **changes.pop("labels", {})},
        },
        "spec": {
            "path": changes.pop("path", f"/dev/{name}"),
            "capacity": {"storage": gibibytes * GI},
            "nodeAttributes": {"nodeName": host},
            "details": {"driveType": changes.pop("drive", "HDD"), "serial": changes.pop("serial", "")},
            "devlinks": [{"kind": "by-id", "links": list(changes.pop("links", ()))}],
            "filesystem": {"fsType": changes.pop("file_system", "")},
        },
        "status": {"claimState": changes.pop("claim", "Unclaimed"), "state": changes.pop("state", "Active")},
    }
    assert not changes, f"no such thing: {changes}"
    return from_document(BlockDevice, document)


def config(name: str = "pools", **spec: Any) -> CStorClusterConfig:
    """With disks from a provisioner unless something else is said."""
    spec.setdefault(
        "diskConfig", {"externalProvisioner": {"csiAttacherName": "csi.example", "storageClassName": "fast"}}
    )
    return from_document(
        CStorClusterConfig,
        {"metadata": {"name": name, "namespace": "storage", "uid": f"uid-{name}", "generation": 1}, "spec": spec},
    )


def external(**disks: Any) -> dict[str, Any]:
    return {"externalProvisioner": {"csiAttacherName": "csi.example", "storageClassName": "fast"}, **disks}


class World:
    """Objects by kind, namespace and name."""

    def __init__(self, *objects: Object) -> None:
        self.objects: dict[tuple[type[Object], str, str], Object] = {}
        self.seconds = 0.0
        self.events: list[tuple[str, str, str]] = []  # kind, reason, message
        self.applied: list[CStorPoolCluster] = []  # every pool cluster that was ever written
        self.parts: dict[tuple[str, str], set[str]] = {}  # labels that were stated, by watch and object
        self.broken_attach: set[str] = set()  # nodes to which nothing can be attached
        self.dead: set[str] = set()  # devices that do not answer
        self.used: dict[str, int] = {}  # GiB that the pool on a host holds
        self.offline: set[str] = set()  # hosts whose pool is not online
        self.uids = 0
        self.judge: Callable[[World, CStorPoolCluster | None, CStorPoolCluster], None] | None = None
        self.put(from_document(StorageClass, {"metadata": {"name": "fast"}, "provisioner": "csi.example"}))
        for obj in objects:
            self.put(obj)

    def put(self, obj: T) -> T:
        self.objects[type(obj), obj.metadata.namespace, obj.metadata.name] = obj
        return obj

    def of(self, kind: type[T]) -> list[T]:
        return [obj for key, obj in sorted(self.objects.items(), key=lambda item: item[0][1:]) if key[0] is kind]  # type: ignore[misc]

    def get(self, kind: type[T], name: str, namespace: str = "") -> T | None:
        return self.objects.get((kind, namespace, name))  # type: ignore[return-value]

    def remove(self, obj: Object) -> None:
        self.objects.pop((type(obj), obj.metadata.namespace, obj.metadata.name), None)

    @property
    def plan(self) -> CStorClusterPlan | None:
        return next(iter(self.of(CStorClusterPlan)), None)

    @property
    def config(self) -> CStorClusterConfig:
        return self.of(CStorClusterConfig)[0]

    @property
    def pool_cluster(self) -> CStorPoolCluster | None:
        return next(iter(self.of(CStorPoolCluster)), None)

    def planned(self) -> list[str]:
        return [entry.name for entry in self.plan.spec.nodes] if self.plan is not None else []

    def groups(self, host: str) -> list[list[str]]:
        assert self.pool_cluster is not None
        pool = next(p for p in self.pool_cluster.spec.pools if p.node_selector[HOSTNAME_LABEL] == host)
        return [[d.block_device_name for d in group.block_devices] for group in pool.data_raid_groups]

    def condition(self, type: str) -> tuple[str, str, str]:
        found = next(c for c in self.config.status.conditions if c.type == type)
        return found.status, found.reason, found.message

    def change(self, **spec: Any) -> None:
        """Change fields of the config's spec, as a user does."""
        document = to_document(self.config)
        document["spec"] = {**document["spec"], **spec}
        document["metadata"]["generation"] += 1
        self.put(from_document(CStorClusterConfig, document))

    def delete(self, obj: Object) -> None:
        """As an API server does it: what a hook finalizes is marked only."""
        finalized = any(hook.watch is type(obj) and hook.finalize for hook in HOOKS)
        if finalized:
            self.put(replace(obj, metadata=replace(obj.metadata, deletion_timestamp=timestamp(self.seconds))))
        else:
            self.remove(obj)

    def settle(self, rounds: int = 60) -> None:
        """Until nothing changes any more."""
        for _ in range(rounds):
            before = dict(self.objects)
            self.step()
            if self.objects == before:
                return
        raise AssertionError("the world does not come to rest")

    def step(self) -> None:
        """Every hook once for every object, then everybody else."""
        for hook in HOOKS:
            for watch in list(self.of(hook.watch)):
                self.call(hook, watch)
        self.stand_in()
        self.seconds += 1

    def call(self, hook: Hook, watch: Object) -> SyncResponse:
        finalizing = watch.metadata.deletion_timestamp is not None
        kinds = {rule.kind for rule in hook.attachments}
        attachments = Attachments(obj for key, obj in self.objects.items() if key[0] in kinds)
        request = SyncRequest(watch=watch, attachments=attachments, now=timestamp(self.seconds), finalizing=finalizing)
        response = hook.finalize(request) if finalizing and hook.finalize is not None else hook.sync(request)
        self._apply(hook, watch, response)
        return response

    def _apply(self, hook: Hook, watch: Object, response: SyncResponse) -> None:
        for event in response.events:
            self.events.append((kind_of(watch).kind, event.reason, event.message))
        if not response.skip_reconcile:
            for part in response.explicit_updates:
                self._merge_part(watch, part)
            wanted = set()
            for document in response.attachments:
                wanted.add(self._create_or_update(watch, document))
            owned = {rule.kind for rule in hook.attachments if rule.access == "own"}
            for key, obj in list(self.objects.items()):
                mark = obj.metadata.annotations.get(CREATED_FOR_ANNOTATION)
                ours = key[0] in owned and mark == watch.metadata.uid
                if ours and key not in wanted and obj.metadata.deletion_timestamp is None:
                    self.delete(obj)
            for document in response.explicit_deletes:
                cls = applied_class(document)
                meta = document["metadata"]
                found = self.get(cls, meta["name"], meta.get("namespace", ""))
                if found is not None and found.metadata.uid == meta["uid"]:
                    self.delete(found)
        current = self.get(hook.watch, watch.metadata.name, watch.metadata.namespace)
        if current is None:
            return
        if response.finalized and watch.metadata.deletion_timestamp is not None:
            self.remove(current)
        elif response.status is not None:
            self.put(from_document(hook.watch, {**to_document(current), "status": response.status}))

    def _create_or_update(self, watch: Object, document: dict[str, Any]) -> tuple[type[Object], str, str]:
        cls = applied_class(document)
        meta = document["metadata"]
        key = (cls, meta.get("namespace", ""), meta["name"])
        present = self.objects.get(key)
        if present is None:
            self.uids += 1
            annotations = {**meta.get("annotations", {}), CREATED_FOR_ANNOTATION: watch.metadata.uid}
            meta = {**meta, "annotations": annotations, "uid": f"made-{self.uids}", "generation": 1}
            self._written(from_document(cls, {**document, "metadata": meta}))
        elif present.metadata.deletion_timestamp is None:
            assert present.metadata.annotations.get(CREATED_FOR_ANNOTATION) == watch.metadata.uid
            self._merge(present, document)
        return key

    def _merge(self, present: Object, document: dict[str, Any]) -> None:
        old = to_document(present)
        new = {**old, **{k: v for k, v in document.items() if k not in ("metadata", "status")}}
        if "spec" in document and kind_of(present).group != GROUP:
            # Somebody else has fields beside ours.
            new["spec"] = {**old.get("spec", {}), **document["spec"]}
        meta = {**old["metadata"]}
        for texts in ("labels", "annotations"):
            if texts in document["metadata"]:
                meta[texts] = {**meta.get(texts, {}), **document["metadata"][texts]}
        new["metadata"] = meta
        changed = from_document(type(present), new)
        if getattr(changed, "spec", None) != getattr(present, "spec", None):
            changed = replace(changed, metadata=replace(changed.metadata, generation=present.metadata.generation + 1))
        if changed != present:
            self._written(changed)

    def _merge_part(self, watch: Object, part: dict[str, Any]) -> None:
        cls = applied_class(part)
        meta = part["metadata"]
        present = self.get(cls, meta["name"], meta.get("namespace", ""))
        if present is None:
            return
        self._merge(present, part)
        key = (watch.metadata.uid, f"{cls.__name__}/{meta['name']}")
        stated = set(meta.get("labels", {}))
        for label in self.parts.get(key, set()) - stated:
            now = self.get(cls, meta["name"], meta.get("namespace", ""))
            assert now is not None
            labels = {k: v for k, v in now.metadata.labels.items() if k != label}
            self.put(replace(now, metadata=replace(now.metadata, labels=labels)))
        self.parts[key] = stated

    def _written(self, obj: Object) -> None:
        if isinstance(obj, CStorPoolCluster):
            if self.judge is not None:
                self.judge(self, self.pool_cluster, obj)
            self.applied.append(obj)
        self.put(obj)

    def stand_in(self) -> None:
        self._bind()
        self._attach()
        self._discover()
        self._pool()

    def _bind(self) -> None:
        for claim in self.of(PersistentVolumeClaim):
            if claim.status.phase == "Bound":
                continue
            storage_class = self.get(StorageClass, claim.spec.storage_class_name or "")
            selected = claim.metadata.annotations.get("volume.kubernetes.io/selected-node")
            if storage_class is None:
                continue
            if storage_class.volume_binding_mode == "WaitForFirstConsumer" and selected is None:
                continue
            name = f"pvc-{claim.metadata.uid}"
            capacity = claim.spec.resources.requests["storage"]
            document: dict[str, Any] = {
                "metadata": {"name": name, "uid": f"uid-{name}"},
                "spec": {
                    "csi": {"driver": "csi.example", "volumeHandle": f"disks/{name}"},
                    "capacity": {"storage": capacity},
                    "claimRef": {"namespace": claim.metadata.namespace, "name": claim.metadata.name},
                },
            }
            zone = self._zone(selected) if selected else ""
            if zone:
                term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
                document["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
            self.put(from_document(PersistentVolume, document))
            self.put(
                replace(claim, spec=replace(claim.spec, volume_name=name), status=replace(claim.status, phase="Bound"))
            )
        claims = {(c.metadata.namespace, c.metadata.name) for c in self.of(PersistentVolumeClaim)}
        for volume in self.of(PersistentVolume):
            ref = volume.spec.claim_ref
            if ref is not None and (ref.namespace, ref.name) not in claims:
                self.remove(volume)

    def _zone(self, name: str) -> str:
        found = self.get(Node, name)
        return found.metadata.labels.get("topology.kubernetes.io/zone", "") if found is not None else ""

    def _attach(self) -> None:
        for attachment in self.of(VolumeAttachment):
            there = self.get(Node, attachment.spec.node_name) is not None
            if there and not attachment.status.attached and attachment.spec.node_name not in self.broken_attach:
                self.put(replace(attachment, status=replace(attachment.status, attached=True)))

    def _discover(self) -> None:
        attached = {
            a.spec.source.persistent_volume_name: a.spec.node_name
            for a in self.of(VolumeAttachment)
            if a.status.attached
        }
        for volume in self.of(PersistentVolume):
            name = "blockdevice-" + hashlib.sha256(volume.metadata.name.encode()).hexdigest()[:8]
            host = attached.get(volume.metadata.name)
            present = self.get(BlockDevice, name, OPENEBS)
            if present is None:
                if host is not None and name not in self.dead:
                    size = Amount.of(volume.spec.capacity["storage"]).bytes // GI
                    links = [f"/dev/disk/by-id/google-{volume.metadata.name}"]
                    self.put(device(name, host, size, links=links))
                continue
            state = "Active" if host is not None and name not in self.dead else "Inactive"
            labels = {**present.metadata.labels, **({HOSTNAME_LABEL: host} if host is not None else {})}
            attributes = replace(present.spec.node_attributes, node_name=labels[HOSTNAME_LABEL])
            self.put(
                replace(
                    present,
                    metadata=replace(present.metadata, labels=labels),
                    spec=replace(present.spec, node_attributes=attributes),
                    status=replace(present.status, state=state),
                )
            )
        for found in self.of(BlockDevice):
            if found.metadata.name in self.dead and found.status.state == "Active":
                self.put(replace(found, status=replace(found.status, state="Inactive")))

    def _pool(self) -> None:
        """As OpenEBS: an instance per pool, a claim per device, and what is no longer listed is released."""
        cluster = self.pool_cluster
        wanted: dict[str, Any] = {}
        used: dict[str, str] = {}
        for pool in cluster.spec.pools if cluster is not None else ():
            groups = (*pool.data_raid_groups, *pool.write_cache_raid_groups)
            names = [d.block_device_name for group in groups for d in group.block_devices]
            known = next((i for i in self.of(CStorPoolInstance) if self.devices_of(i) & set(names)), None)
            host = pool.node_selector[HOSTNAME_LABEL]
            assert cluster is not None
            name = known.metadata.name if known is not None else f"{cluster.metadata.name}-{names[0][-4:]}"
            wanted[name] = (pool, host)
            used.update(dict.fromkeys(names, cluster.metadata.name))
        for instance in self.of(CStorPoolInstance):
            if instance.metadata.name not in wanted:
                self.remove(instance)
        for name, (pool, host) in wanted.items():
            self._instance(name, pool, host)
        for claim in self.of(BlockDeviceClaim):
            if POOL_CLUSTER_LABEL in claim.metadata.labels and claim.spec.block_device_name not in used:
                self.remove(claim)
        for found in self.of(BlockDevice):
            self._claim(found, used.get(found.metadata.name))

    def devices_of(self, instance: CStorPoolInstance) -> set[str]:
        return {d.block_device_name for group in instance.spec.data_raid_groups for d in group.block_devices}

    def _instance(self, name: str, pool: Any, host: str) -> None:
        cluster = self.pool_cluster
        assert cluster is not None
        total = 0
        for group in pool.data_raid_groups:
            sizes = [self._size(d.block_device_name) for d in group.block_devices]
            total += sum(sizes) if pool.pool_config.data_raid_group_type == "stripe" else min(sizes)
        used = self.used.get(host, 10) * GI
        document = {
            "metadata": {
                "name": name,
                "namespace": OPENEBS,
                "uid": f"uid-{name}",
                "labels": {POOL_CLUSTER_LABEL: cluster.metadata.name, HOSTNAME_LABEL: host},
            },
            "spec": {
                "hostName": host,
                "nodeSelector": dict(pool.node_selector),
                "dataRaidGroups": msgspec.to_builtins(pool.data_raid_groups),
            },
            "status": {
                "phase": "OFFLINE" if host in self.offline else "ONLINE",
                "capacity": {"total": total, "used": used, "free": total - used},
                "provisionedReplicas": sum(
                    1 for r in self.of(CStorVolumeReplica) if r.metadata.labels[POOL_INSTANCE_LABEL] == name
                ),
            },
        }
        self.put(from_document(CStorPoolInstance, document))

    def _size(self, name: str) -> int:
        found = self.get(BlockDevice, name, OPENEBS)
        return found.spec.capacity.storage if found is not None else 0

    def _claim(self, found: BlockDevice, cluster: str | None) -> None:
        name = f"bdc-{found.metadata.uid}"
        ours = found.spec.claim_ref is not None and found.spec.claim_ref.name == name
        if cluster is not None:
            claim = {
                "metadata": {"name": name, "namespace": OPENEBS, "labels": {POOL_CLUSTER_LABEL: cluster}, "uid": name},
                "spec": {"blockDeviceName": found.metadata.name},
            }
            self.put(from_document(BlockDeviceClaim, claim))
            document = to_document(found)
            document["spec"]["claimRef"] = {"name": name}
            document["status"]["claimState"] = "Claimed"
            self.put(from_document(BlockDevice, document))
        elif ours:
            spec = replace(found.spec, claim_ref=None)
            self.put(replace(found, spec=spec, status=replace(found.status, claim_state="Unclaimed")))

    def volume_on(self, host: str, name: str = "volume", phase: str = "Healthy") -> CStorVolumeReplica:
        """A replica of a volume in the pool of that host."""
        instance = next(i for i in self.of(CStorPoolInstance) if i.spec.host_name == host)
        replica = from_document(
            CStorVolumeReplica,
            {
                "metadata": {
                    "name": f"{name}-{instance.metadata.name}",
                    "namespace": OPENEBS,
                    "labels": {POOL_INSTANCE_LABEL: instance.metadata.name, VOLUME_LABEL: name},
                },
                "status": {"phase": phase},
            },
        )
        return self.put(replica)

    def storages_on(self, host: str) -> list[Storage]:
        return [storage for storage in self.of(Storage) if storage.spec.node_name == host]

    def relabel(self, name: str, **labels: str | None) -> None:
        found = self.get(Node, name)
        assert found is not None
        changed = {**found.metadata.labels, **labels}
        kept = {key: value for key, value in changed.items() if value is not None}
        self.put(replace(found, metadata=replace(found.metadata, labels=kept)))

    def edit(self, kind: type[T], change: Callable[[T], T]) -> None:
        for obj in self.of(kind):
            self.put(change(obj))

    def reasons(self) -> Iterator[str]:
        return (reason for _, reason, _ in self.events)
