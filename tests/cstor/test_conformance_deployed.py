"""The conformance as it is installed: every part a process of its own, on a real API server with the stand-ins.

Core: `qm cstor serve` and `qm cstor controller`. Conformance: `qm cstor conformance serve` and `… controller`. Each of
the two acts as a user of its own, who may do what the manifest of its deployment grants and no more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import aiohttp
import pytest
import yaml
from msgspec.structs import replace

from quartermaster.backends.cstor.reasons import READY
from quartermaster.hooks.conformance import hands
from quartermaster.hooks.conformance.scenarios import SCENARIOS
from quartermaster.hooks.conformance.site import NODE_LABEL, Site
from quartermaster.resources import CStorClusterConfig
from quartermaster.resources.conformance import ConformanceReport
from quartermaster.resources.openebs import OPENEBS_NAMESPACE
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.testing.servers import KubernetesServer

from .crds import manifests
from .standins import ATTACHER, IMMEDIATE
from .world import NAMESPACE, prepare, site

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

ServerFactory = Callable[..., Awaitable[KubernetesServer]]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100.0
MAIN = ("creation", "deletion", "node-removed")
_URL = re.compile(r"hooks on (http://\S+):")


class Program:
    """A process of the installation; what it says goes to a file."""

    def __init__(self, process: asyncio.subprocess.Process, said: Path) -> None:
        self.process = process
        self.said = said

    async def url(self) -> str:
        """Where a service says that it is."""
        async with asyncio.timeout(PATIENCE_S):
            while (found := _URL.search(self.said.read_text())) is None:
                assert self.process.returncode is None, self.said.read_text()
                await asyncio.sleep(0.05)
        return found[1]

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Installation:
    """Starts programs on one server and ends them with the test."""

    def __init__(self, server: KubernetesServer, directory: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self._directory = directory
        self._stack = stack

    def _environment(self, user: str) -> dict[str, str]:
        kubeconfig = self._directory / f"kubeconfig-{user}"
        content = json.loads(self.server.kubeconfig.read_text())
        content["users"] = [{"name": "admin-token", "user": {"token": self.server.access.tokens[user]}}]
        kubeconfig.write_text(json.dumps(content))
        return {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(self._directory)}

    async def grant(self, user: str, manifest: Path, *more: str) -> None:
        """The roles of a deployment, for a user in the place of its account."""
        documents = [d for d in yaml.safe_load_all(manifest.read_text()) if d["kind"] in ("ClusterRole", "Role")]
        bindings = []
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            if kind == "ClusterRole" and name.endswith("-rehearsal") and "rehearsal" not in more:
                continue
            bindings.append(
                {
                    "apiVersion": document["apiVersion"],
                    "kind": f"{kind}Binding",
                    "metadata": document["metadata"],
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
                }
            )
        items = {"apiVersion": "v1", "kind": "List", "items": [*documents, *bindings]}
        await self.server.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    async def start(self, name: str, user: str, *arguments: str) -> Program:
        said = self._directory / f"{name}.log"
        with said.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *arguments),
                cwd=ROOT,
                env=self._environment(user),
                stdout=output,
                stderr=output,
            )
        program = Program(process, said)
        self._stack.push_async_callback(program.kill)
        return program

    async def pair(self, name: str, *command: str) -> tuple[Program, Program]:
        """A service and its controller."""
        store = ("--store", "kubernetes:token")
        in_store = store if "conformance" in command else ()
        serving = ("serve", "--listen", "127.0.0.1:0", *in_store)
        service = await self.start(name, name, "quartermaster", *command, *serving)
        at = ("--hooks", await service.url(), "-n", OPENEBS_NAMESPACE, *store)
        return service, await self.start(f"{name}-controller", name, "quartermaster", *command, "controller", *at)

    async def qm(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "quartermaster", *arguments, "-n", NAMESPACE, "--store", "kubernetes:token"),
            cwd=ROOT,
            env=self._environment("admin"),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode is not None
        return process.returncode, output.decode()


@asynccontextmanager
async def installed(start: ServerFactory, directory: Path) -> AsyncIterator[tuple[Installation, KubernetesStore]]:
    """A server with the core and the stand-ins."""
    users: dict[str, list[str]] = {"core": [], "conformance": []}
    server = await start(controller_manager=True, manifests=manifests(directory), tokens=users)
    store = await KubernetesStore.open(kubeconfig=server.kubeconfig)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await prepare(store)
        installation = Installation(server, directory, stack)
        await installation.grant("core", ROOT / "deploy" / "cstor" / "core.yaml")
        await installation.grant("conformance", ROOT / "deploy" / "cstor" / "conformance.yaml", "rehearsal")
        played = await installation.start("standins", "admin", "tests.cstor.standins", "--store", "kubernetes:token")
        await installation.pair("core", "cstor")
        yield installation, store
        assert played.said.read_text() == ""


def report(name: str, scenarios: Sequence[str]) -> str:
    spec = {
        "csiAttacherName": ATTACHER,
        "storageClassName": IMMEDIATE,
        "rehearsal": True,
        "scenarios": list(scenarios),
        "timeoutSeconds": int(PATIENCE_S),
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return json.dumps(
        {"apiVersion": "dao.mayadata.io/v1alpha1", "kind": "ConformanceReport", "metadata": metadata, "spec": spec}
    )


async def ended(store: KubernetesStore, name: str, timeout_s: float) -> ConformanceReport:
    async with asyncio.timeout(timeout_s):
        while True:
            found = await store.get(ConformanceReport, name, NAMESPACE)
            if found.status.phase in ("Passed", "Failed"):
                return found
            await asyncio.sleep(0.5)


async def check_run(installation: Installation, store: KubernetesStore, scenarios: Sequence[str], url: str) -> None:
    """All of them pass, and the object, the Event and both ways to the XML say so."""
    kubectl = installation.server.kubectl
    await kubectl("apply", "-f", "-", stdin=report("nightly", scenarios))
    found = await ended(store, "nightly", PATIENCE_S * len(scenarios))
    assert [(one.name, one.outcome, one.message) for one in found.status.results] == [
        (name, "Passed", "") for name in scenarios
    ]
    assert found.status.message == f"{len(scenarios)} of {len(scenarios)} passed"
    async with aiohttp.ClientSession() as session, session.get(f"{url}/report/{NAMESPACE}/nightly.xml") as response:
        assert (response.status, response.content_type) == (200, "application/xml")
        served = await response.read()
    suite = ElementTree.fromstring(served)
    assert [case.get("name") for case in suite] == list(scenarios)
    assert suite.get("failures") == "0"
    assert await installation.qm("cstor", "conformance", "junit", "nightly") == (0, served.decode())
    assert "ConformancePassed" in await kubectl("get", "events", "-n", NAMESPACE)
    shown = await kubectl("get", "cscreport", "-n", NAMESPACE)
    assert shown.splitlines()[1].split()[:4] == ["nightly", "Passed", str(len(scenarios)), str(len(scenarios))]


async def versions(place: Site) -> dict[str, str]:
    """Of what belongs to a cluster; they are the same as long as nobody touches it."""
    objects = (await place.read(), await place.plan(), await place.pool_cluster(), *await place.storages())
    return {f"{type(obj).__name__} {obj.key}": f"{obj.metadata.uid} {obj.metadata.resource_version}" for obj in objects}


@pytest.mark.timeout(300)
async def test_reports_are_run_by_the_installed_conformance_and_its_end_disturbs_nobody(
    kubernetes_throwaway: ServerFactory, tmp_path: Path
) -> None:
    async with installed(kubernetes_throwaway, tmp_path) as (installation, store):
        bystander = site(store, "bystander", IMMEDIATE, timeout_s=PATIENCE_S)
        await hands.take_nodes(bystander, "n1", "n2", "n3")
        await bystander.create(bystander.config(least=2))
        await bystander.phase(READY)
        before = await versions(bystander)
        service, controller = await installation.pair("conformance", "cstor", "conformance")
        await check_run(installation, store, MAIN, await service.url())
        await remove_in_the_middle(installation, store, (service, controller))
        assert await versions(bystander) == before
        # The core is as well as before: it still does what it is told.
        await bystander.change(lambda spec: replace(spec, max_pool_count=3))
        await bystander.phase(READY)


async def remove_in_the_middle(installation: Installation, store: KubernetesStore, programs: Sequence[Program]) -> None:
    """Killed while a scenario runs, and its report deleted: what it had declared goes with it."""
    await installation.server.kubectl("apply", "-f", "-", stdin=report("unfinished", ["creation"]))
    probe = site(store, "unfinished-creation", IMMEDIATE, timeout_s=PATIENCE_S)

    async def planned() -> bool:
        return bool(await probe.planned_nodes())

    await probe.eventually(planned, "plan of the unfinished scenario")
    for program in programs:
        await program.kill()
    await installation.server.kubectl("delete", "cscreport", "unfinished", "nightly", "-n", NAMESPACE)
    await probe.eventually(
        lambda: probe.gone(CStorClusterConfig, "unfinished-creation", NAMESPACE), "end of the unfinished config"
    )
    await installation.server.kubectl("delete", "node", "-l", f"{NODE_LABEL}=unfinished-creation")


@pytest.mark.deep
@pytest.mark.timeout(1800)
async def test_all_scenarios_are_run_by_the_installed_conformance(
    kubernetes_throwaway: ServerFactory, tmp_path: Path
) -> None:
    async with installed(kubernetes_throwaway, tmp_path) as (installation, store):
        service, _ = await installation.pair("conformance", "cstor", "conformance")
        await check_run(installation, store, list(SCENARIOS), await service.url())
