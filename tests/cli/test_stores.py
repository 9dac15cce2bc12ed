"""The design document's own StorageNode, verbatim, with `qm` on each store and with `kubectl` on a real API server."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from quartermaster import stores
from quartermaster.support import entropy
from quartermaster.support.errors import UnauthorizedError
from quartermaster.testing.servers import EtcdAccess, KubernetesAccess, KubernetesServer
from tests.cli.conftest import SEED, Cli, Program, node

Write = Callable[[str, str], Path]
TITLE = "storagenode.coreos.com/storage-node1"


def test_the_example_is_the_one_of_the_design_document() -> None:
    document = yaml.safe_load(SEED.read_text())
    assert document["spec"] == {
        "type": "glusterfs",
        "nodeSelector": {"kubernetes.io/hostname": "storage-node1"},
        "storageNetwork": {"ips": ["10.10.10.100"]},
        "devices": ["/dev/vdb", "/dev/vdc", "/dev/vdd"],
        "glusterfs": {"cluster": "cluster1", "zone": 1},
    }


def use(qm: Program, store: str) -> None:
    """Apply, see, apply again, watch nothing change, delete: the whole life of an object."""
    first = qm("--store", store, "apply", "-f", SEED)
    assert (first.code, first.out) == (0, f"{TITLE} created\n")
    assert "store: " in first.err
    assert qm("--store", store, "apply", "-f", SEED).out == f"{TITLE} unchanged\n"
    shown = yaml.safe_load(qm("--store", store, "get", "sn", "storage-node1", "-o", "yaml").out)
    assert shown["spec"] == yaml.safe_load(SEED.read_text())["spec"]
    assert shown["metadata"]["generation"] == 1
    rows = [line.split() for line in qm("--store", store, "get", "storagenodes").lines]
    assert rows[0] == ["NAME", "TYPE", "CLUSTER", "HOST", "STATE", "AGE"]
    assert rows[1][:2] == ["storage-node1", "glusterfs"]
    assert qm("--store", store, "diff", "-f", SEED).code == 0
    assert "Storage Network:" in qm("--store", store, "describe", "sn", "storage-node1").out
    assert qm("--store", store, "delete", "-f", SEED).out == 'storagenode.coreos.com "storage-node1" deleted\n'
    assert qm("--store", store, "get", "sn").out == ""


@pytest.mark.slow
def test_sqlite(qm: Program, tmp_path: Path) -> None:
    use(qm, f"sqlite:{tmp_path}/store.db")


@pytest.mark.slow
def test_memory(qm: Program) -> None:
    """Gone with the process, so one command is its whole life."""
    result = qm("--store", "memory:", "apply", "-f", SEED)
    assert (result.code, result.out) == (0, f"{TITLE} created\n")


def test_etcd(qm: Program, etcd_servers: EtcdAccess) -> None:
    endpoints = ",".join(endpoint.removeprefix("http://") for endpoint in etcd_servers.endpoints)
    use(qm, f"etcd://{endpoints}/{entropy.name_suffix(12)}")


@pytest.fixture
async def namespace(qm: Program, kubernetes_server: KubernetesAccess) -> AsyncIterator[str]:
    """One of its own on the API server, which the kubeconfig's context names."""
    name = f"cli-{entropy.name_suffix(8)}"
    await kubernetes_server.kubectl("create", "namespace", name)
    config = yaml.safe_load(Path(kubernetes_server.kubeconfig).read_text())
    config["contexts"][0]["context"]["namespace"] = name
    path = Path(qm.directory) / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    qm.environment["KUBECONFIG"] = str(path)
    yield name
    await kubernetes_server.kubectl("delete", "namespace", name, "--wait=false")


def test_kubernetes(qm: Program, namespace: str) -> None:
    use(qm, "kubernetes:")


def test_without_a_word_the_kubeconfigs_context_is_used_and_named(qm: Program, namespace: str) -> None:
    result = qm("apply", "-f", SEED)
    assert result.code == 0
    assert re.search(
        r"^store: kubernetes:\S+ \(https://.*\) \(the kubeconfig's current context\)$", result.err, re.MULTILINE
    )
    version = qm("version")
    assert "Server:     Kubernetes v1." in version.out


async def test_kubectl_applies_it_verbatim_and_both_see_the_same(
    qm: Program, namespace: str, kubernetes_server: KubernetesAccess
) -> None:
    said = await kubernetes_server.kubectl("-n", namespace, "apply", "-f", str(SEED))
    assert said == f"{TITLE} created\n"
    theirs = await kubernetes_server.kubectl("-n", namespace, "get", "storagenodes", "-o", "name")
    assert theirs == qm("get", "storagenodes", "-o", "name").out == f"{TITLE}\n"
    template = 'jsonpath={range .items[*]}{.metadata.name}{"\\t"}{.spec.devices[?(@=="/dev/vdc")]}{"\\n"}{end}'
    theirs = await kubernetes_server.kubectl("-n", namespace, "get", "sn", "-o", template)
    assert theirs == qm("get", "sn", "-o", template).out == "storage-node1\t/dev/vdc\n"


async def test_kubectl_explains_the_fields(namespace: str, kubernetes_server: KubernetesAccess, qm: Program) -> None:
    theirs = await kubernetes_server.kubectl("explain", "storagenode.spec")
    ours = qm("explain", "storagenode.spec").out
    assert theirs.splitlines()[:3] == ours.splitlines()[:3]
    fields = re.compile(r"^  (\w+)\t<(\S+)>( -required-)?", re.MULTILINE)
    assert fields.findall(theirs) == fields.findall(ours)
    assert "glusterfs" in theirs


async def test_kubectl_shows_the_columns_of_a_status_and_qm_the_same(
    namespace: str, kubernetes_server: KubernetesAccess, qm: Program, write: Write
) -> None:
    status = (
        "apiVersion: coreos.com/v1\nkind: StorageStatus\nmetadata: {name: glusterfs-a}\n"
        "spec: {type: glusterfs, status: OFFLINE}\n"
    )
    assert qm("apply", "-f", write("status.yaml", status)).code == 0
    theirs = await kubernetes_server.kubectl("-n", namespace, "get", "storagestatus")
    headers = ["NAME", "TYPE", "STATUS", "NODES", "READY", "USED", "CAPACITY", "MESSAGE", "AGE"]
    assert theirs.splitlines()[0].split() == headers == qm("get", "storagestatus").lines[0].split()
    assert theirs.splitlines()[1].split()[:3] == ["glusterfs-a", "glusterfs", "OFFLINE"]


async def test_both_own_the_fields_that_they_apply_and_meet_as_a_conflict(
    qm: Program, namespace: str, kubernetes_server: KubernetesAccess, write: Write
) -> None:
    kubectl = kubernetes_server.kubectl
    zone_1 = write("one.yaml", node("a", glusterfs="{zone: 1}"))
    zone_2 = write("two.yaml", node("a", glusterfs="{zone: 2}", devices="[/dev/vdb]"))
    await kubectl("-n", namespace, "apply", "--server-side", "-f", str(zone_1))

    ours = qm("apply", "-f", zone_2)
    assert ours.code == 1
    assert ".spec.glusterfs.zone: owned by kubectl" in ours.err
    assert "--force-conflicts" in ours.err
    assert qm("apply", "-f", zone_2, "--force-conflicts").out == "storagenode.coreos.com/a configured\n"

    with pytest.raises(Exception, match='conflict with "qm"') as refused:
        await kubectl("-n", namespace, "apply", "--server-side", "-f", str(zone_1))
    assert ".spec.glusterfs.zone" in str(refused.value)
    managers = qm("get", "sn", "a", "-o", "jsonpath={.metadata.managedFields[*].manager}", "--show-managed-fields").out
    assert set(managers.split()) == {"kubectl", "qm"}


def test_definitions_that_are_there_are_left_alone(qm: Program, namespace: str) -> None:
    result = qm("crd", "install")
    assert result.code == 0
    assert "customresourcedefinition.apiextensions.k8s.io/storagenodes.coreos.com unchanged" in result.lines


@pytest.mark.slow
async def test_a_definition_that_differs_is_named_and_replaced_on_request_only(
    qm: Program, kubernetes_throwaway: Callable[..., Awaitable[KubernetesServer]]
) -> None:
    server = await kubernetes_throwaway()
    qm.environment["KUBECONFIG"] = str(server.kubeconfig)
    title = "customresourcedefinition.apiextensions.k8s.io/storagenodes.coreos.com"
    assert f"{title} created" in qm("crd", "install").lines
    assert {line.split()[1] for line in qm("crd", "install").lines} == {"unchanged"}

    older = '[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/wipe"}]'
    await server.kubectl("patch", "crd", "storagenodes.coreos.com", "--type=json", f"--patch={older}")
    kept = qm("crd", "install")
    assert kept.code == 0
    assert f"{title} differs, kept" in kept.lines
    assert "note: `qm crd install --upgrade` replaces those that differ" in kept.err

    assert f"{title} upgraded" in qm("crd", "install", "--upgrade").lines
    assert {line.split()[1] for line in qm("crd", "install").lines} == {"unchanged"}


@pytest.mark.slow
def test_upgrading_goes_with_installing(qm: Program) -> None:
    result = qm("crd", "--upgrade")
    assert result.code == 2
    assert "goes with `install`" in result.err


def test_a_watch_on_the_api_server_shows_changes(qm: Program, namespace: str, running: Callable[..., object]) -> None:
    process = running("watch", "sn", "-o", "name")
    qm("apply", "-f", SEED)
    assert process.stdout.readline() == f"ADDED {TITLE}\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "sn"],
        ["describe", "sn"],
        ["diff", "-f", SEED],
        ["apply", "-f", SEED, "--dry-run"],
        ["delete", "sn", "a", "--dry-run"],
        ["edit", "sn", "a"],
        ["version"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_reading_makes_no_embedded_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    path = tmp_path / "store.db"
    result = cli("--store", f"sqlite:{path}", *arguments)
    assert f"note: sqlite:{path} does not exist yet" in result.err
    assert "memory:" not in result.out + result.err
    assert not path.exists()


def test_a_store_that_refuses_is_not_said_to_be_silent(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise UnauthorizedError("cannot ask the store: the token is refused")

    monkeypatch.setattr(stores, "open_store", refuse)
    result = cli("--store", "kubernetes:lab", "version")
    assert result.code == 1
    assert result.lines[-1] == "Server:     refuses"
