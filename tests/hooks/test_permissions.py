"""What the controller may do on Kubernetes: exactly what its hooks declare, which is enough for a whole life."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quartermaster.backends.cstor import HOOKS
from quartermaster.hooks.assembly import LEASE, controller_runtime
from quartermaster.hooks.permissions import cluster_rules, lease_rules
from quartermaster.resources import Event, Lease, Namespace, Node, ObjectMeta, StorageNode
from quartermaster.resources.openebs import BlockDevice
from quartermaster.stores import Store
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.stores.modify import modify
from quartermaster.support import entropy
from quartermaster.support.errors import ForbiddenError, NotFoundError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.servers import KubernetesAccess
from tools.generate import ROOT
from tools.manifests import CONFORMANCE_PATH, PATH, conformance_deployment, core_deployment

from .lives import eventually
from .toy import TOY, storage_node, with_devices

MANIFEST = ROOT / "deploy" / "cstor" / "core.yaml"
CONFORMANCE_MANIFEST = ROOT / "deploy" / "cstor" / "conformance.yaml"


def verbs(rules: list[dict[str, Any]], resource: str) -> set[str]:
    return {verb for rule in rules if resource in rule["resources"] for verb in rule["verbs"]}


def test_each_kind_has_the_verbs_of_what_hooks_do_with_it() -> None:
    rules = cluster_rules([TOY])
    assert verbs(rules, "storagenodes") == {"get", "list", "watch", "update"}
    assert verbs(rules, "storagenodes/status") == {"update"}
    assert verbs(rules, "configmaps") == {"get", "list", "watch", "create", "update", "patch", "delete"}
    assert verbs(rules, "nodes") == {"list", "watch", "patch"}
    assert verbs(rules, "secrets") == {"list", "watch"}
    assert verbs(rules, "events") == {"create", "update"}
    assert not [rule for rule in rules if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])]


def test_cstor_may_delete_what_it_makes_and_no_disk_of_somebody_else() -> None:
    rules = cluster_rules(HOOKS)
    for made in ("cstorpoolclusters", "persistentvolumeclaims", "volumeattachments", "storages", "cstorclusterplans"):
        assert "delete" in verbs(rules, made)
    assert "delete" not in verbs(rules, "blockdevices") | verbs(rules, "nodes") | verbs(rules, "persistentvolumes")


def test_the_manifest_is_what_the_program_generates() -> None:
    assert core_deployment() == {PATH: MANIFEST.read_text()}, "run `make generate`"


def test_the_conformance_is_deployed_likewise_and_may_not_make_or_delete_nodes() -> None:
    text = CONFORMANCE_MANIFEST.read_text()
    assert conformance_deployment() == {CONFORMANCE_PATH: text}, "run `make generate`"
    documents = list(yaml.safe_load_all(text))
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    names = [container["name"] for container in deployment["spec"]["template"]["spec"]["containers"]]
    assert names == ["cstorpoolauto-conformance", "cstorpoolauto-conformance-controller"]
    (bound,) = [d["roleRef"]["name"] for d in documents if d["kind"] == "ClusterRoleBinding"]
    rules = next(d["rules"] for d in documents if d["kind"] == "ClusterRole" and d["metadata"]["name"] == bound)
    assert verbs(rules, "nodes") == {"get", "list", "update"}
    assert "delete" not in verbs(rules, "cstorpoolclusters") | verbs(rules, "blockdevices")


def test_the_pod_has_the_two_containers_and_only_the_controller_has_the_account() -> None:
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    service, controller = pod["containers"]
    assert (service["name"], service["args"][:2]) == ("cstorpoolauto", ["cstor", "serve"])
    assert (controller["name"], controller["args"][:2]) == ("cstorpoolauto-controller", ["cstor", "controller"])
    assert pod["automountServiceAccountToken"] is False
    assert "volumeMounts" not in service
    assert controller["volumeMounts"][0]["name"] == "account"


@pytest.mark.kubernetes
async def test_an_api_server_takes_the_manifest(kubernetes_server: KubernetesAccess) -> None:
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    for document in documents:  # a namespace that is there, whatever other tests do
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = "default"
    said = await kubernetes_server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert said.count("created (server dry run)") == len(documents)


@pytest.fixture
async def admin(kubernetes_server: KubernetesAccess) -> AsyncIterator[Store]:
    store = await KubernetesStore.open(kubeconfig=Path(kubernetes_server.kubeconfig))
    yield store
    await store.close()


@pytest.fixture
async def name(admin: Store, kubernetes_server: KubernetesAccess) -> AsyncIterator[str]:
    """A namespace, a Node and an account of this name, with the permissions of the toy and no others."""
    chosen = f"rbac-{entropy.name_suffix(8)}"
    await admin.create(Namespace(metadata=ObjectMeta(name=chosen)))
    await admin.create(Node(metadata=ObjectMeta(name=chosen)))
    await kubernetes_server.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List"} | {"items": granted(chosen)})
    )
    yield chosen
    await kubernetes_server.kubectl("delete", "clusterrole,clusterrolebinding", chosen)
    await admin.delete(Node, chosen)
    await admin.delete(Namespace, chosen)


def granted(name: str) -> list[dict[str, Any]]:
    rbac = "rbac.authorization.k8s.io/v1"
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": name}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "name": name}
    here = {"name": name, "namespace": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": cluster_rules([TOY])},
        {
            **{"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name}},
            **{"roleRef": {**reference, "kind": "ClusterRole"}, "subjects": subjects},
        },
        {"apiVersion": rbac, "kind": "Role", "metadata": here, "rules": lease_rules(LEASE)},
        {
            **{"apiVersion": rbac, "kind": "RoleBinding", "metadata": here},
            **{"roleRef": {**reference, "kind": "Role"}, "subjects": subjects},
        },
    ]


async def opened_as(account: str, server: KubernetesAccess, directory: Path) -> KubernetesStore:
    token = (await server.kubectl("create", "token", account, "-n", account)).strip()
    config = yaml.safe_load(Path(server.kubeconfig).read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return await KubernetesStore.open(kubeconfig=path)


@pytest.mark.kubernetes
async def test_with_these_permissions_a_controller_leads_makes_changes_deletes_and_tells(
    admin: Store, name: str, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    store = await opened_as(name, kubernetes_server, tmp_path)
    with pytest.raises(ForbiddenError):
        await store.list(BlockDevice)

    async def state_is(wanted: str) -> bool:
        try:
            return (await admin.get(StorageNode, name, name)).status.state == wanted
        except NotFoundError:
            return wanted == "gone"

    async def told() -> bool:
        return any(event.reason == "Counted" for event in (await admin.list(Event, name)).items)

    runtime = controller_runtime(store, [TOY], namespace=name, watch_namespace=name)
    async with TaskGroup() as group:
        running = group.start(runtime.run())
        await admin.create(storage_node(name, 2, name))
        await eventually(lambda: state_is("Ready"))
        await eventually(told)
        assert (await admin.get(Lease, LEASE, name)).spec.holder_identity
        assert (await admin.get(Node, name)).metadata.labels["devices"] == "2"
        await modify(admin, StorageNode, name, name, lambda node: with_devices(node, 1))
        await asyncio.sleep(0.1)
        await eventually(lambda: state_is("Ready"))
        await admin.delete(StorageNode, name, name)
        await eventually(lambda: state_is("gone"))
        runtime.stop()
        await running
    await store.close()
