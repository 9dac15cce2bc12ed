"""The engine: beside kopf and a raw load generator on a real API server, and on each store of our own."""

from __future__ import annotations

from pathlib import Path

from bench.engine import apiserver, latency, stores
from bench.engine.counts import FULL, QUICK, Part
from bench.machine import package_versions, program_version
from bench.report import Section, text_table
from quartermaster.testing.servers import OLDEST_ETCD, EtcdCluster, KubernetesServer, find_etcd, find_program

ABOUT = """The job: StorageNodes exist without a status; a controller in a process of its own lists them, caches them,
reconciles each once and writes a status for each. Processor time and memory are those of that process, from the
moment it has loaded and connected until it has seen all of its writes come back."""


async def run(directory: Path, *, quick: bool) -> Section:
    counts = QUICK if quick else FULL
    crds = sorted((Path(__file__).resolve().parents[2] / "deploy" / "crds").glob("*.yaml"))
    parts: list[Part] = []

    def add(part: Part) -> None:
        """What is known is shown, for the rest takes minutes."""
        parts.append(part)
        for table in part.tables:
            print(text_table(table), flush=True)

    async with KubernetesServer(directory / "kubernetes", manifests=crds) as server:
        environment = {"KUBECONFIG": str(server.kubeconfig)}
        add(await apiserver.run(directory, server, counts))
        await server.kubectl("create", "namespace", latency.NAMESPACE)
        kubernetes = await latency.measure(directory, "kubernetes", "kubernetes:token", counts, environment)
    etcd_name = f"etcd {program_version(find_program('etcd'))}"
    async with EtcdCluster(directory / "etcd", fsync=True) as etcd:
        url = f"etcd://{','.join(address.partition('//')[2] for address in etcd.endpoints)}/bench"
        on_etcd = await stores.run_job_on(directory, etcd_name, url, counts.store_objects)
        etcd_latency = await latency.measure(directory, etcd_name, url, counts)
    oldest_name = f"etcd {program_version(find_etcd('etcd', OLDEST_ETCD))}"
    async with EtcdCluster(directory / "etcd-oldest", version=OLDEST_ETCD, fsync=True) as oldest:
        url = f"etcd://{','.join(address.partition('//')[2] for address in oldest.endpoints)}/bench"
        on_oldest = await stores.run_job_on(directory, oldest_name, url, counts.smoke_objects)
    sqlite_url = f"sqlite:{directory / 'store.db'}"
    on_sqlite = await stores.run_job_on(directory, "sqlite", sqlite_url, counts.store_objects)
    sqlite_latency = await latency.measure(directory, "sqlite", f"sqlite:{directory / 'latency.db'}", counts)
    memory_latency = await latency.measure(directory, "memory", "memory:", counts)
    scale = await stores.run_scale(directory, counts)
    add(stores.summarise([on_etcd, on_oldest, on_sqlite, *scale], scale))
    add(latency.summarise([kubernetes, etcd_latency, sqlite_latency, memory_latency]))
    kubernetes_name = f"kubernetes {program_version(find_program('kube-apiserver'))}"
    versions = (kubernetes_name, etcd_name, f"wrk {program_version('wrk')}")
    return Section(
        name="engine",
        about=ABOUT,
        bars=tuple(bar for part in parts for bar in part.bars),
        tables=tuple(table for part in parts for table in part.tables),
        plots=tuple(plot for part in parts for plot in part.plots),
        versions=(*versions, *package_versions("kopf", "aiohttp", "uvloop", "msgspec", "grpcio")),
    )
