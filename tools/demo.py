"""`make demo`: the spine at work, with the commands that a person would type and their real output.

First the embedded store, with no server at all; then a real etcd of three members: nodes are declared, watched and
described, the member that leads is killed with SIGKILL, and nothing is lost. Everything is taken down again, also
after Ctrl-C.
"""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click

from quartermaster.support.errors import QuartermasterError
from quartermaster.testing.servers import EtcdCluster
from tools.servers import build, missing

ROOT = Path(__file__).resolve().parent.parent
SEED_NODE = ROOT / "examples" / "02-storage-node" / "storage-node.yaml"
QM = Path(sys.executable).with_name("qm")
COMMAND_TIMEOUT_S = 30.0


class DemoFailedError(Exception):
    """A step did not do what it shows."""


class Tour:
    """Runs `qm` as a person would and remembers what was seen."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.times: list[tuple[str, float]] = []
        self.environment = os.environ | {
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_DATA_HOME": str(directory / "data"),
            "COLUMNS": "110",
        }
        self.environment.pop("KUBECONFIG", None)
        # The demo shows its own stores: neither the person's context nor their cluster may come into it.
        self.environment["HOME"] = str(directory)
        self.environment.pop("QM_STORE", None)

    async def qm(self, *arguments: str, show: bool = True) -> str:
        """One command, shown with what it prints; anything but exit code 0 ends the demo."""
        click.secho(f"$ qm {shlex.join(arguments)}", bold=True)
        process = await asyncio.create_subprocess_exec(
            QM, *arguments, cwd=self.directory, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                raw, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        output = raw.decode()
        if show or process.returncode:
            click.echo(output)
        if process.returncode:
            raise DemoFailedError(f"`qm {shlex.join(arguments)}` ended with exit code {process.returncode}")
        return output

    def say(self, text: str) -> None:
        click.secho(f"\n# {text}", fg="cyan")

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            raise DemoFailedError(f"this should hold and does not: {what}")
        click.secho(f"✓ {what}", fg="green")

    def took(self, what: str, since: float) -> None:
        self.times.append((what, time.monotonic() - since))


async def embedded(tour: Tour) -> None:
    tour.say("One host, no server, no root: the embedded store is a file.")
    began = time.monotonic()
    await tour.qm("apply", "-f", SEED_NODE.name)
    await tour.qm("get", "storagenodes", "-o", "wide")
    again = await tour.qm("apply", "-f", SEED_NODE.name)
    tour.check("unchanged" in again, "the same file again changes nothing")
    tour.took("embedded store: declare and read", began)
    wrong = tour.directory / "wrong.yaml"
    wrong.write_text(SEED_NODE.read_text().replace("zone: 1", "zone: -1").replace("devices:", "device:"))
    tour.say("A file with mistakes: all of them at once, each with its place, and nothing is written.")
    click.secho("$ qm apply -f wrong.yaml", bold=True)
    refused = subprocess.run(
        [QM, "apply", "-f", wrong.name],
        check=False,
        cwd=tour.directory,
        env=tour.environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    click.echo(refused.stderr)
    tour.check(refused.returncode != 0 and "zone" in refused.stderr and "devices" in refused.stderr, "both were found")


async def replicated(tour: Tour) -> None:
    if missing("etcd"):
        tour.say("etcd is built once, and kept for the next time.")
        began = time.monotonic()
        await asyncio.to_thread(build, ["etcd"])
        tour.took("etcd: built from source (first time only)", began)
    tour.say("The same objects on a real etcd of three members.")
    began = time.monotonic()
    async with EtcdCluster(tour.directory / "etcd", size=3) as cluster:
        tour.took("etcd: three members ready", began)
        endpoints = ",".join(endpoint.removeprefix("http://") for endpoint in cluster.endpoints)
        await tour.qm("context", "set", "demo", "--store", f"etcd://{endpoints}")
        await tour.qm("context", "use", "demo")
        watcher = Watcher(tour)
        await watcher.start()
        try:
            await with_a_member_lost(tour, cluster, watcher)
        finally:
            await watcher.stop()


async def with_a_member_lost(tour: Tour, cluster: EtcdCluster, watcher: "Watcher") -> None:
    began = time.monotonic()
    await tour.qm("apply", "-f", SEED_NODE.name)
    await tour.qm("describe", "storagenode", "storage-node1")
    tour.took("etcd: declare and describe", began)
    leader = await leading_member(cluster)
    tour.say(f"SIGKILL to the member that leads (number {leader + 1}). More nodes are declared while it is down.")
    began = time.monotonic()
    await cluster.members[leader].kill()
    more = tour.directory / "more.yaml"
    text = SEED_NODE.read_text()
    more.write_text("---\n".join(text.replace("storage-node1", f"storage-node{n}") for n in (2, 3)))
    await tour.qm("apply", "-f", more.name)
    tour.took("etcd: written while the leader is dead", began)
    table = await tour.qm("get", "storagenodes")
    tour.check(all(f"storage-node{n}" in table for n in (1, 2, 3)), "three nodes are there, none is lost")
    await watcher.until("storage-node3")
    tour.say("What `qm watch` showed meanwhile, on one connection that moved to another member by itself:")
    click.echo(watcher.text())
    tour.check(watcher.count("ADDED") == 3, "it saw each of the three once")
    await cluster.members[leader].start()
    await cluster.ready()
    await tour.qm("delete", "storagenodes", "--all", "--yes")
    tour.check("storage-node" not in await tour.qm("get", "storagenodes", show=False), "the store is empty again")


async def leading_member(cluster: EtcdCluster) -> int:
    import msgspec

    status = msgspec.json.decode(await cluster.etcdctl("endpoint", "status", "--write-out=json"))
    for row in status:
        if row["Status"]["leader"] == row["Status"]["header"]["member_id"]:
            return [member.url for member in cluster.members].index(row["Endpoint"])
    raise DemoFailedError("etcd has no leader")


class Watcher:
    """`qm watch` in the background."""

    def __init__(self, tour: Tour) -> None:
        self._tour = tour
        self._path = tour.directory / "watch.txt"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        click.secho("$ qm watch storagenodes &", bold=True)
        with self._path.open("w") as output:
            self._process = await asyncio.create_subprocess_exec(
                QM, "watch", "storagenodes", env=self._tour.environment, stdout=output, stderr=output
            )

    async def until(self, text: str) -> None:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            while text not in self.text():
                await asyncio.sleep(0.05)

    def text(self) -> str:
        return self._path.read_text()

    def count(self, word: str) -> int:
        return self.text().count(word)

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


async def demo(directory: Path) -> None:
    tour = Tour(directory)
    shutil.copy(SEED_NODE, directory)
    began = time.monotonic()
    await embedded(tour)
    await replicated(tour)
    tour.took("all of it", began)
    click.secho("\nwhat was shown, and how long it took", bold=True)
    for what, seconds in tour.times:
        click.echo(f"  {what:<46}{seconds:7.1f} s")


def main() -> int:
    # A shell that starts it in the background has Ctrl-C ignored for it and for everything that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="quartermaster-demo-"))
    try:
        asyncio.run(demo(directory))
    except KeyboardInterrupt:
        click.echo("\ninterrupted; everything is taken down", err=True)
        return 130
    except (DemoFailedError, QuartermasterError, TimeoutError) as error:
        click.secho(f"the demo failed: {error}", fg="red", err=True)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
