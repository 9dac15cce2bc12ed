"""Random operations on all four stores at once: they must show the same, and the real API server is the judge.

Each step is done on every store. What comes back (the object or the error, the conflict set), what a list shows, and
at the end the order of the watch's events are compared after uids, versions and times were replaced by "the first",
"the second", … that this store made.
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from quartermaster.resources import Condition, ConfigMap, Namespace, ObjectMeta, StorageNode
from quartermaster.resources.codec import from_document, to_document
from quartermaster.resources.model import Object, OwnerReference
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores import Store, open_store
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support import entropy
from quartermaster.support.errors import ApplyConflictError, NotFoundError, QuartermasterError
from quartermaster.testing.servers import EtcdAccess, KubernetesAccess

NAMES = st.sampled_from(["a", "b", "c"])
MANAGERS = st.sampled_from(["one", "two", "three"])
DEVICES = st.sampled_from([(), ("/dev/vdb",), ("/dev/vdb", "/dev/vdc"), ("/dev/vdc",)])
RACKS = st.sampled_from(["rack", "row"])
LABELS = st.dictionaries(RACKS, st.sampled_from(["1", "2"]), max_size=2)
FINALIZERS = st.lists(st.sampled_from(["example.com/x", "example.com/y"]), unique=True, max_size=2)
# An apply that states an empty map or list in the metadata is left out: the API server drops the empty value when it
# stores the object, so the next such apply differs from what is stored and makes a new version, once in a second.
SOME_LABELS = st.dictionaries(RACKS, st.sampled_from(["1", "2"]), min_size=1, max_size=2)
SOME_FINALIZERS = st.sampled_from([["example.com/x"], ["example.com/y"], ["example.com/x", "example.com/y"]])
STATUSES = st.lists(
    st.tuples(st.sampled_from(["Ready", "Healthy"]), st.sampled_from(["True", "False"])),
    unique_by=lambda pair: pair[0],
    max_size=2,
)
UIDS = {"x": "00000000-0000-4000-8000-00000000000a", "y": "00000000-0000-4000-8000-00000000000b"}
OWNERS = st.lists(st.sampled_from(sorted(UIDS)), unique=True, max_size=2)
SOME_OWNERS = st.lists(st.sampled_from(sorted(UIDS)), unique=True, min_size=1, max_size=2)
DRY_RUN = st.sampled_from([False, False, False, True])
DATA = st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["1", "2"]), max_size=2)
SOME_DATA = st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["1", "2"]), min_size=1, max_size=2)
KINDS: tuple[type[Object], ...] = (StorageNode, ConfigMap)
GLUSTERFS = st.sampled_from([None, {}, {"cluster": "x"}, {"cluster": "x", "zone": 1}, {"cluster": "y", "zone": 2}])
TIME = "2026-01-01T00:00:00Z"


def difference(name: str, shown: Any, judged: Any) -> str:
    """Only the lines that differ, with a few around them."""
    texts = [
        msgspec.json.format(msgspec.json.encode(value), indent=1).decode().splitlines() for value in (judged, shown)
    ]
    return "\n".join(difflib.unified_diff(*texts, "the API server", name, lineterm="", n=6))


def owners(names: list[str]) -> tuple[OwnerReference, ...]:
    """Owners that are nowhere: what becomes of their dependants is the collector's, and none runs here."""
    return tuple(OwnerReference(api_version="v1", kind="ConfigMap", name=n, uid=UIDS[n]) for n in names)


class Witness:
    """One store, with names for what only it can choose."""

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.namespace = f"judged-{entropy.name_suffix(8)}"
        self.start: dict[type[Object], str] = {}
        self._names: dict[str, str] = {}

    def normal(self, value: Any, key: str = "") -> Any:
        """`value` without what differs from store to store by nature."""
        if isinstance(value, dict):
            return {k: self.normal(v, k) for k, v in sorted(value.items()) if k not in ("time", "namespace")}
        if isinstance(value, list):
            items = [self.normal(v) for v in value]
            return sorted(items, key=repr) if key == "managedFields" else items
        if key in ("uid", "resourceVersion"):
            return self._names.setdefault(value, f"{key} {len(self._names)}")
        return "time" if key in ("creationTimestamp", "deletionTimestamp") else value

    def shown(self, obj: Object) -> Any:
        return self.normal(to_document(obj))


class Judged(RuleBasedStateMachine):
    etcd: ClassVar[EtcdAccess]
    kubernetes: ClassVar[KubernetesAccess]
    directory: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.witnesses: list[Witness] = []

    @initialize()
    def open(self) -> None:
        self.runner.run(self._open())

    async def _open(self) -> None:
        prefix = entropy.name_suffix(10)
        endpoints = ",".join(e.removeprefix("http://") for e in self.etcd.endpoints)
        judge = await KubernetesStore.open(kubeconfig=Path(self.kubernetes.kubeconfig))
        self.witnesses = [
            Witness("kubernetes", judge),
            Witness("memory", await open_store("memory:")),
            Witness("sqlite", await open_store(f"sqlite:{self.directory}/{prefix}.db")),
            Witness("etcd", await open_store(f"etcd://{endpoints}/{prefix}")),
        ]
        await judge.create(Namespace(metadata=ObjectMeta(name=self.witnesses[0].namespace)))
        for witness in self.witnesses:
            for kind in KINDS:
                witness.start[kind] = (await witness.store.list(kind, witness.namespace)).revision

    def everywhere(self, act: Callable[[Witness], Awaitable[Any]]) -> None:
        """Do it on every store and compare what came of it."""

        async def one(witness: Witness) -> Any:
            try:
                result = await act(witness)
            except ApplyConflictError as error:
                return ("ApplyConflict", [(c.manager, c.path) for c in error.conflicts])
            except QuartermasterError as error:
                return (type(error).__mro__[0].__name__.lstrip("_"),)
            return witness.shown(result) if isinstance(result, Object) else result

        async def all_of_them() -> dict[str, Any]:
            return {witness.name: await one(witness) for witness in self.witnesses}

        results = self.runner.run(all_of_them())
        judged = results.pop("kubernetes")
        for name, result in results.items():
            if result != judged:
                raise AssertionError(difference(name, result, judged))

    @rule(name=NAMES, devices=DEVICES, labels=LABELS, finalizers=FINALIZERS, owned_by=OWNERS, dry_run=DRY_RUN)
    def create(
        self,
        name: str,
        devices: tuple[str, ...],
        labels: dict[str, str],
        finalizers: list[str],
        owned_by: list[str],
        dry_run: bool,
    ) -> None:
        def act(witness: Witness) -> Awaitable[Any]:
            meta = ObjectMeta(
                name=name,
                namespace=witness.namespace,
                labels=labels,
                finalizers=tuple(finalizers),
                owner_references=owners(owned_by),
            )
            node = StorageNode(metadata=meta, spec=StorageNodeSpec(type="glusterfs", devices=devices))
            return witness.store.create(node, dry_run=dry_run)

        self.everywhere(act)

    @rule(
        name=NAMES,
        devices=DEVICES,
        labels=LABELS,
        finalizers=FINALIZERS,
        owned_by=OWNERS,
        glusterfs=GLUSTERFS,
        dry_run=DRY_RUN,
    )
    def update(
        self,
        name: str,
        devices: tuple[str, ...],
        labels: dict[str, str],
        finalizers: list[str],
        owned_by: list[str],
        glusterfs: dict[str, Any] | None,
        dry_run: bool,
    ) -> None:
        async def act(witness: Witness) -> Any:
            document = to_document(await witness.store.get(StorageNode, name, witness.namespace))
            document["metadata"].update(labels=labels, finalizers=finalizers)
            document["spec"].update(devices=list(devices), glusterfs=glusterfs)
            node = from_document(StorageNode, document)
            node = replace(node, metadata=replace(node.metadata, owner_references=owners(owned_by)))
            return await witness.store.update(node, dry_run=dry_run)

        self.everywhere(act)

    @rule(name=NAMES, statuses=STATUSES, devices=DEVICES, dry_run=DRY_RUN)
    def report(self, name: str, statuses: list[tuple[str, str]], devices: tuple[str, ...], dry_run: bool) -> None:
        async def act(witness: Witness) -> Any:
            found = await witness.store.get(StorageNode, name, witness.namespace)
            conditions = tuple(
                Condition(type=t, status=s, reason="R", message="m", last_transition_time=TIME) for t, s in statuses
            )
            status = replace(found.status, conditions=conditions)
            changed = replace(found, status=status, spec=replace(found.spec, devices=devices))
            return await witness.store.update_status(changed, dry_run=dry_run)

        self.everywhere(act)

    @rule(name=NAMES, kind=st.sampled_from(["stale", "foreign"]))
    def wrong_update(self, name: str, kind: str) -> None:
        async def act(witness: Witness) -> Any:
            found = await witness.store.get(StorageNode, name, witness.namespace)
            if kind == "foreign":
                uid = "00000000-0000-4000-8000-000000000000"
                return await witness.store.update(replace(found, metadata=replace(found.metadata, uid=uid)))
            toggled = () if found.metadata.annotations else (("seen", "yes"),)
            await witness.store.update(replace(found, metadata=replace(found.metadata, annotations=dict(toggled))))
            return await witness.store.update(replace(found, spec=replace(found.spec, devices=("/dev/stale",))))

        self.everywhere(act)

    @rule(
        name=NAMES,
        manager=MANAGERS,
        devices=st.none() | DEVICES,
        labels=st.none() | SOME_LABELS,
        finalizers=st.none() | SOME_FINALIZERS,
        owned_by=st.none() | SOME_OWNERS,
        glusterfs=GLUSTERFS,
        force=st.booleans(),
        dry_run=DRY_RUN,
    )
    def apply(
        self,
        name: str,
        manager: str,
        devices: tuple[str, ...] | None,
        labels: dict[str, str] | None,
        finalizers: list[str] | None,
        owned_by: list[str] | None,
        glusterfs: dict[str, Any] | None,
        force: bool,
        dry_run: bool,
    ) -> None:
        def act(witness: Witness) -> Awaitable[Any]:
            meta: dict[str, Any] = {"name": name, "namespace": witness.namespace}
            spec: dict[str, Any] = {"type": "glusterfs"}
            if labels is not None:
                meta["labels"] = labels
            if finalizers is not None:
                meta["finalizers"] = finalizers
            if owned_by is not None:
                meta["ownerReferences"] = [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": UIDS[n]} for n in owned_by
                ]
            if devices is not None:
                spec["devices"] = list(devices)
            if glusterfs is not None:
                spec["glusterfs"] = glusterfs
            document = {"apiVersion": "coreos.com/v1", "kind": "StorageNode", "metadata": meta, "spec": spec}
            return witness.store.apply(document, manager=manager, force=force, dry_run=dry_run)

        self.everywhere(act)

    @rule(name=NAMES, manager=MANAGERS, statuses=STATUSES, force=st.booleans())
    def apply_status(self, name: str, manager: str, statuses: list[tuple[str, str]], force: bool) -> None:
        def act(witness: Witness) -> Awaitable[Any]:
            conditions = [
                {"type": t, "status": s, "reason": "R", "message": "m", "lastTransitionTime": TIME} for t, s in statuses
            ]
            document = {
                "apiVersion": "coreos.com/v1",
                "kind": "StorageNode",
                "metadata": {"name": name, "namespace": witness.namespace},
                "status": {"conditions": conditions},
            }
            return witness.store.apply(document, manager=manager, force=force, status=True)

        self.everywhere(act)

    @rule(
        kind=st.sampled_from(KINDS),
        name=NAMES,
        propagation=st.sampled_from(["Background", "Foreground", "Orphan"]),
        precondition=st.sampled_from(["", "", "uid", "revision", "wrong uid", "wrong revision"]),
        dry_run=DRY_RUN,
    )
    def delete(self, kind: type[Object], name: str, propagation: Any, precondition: str, dry_run: bool) -> None:
        async def act(witness: Witness) -> Any:
            asked: dict[str, Any] = {"propagation": propagation, "dry_run": dry_run}
            if precondition == "wrong uid":
                asked["uid"] = UIDS["x"]
            elif precondition == "wrong revision":
                asked["revision"] = "1"
            elif precondition:
                meta = (await witness.store.get(kind, name, witness.namespace)).metadata
                asked[precondition] = {"uid": meta.uid, "revision": meta.resource_version}[precondition]
            gone = await witness.store.delete(kind, name, witness.namespace, **asked)
            # What comes back of an object that is gone at once differs in its last version; that it is gone does not.
            try:
                return await witness.store.get(kind, name, witness.namespace)
            except NotFoundError:
                return ("gone", gone.metadata.name)

        self.everywhere(act)

    @rule(name=NAMES, data=DATA, owned_by=OWNERS, dry_run=DRY_RUN)
    def create_settings(self, name: str, data: dict[str, str], owned_by: list[str], dry_run: bool) -> None:
        def act(witness: Witness) -> Awaitable[Any]:
            meta = ObjectMeta(name=name, namespace=witness.namespace, owner_references=owners(owned_by))
            return witness.store.create(ConfigMap(metadata=meta, data=data), dry_run=dry_run)

        self.everywhere(act)

    @rule(name=NAMES, data=DATA, finalizers=FINALIZERS, dry_run=DRY_RUN)
    def update_settings(self, name: str, data: dict[str, str], finalizers: list[str], dry_run: bool) -> None:
        async def act(witness: Witness) -> Any:
            found = await witness.store.get(ConfigMap, name, witness.namespace)
            meta = replace(found.metadata, finalizers=tuple(finalizers))
            return await witness.store.update(replace(found, metadata=meta, data=data), dry_run=dry_run)

        self.everywhere(act)

    @rule(name=NAMES, manager=MANAGERS, data=SOME_DATA, force=st.booleans(), dry_run=DRY_RUN)
    def apply_settings(self, name: str, manager: str, data: dict[str, str], force: bool, dry_run: bool) -> None:
        def act(witness: Witness) -> Awaitable[Any]:
            meta = {"name": name, "namespace": witness.namespace}
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            return witness.store.apply(document, manager=manager, force=force, dry_run=dry_run)

        self.everywhere(act)

    @rule(
        labels=st.sampled_from(["", "rack=1", "rack!=1", "rack in (1,2),row", "!row"]),
        fields=st.sampled_from(["", "metadata.name=a", "spec.type!=glusterfs", "metadata.name!=b"]),
    )
    def list(self, labels: str, fields: str) -> None:
        async def act(witness: Witness) -> Any:
            page = await witness.store.list(StorageNode, witness.namespace, labels=labels, fields=fields)
            return [witness.shown(item) for item in page.items]

        self.everywhere(act)

    @rule(kind=st.sampled_from(KINDS), limit=st.sampled_from([1, 2]), labels=st.sampled_from(["", "rack=1"]))
    def list_in_parts(self, kind: type[Object], limit: int, labels: str) -> None:
        async def act(witness: Witness) -> Any:
            parts: list[Any] = []
            continues = ""
            while not parts or continues:
                page = await witness.store.list(
                    kind, witness.namespace, labels=labels, limit=limit, continues=continues
                )
                continues = page.continues
                # Where nothing is left but what the selector refuses, an API server may end with an empty part.
                if page.items or not parts:
                    parts.append([witness.shown(item) for item in page.items])
            return parts

        self.everywhere(act)

    @invariant()
    def all_show_the_same(self) -> None:
        if self.witnesses:
            self.list("", "")
            self.everywhere(self._settings)

    async def _settings(self, witness: Witness) -> Any:
        return [witness.shown(item) for item in (await witness.store.list(ConfigMap, witness.namespace)).items]

    def teardown(self) -> None:
        try:
            if self.witnesses:
                self.everywhere(self._history)
        finally:
            self.runner.run(self._close())
            self.runner.close()

    async def _history(self, witness: Witness) -> Any:
        """All events of both kinds, each as far as a last object that is made for this."""
        meta = ObjectMeta(name="zz-last", namespace=witness.namespace)
        await witness.store.create(StorageNode(metadata=meta, spec=StorageNodeSpec(type="glusterfs")))
        await witness.store.create(ConfigMap(metadata=meta))
        return [await self._events(witness, kind) for kind in KINDS]

    @staticmethod
    async def _events(witness: Witness, kind: type[Object]) -> Any:
        seen: list[Any] = []
        watch = witness.store.watch(kind, witness.namespace, since=witness.start[kind])
        async with asyncio.timeout(20), aclosing(watch) as events:
            async for event in events:
                if event.object is None:
                    continue
                seen.append((event.type, witness.shown(event.object)))
                if event.object.metadata.name == "zz-last":
                    break
        return seen

    async def _close(self) -> None:
        for witness in self.witnesses:
            if witness.name == "kubernetes":
                for kind in KINDS:
                    for item in (await witness.store.list(kind, witness.namespace)).items:
                        await witness.store.update(replace(item, metadata=replace(item.metadata, finalizers=())))
                await witness.store.delete(Namespace, witness.namespace)
            await witness.store.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_stores_show_what_the_api_server_shows(
    etcd_servers: EtcdAccess, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    Judged.etcd, Judged.kubernetes, Judged.directory = etcd_servers, kubernetes_server, tmp_path
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Judged,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_all_stores_show_what_the_api_server_shows_at_length(
    etcd_servers: EtcdAccess, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    Judged.etcd, Judged.kubernetes, Judged.directory = etcd_servers, kubernetes_server, tmp_path
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Judged,
        settings=settings(
            max_examples=500,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
