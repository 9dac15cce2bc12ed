"""`qm delete`: what is meant goes, what it owns goes with it, and what holds it is named."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from quartermaster.engine.election import LEADER_LEASE
from quartermaster.provisioning.protocol import PROVISIONED_BY
from quartermaster.provisioning.volumes import goes_in_use
from quartermaster.resources import (
    ConfigMap,
    Event,
    Host,
    Lease,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageNode,
    from_document,
)
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.marks import MOUNTED, provisioner_of
from quartermaster.resources.orchestration import HostStatus
from quartermaster.stores import Store, open_store
from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.sqlite import SqliteKeyValue
from quartermaster.support import clock
from quartermaster.support.errors import UnavailableError
from tests.cli.conftest import SEED, Cli, node

Write = Callable[[str, str], Path]
Prepare = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture
def prepare(home: Path) -> Prepare:
    """Do something to the store behind the command's back."""

    def run(work: Callable[[Store], Awaitable[None]]) -> None:
        async def whole() -> None:
            store = await open_store(f"sqlite:{home}/.local/state/quartermaster/store.db")
            try:
                await work(store)
            finally:
                await store.close()

        asyncio.run(whole())

    return run


@pytest.fixture
def three(cli: Cli, write: Write) -> Cli:
    labelled = node("b").replace("  name: b", "  name: b\n  labels: {rack: one}")
    cli("apply", "-f", write("nodes.yaml", "---\n".join([node("a"), labelled, node("c")])))
    return cli


async def give_dependant(store: Store) -> None:
    owner = await store.get(StorageNode, "a", "default")
    reference = OwnerReference(api_version="coreos.com/v1", kind="StorageNode", name="a", uid=owner.metadata.uid)
    await store.create(ConfigMap(metadata=ObjectMeta(name="child", namespace="default", owner_references=(reference,))))


async def hold(store: Store) -> None:
    held = await store.get(StorageNode, "a", "default")
    meta = msgspec.structs.replace(held.metadata, finalizers=("example.org/drain",))
    await store.update(msgspec.structs.replace(held, metadata=meta))


def test_by_name(three: Cli) -> None:
    result = three("delete", "sn", "a", "c")
    assert result.lines == ['storagenode.coreos.com "a" deleted', 'storagenode.coreos.com "c" deleted']
    assert "store: sqlite:" in result.err
    assert three("get", "sn", "-o", "name").out == "storagenode.coreos.com/b\n"


def test_by_selector(three: Cli) -> None:
    assert three("delete", "sn", "-l", "rack=one").out == 'storagenode.coreos.com "b" deleted\n'
    assert three("delete", "sn", "-l", "rack=one").err.endswith("No resources found\n")


def test_by_file(three: Cli) -> None:
    assert len(three("delete", "-f", "nodes.yaml").lines) == 3
    again = three("delete", "-f", "nodes.yaml")
    assert again.code == 1
    assert again.err.count("cannot find storagenode") == 3
    assert three("delete", "-f", "nodes.yaml", "--ignore-not-found").code == 0


def test_a_dry_run_deletes_nothing(three: Cli) -> None:
    assert three("delete", "sn", "a", "--dry-run").out == 'storagenode.coreos.com "a" deleted (dry run)\n'
    assert three("get", "sn", "a").code == 0


def test_all_of_them_only_after_a_yes(three: Cli) -> None:
    refused = three("delete", "sn", "--all")
    assert refused.code == 2
    assert "cannot delete 3 objects without asking" in refused.err
    assert len(three("delete", "sn", "--all", "--yes").lines) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sn",), "cannot tell which objects to delete"),
        ((), "cannot tell which objects are meant"),
        (("sn", "a", "--all"), "cannot use --all with names"),
        (("sn", "a", "-f", "nodes.yaml"), "cannot delete by file and by name"),
        (("sn", "a", "-A"), "cannot look for a name in all namespaces"),
    ],
)
def test_what_is_ambiguous_is_refused(three: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    result = three("delete", *arguments)
    assert result.code == 2
    assert sentence in result.err


def test_what_it_owns_goes_with_it_where_nobody_leads(three: Cli, prepare: Prepare) -> None:
    prepare(give_dependant)
    assert "1 dependent object deleted" in three("delete", "sn", "a").out
    assert three("get", "cm", "child").code == 1


def test_foreground_ends_with_the_owner_gone_as_well(three: Cli, prepare: Prepare) -> None:
    prepare(give_dependant)
    assert three("delete", "sn", "a", "--cascade", "foreground").code == 0
    assert three("get", "sn", "a").code == 1
    assert three("get", "cm", "child").code == 1


def test_orphans_stay(three: Cli, prepare: Prepare) -> None:
    prepare(give_dependant)
    assert three("delete", "sn", "a", "--cascade", "orphan").code == 0
    assert three("get", "sn", "a").code == 1
    assert three("get", "cm", "child", "-o", "jsonpath={.metadata.ownerReferences}").out == ""


@pytest.mark.parametrize("namespace", ["default", "storage-system"])
def test_where_somebody_leads_the_collecting_is_theirs(three: Cli, prepare: Prepare, namespace: str) -> None:
    async def lead(store: Store) -> None:
        await give_dependant(store)
        spec = LeaseSpec(holder_identity="leader", lease_duration_seconds=600, lease_transitions=1)
        await store.create(Lease(metadata=ObjectMeta(name=LEADER_LEASE, namespace=namespace), spec=spec))

    prepare(lead)
    assert three("delete", "sn", "a").code == 0
    assert three("get", "cm", "child").code == 0


def test_old_events_go_as_well_where_nobody_leads(three: Cli, prepare: Prepare) -> None:
    async def happen(store: Store) -> None:
        for name, seen in (("old", "2020-01-01T00:00:00Z"), ("new", clock.timestamp())):
            about = ObjectReference(kind="StorageNode", namespace="default", name="a")
            meta = ObjectMeta(name=name, namespace="default")
            await store.create(Event(metadata=meta, involved_object=about, last_timestamp=seen))

    prepare(happen)
    assert three("delete", "sn", "a").out == 'storagenode.coreos.com "a" deleted\n'
    assert three("get", "events", "-o", "name").out == "event/new\n"


def test_what_is_deleted_is_deleted_though_its_dependants_cannot_be_collected(
    three: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise UnavailableError("cannot list pods: nobody answers")

    monkeypatch.setattr("quartermaster.engine.collector.collect_once", refuse)
    result = three("delete", "sn", "a")
    assert (result.code, result.out) == (0, 'storagenode.coreos.com "a" deleted\n')
    assert "note: deleted; dependants were not collected: cannot list pods: nobody answers" in result.err
    assert three("get", "sn", "a").code == 1


def test_where_nothing_was_deleted_nothing_is_collected(three: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def remember(store: object) -> None:
        asked.append(store)

    monkeypatch.setattr("quartermaster.cli.deleting.clean_up", remember)
    assert three("delete", "sn", "nothing").code == 1
    assert asked == []


@pytest.mark.slow
def test_what_is_held_by_a_finalizer_is_named_and_never_forced(three: Cli, prepare: Prepare) -> None:
    prepare(hold)
    result = three("delete", "sn", "a", "--timeout", "0.2")
    assert result.code == 1
    assert (
        'cannot see the end of storagenode.coreos.com "a" within 0.2 s: it is held by finalizer example.org/drain'
        in (result.err)
    )
    assert result.out == "", "it is not deleted"
    assert three("get", "sn", "a").code == 0
    unseen = three("delete", "sn", "a", "--no-wait")
    assert (unseen.code, unseen.out) == (0, 'storagenode.coreos.com "a" is being deleted\n')


@pytest.mark.slow
def test_why_it_is_held_is_said_in_the_words_of_its_own_status(three: Cli, prepare: Prepare) -> None:
    async def explain(store: Store) -> None:
        await hold(store)
        held = await store.get(StorageNode, "a", "default")
        status = msgspec.structs.replace(held.status, message="two volumes are left")
        await store.update_status(msgspec.structs.replace(held, status=status))

    prepare(explain)
    said = three("delete", "sn", "a", "--timeout", "0.2").err
    assert "it is held by finalizer example.org/drain (two volumes are left)" in said


async def mount(store: Store, made_by: str = "") -> None:
    """A claim whose volume is mounted."""
    modes = {"accessModes": ["ReadWriteOnce"]}
    meta = ObjectMeta(name="data", namespace="default", finalizers=("kubernetes.io/pvc-protection",))
    spec = {**modes, "volumeName": "v1", "resources": {"requests": {"storage": "1Gi"}}}
    claim = from_document(PersistentVolumeClaim, {"spec": spec})
    claim = await store.create(msgspec.structs.replace(claim, metadata=meta))
    reference = {"claimRef": {"namespace": "default", "name": "data", "uid": claim.metadata.uid}}
    annotations = {MOUNTED: '{"h2": ["/mnt/data"]}', **({PROVISIONED_BY: made_by} if made_by else {})}
    source = {"hostPath": {"path": "/srv"}}
    made = from_document(PersistentVolume, {"spec": {**modes, **source, **reference, "capacity": {"storage": "1Gi"}}})
    named = ObjectMeta(name="v1", annotations=annotations)
    await store.create(msgspec.structs.replace(made, metadata=named))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made_by", "options", "marked"),
    [
        (provisioner_of("glusterfs"), ["--force"], True),
        (provisioner_of("glusterfs"), [], False),
        (provisioner_of("glusterfs"), ["--force", "--dry-run"], False),
        ("example.org/other", ["--force"], False),
    ],
)
def test_a_volume_in_use_is_let_go_by_force_alone(
    cli: Cli, prepare: Prepare, made_by: str, options: list[str], marked: bool
) -> None:
    async def look(store: Store) -> None:
        volume = await store.get(PersistentVolume, "v1", "")
        assert goes_in_use(volume) is marked

    cli("apply", "-f", SEED)
    prepare(lambda store: mount(store, made_by))
    assert cli("delete", "pvc", "data", "--no-wait", *options).code == 0
    prepare(look)


@pytest.mark.slow
def test_who_deletes_a_claim_that_is_mounted_is_told_where_and_what_to_do(cli: Cli, prepare: Prepare) -> None:
    cli("apply", "-f", SEED)
    prepare(mount)
    result = cli("delete", "pvc", "data", "--timeout", "0.2")
    assert result.code == 1
    assert (
        "it is held by finalizer kubernetes.io/pvc-protection (mounted on h2 at /mnt/data: "
        "`qm volume unmount /mnt/data` there ends it; "
        "if h2 is gone for good, `qm volume unmount data --gone h2` does; "
        "nobody leads who could let it go; `qm up` starts this host)"
    ) in result.err


@pytest.mark.slow
def test_who_deletes_a_node_of_a_dead_host_is_told_how_to_give_it_up(three: Cli, prepare: Prepare) -> None:
    async def die(store: Store) -> None:
        await hold(store)
        held = await store.get(StorageNode, "a", "default")
        status = msgspec.structs.replace(held.status, host="h1", state="Degraded", message="host h1 has been silent")
        await store.update_status(msgspec.structs.replace(held, status=status))
        host = await store.create(Host(metadata=ObjectMeta(name="h1", namespace="default")))
        await store.update_status(msgspec.structs.replace(host, status=HostStatus(state="Silent")))

    prepare(die)
    assert (
        "(host h1 has been silent; host h1 does not answer; `qm up` on it starts its agent, "
        "`qm node remove a --lost` gives up what was on it)" in three("delete", "sn", "a", "--timeout", "0.2").err
    )


@pytest.mark.slow
def test_it_waits_until_the_finalizer_is_gone(
    three: Cli, prepare: Prepare, home: Path, running: Callable[..., object]
) -> None:
    prepare(hold)
    process = running("delete", "sn", "a", "--timeout", "50")
    assert process.stderr.readline().startswith("store: ")
    assert process.stderr.readline() == (
        'waiting for storagenode.coreos.com "a": held by finalizer example.org/drain\n'
    )

    async def release(store: Store) -> None:
        held = await store.get(StorageNode, "a", "default")
        meta = msgspec.structs.replace(held.metadata, finalizers=())
        await store.update(msgspec.structs.replace(held, metadata=meta))

    prepare(release)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, 'storagenode.coreos.com "a" deleted\n', "")


def test_a_file_with_a_mistake_deletes_nothing(cli: Cli, write: Write) -> None:
    cli("apply", "-f", SEED)
    result = cli("delete", "-f", SEED, "-f", write("bad.yaml", node("b", devicez="[]")))
    assert result.code == 1
    assert cli("get", "sn", "storage-node1").code == 0


@pytest.fixture
def one_unreadable(three: Cli, home: Path) -> Cli:
    """Three nodes, of which another program has written one that does not fit its type."""
    path = home / ".local" / "state" / "quartermaster" / "store.db"

    async def spoil() -> None:
        kv = await SqliteKeyValue.open(path)
        entry = await kv.get("/objects/coreos.com/storagenodes/default/a")
        assert entry is not None
        document = msgspec.json.decode(entry.value)
        document["spec"]["devices"] = 7
        await kv.transact([], [Put(entry.key, msgspec.json.encode(document))])
        await kv.close()

    asyncio.run(spoil())
    return three


@pytest.mark.slow
def test_what_cannot_be_read_is_deleted_by_its_name(one_unreadable: Cli) -> None:
    assert one_unreadable("get", "sn", "-o", "name").lines == ["storagenode.coreos.com/b", "storagenode.coreos.com/c"]
    refused = one_unreadable("get", "sn", "a")
    assert refused.code == 1
    assert 'cannot read storagenode "default/a"' in refused.err
    assert one_unreadable("delete", "sn", "a").out == 'storagenode.coreos.com "a" deleted\n'
    assert "cannot find" in one_unreadable("get", "sn", "a").err


def test_what_cannot_be_read_is_deleted_by_its_file(one_unreadable: Cli) -> None:
    assert one_unreadable("delete", "-f", "nodes.yaml").lines[-1] == 'storagenode.coreos.com "a" deleted'


def test_what_cannot_be_read_is_mended_by_an_apply(one_unreadable: Cli, write: Write) -> None:
    result = one_unreadable("apply", "-f", write("mended.yaml", node("a", devices="[/dev/vdb]")), "--force-conflicts")
    assert (result.code, result.out) == (0, "storagenode.coreos.com/a configured\n")
    assert one_unreadable("get", "sn", "a").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--timeout", "2s"], ["--timeout=1m"], ["--timeout", "30"], ["--timeout", "1h30m"],
                                     ["--wait=true"], ["--wait=false"], ["--wait"], ["--no-wait"]])  # fmt: skip
def test_waiting_is_said_as_kubectl_says_it(three: Cli, options: list[str]) -> None:
    assert three("delete", *options, "sn", "a").out == 'storagenode.coreos.com "a" deleted\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--timeout=2x", "is not a duration; for example 30, 2s or 1m"),
        ("--timeout=", "is not a duration"),
        ("--timeout=25h", "is more than a day"),
        ("--wait=perhaps", '--wait takes true or false, not "perhaps"'),
        ("--now", "there is no option --now"),
        ("--grace-period=0", "objects here have no grace period"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_explained(three: Cli, option: str, sentence: str) -> None:
    result = three("delete", "sn", "a", option)
    assert result.code == 2
    assert sentence in result.err
    assert three("get", "sn", "a").code == 0


def test_one_object_is_one_object(cli: Cli, write: Write) -> None:
    cli("apply", "-f", write("one.yaml", node("a")))
    assert "cannot delete 1 object without asking" in cli("delete", "sn", "--all").err
