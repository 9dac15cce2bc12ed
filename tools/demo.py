"""`make demo`: what Quartermaster does, with the commands that a person would type and their real output.

As root: virtual hosts on this machine, with disks and an etcd of their own (`tools.demo_hosts`). Without root, or with
`--single`: one host (`tools.demo_single`). Everything is taken down again, also after Ctrl-C, and no further Ctrl-C
cuts that off; `make demo KEEP=1` leaves it running.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click

from quartermaster.support.errors import QuartermasterError
from quartermaster.testing.lab import Lab, LabError
from quartermaster.testing.lab.state import STATE_FILE
from quartermaster.testing.servers.binaries import find_program
from tools.demo_hosts import three_hosts
from tools.demo_single import one_host
from tools.demo_tour import QM, DemoFailedError, Tour, ignore_interrupts
from tools.servers import BuildError, build, missing
from tools.setup import SetupError, install

LAB = "demo"
BAR_S = 120.0  # beside set-up, downloads and builds
TAKE_DOWNS = 3
# Program → the Debian package that brings it.
NEEDED = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mkfs.xfs": "xfsprogs",
    "glusterd": "glusterfs-server",
    "mount.glusterfs": "glusterfs-client",
    "fusermount3": "fuse3",
}


async def demo(directory: Path, *, keep: bool, single: bool, set_up_s: float = 0.0) -> None:
    """`set_up_s` is what was spent before."""
    heed_one_interrupt()
    tour = Tour(directory)
    began = time.monotonic() - set_up_s
    if set_up_s:
        tour.took("virtual environment, with Python packages the first time", set_up_s, fetches=True)
    left_out = "--single was given" if single else "without root there are no virtual hosts"
    if single or os.geteuid() != 0:
        await one_host(tour)
    else:
        left_out = await on_virtual_hosts(tour, keep=keep)
    tour.summary(time.monotonic() - began, BAR_S)
    if left_out:
        click.echo(
            f"left out: a GlusterFS cluster on three hosts, one of them killed and replaced by a fourth, and no file "
            f"lost: {left_out}; `make demo` as root shows them"
        )
    elif keep:
        what_next()


async def on_virtual_hosts(tour: Tour, *, keep: bool) -> str:
    """Why there are none, after what can be shown without them; "" if all was shown."""
    place = directory_of(tour, keep=keep)
    if (place / STATE_FILE).exists():
        raise DemoFailedError(f"its hosts are up already; `{QM} lab down {LAB}` takes them away")
    await fetch(tour)
    tour.say("Three virtual hosts on this machine, each with an address, two disks and processes of its own.")
    try:
        async with tour.timed("three virtual hosts"):
            lab = await Lab.create(place, hosts=3, disks=2, disk_size="2Gi", name=LAB, keep=keep)
    except LabError as error:
        click.echo(f"{error}\nthe demo goes on with one host")
        await one_host(tour)
        return "virtual hosts cannot be made here"
    for host in lab.hosts:
        click.echo(f"{host.name} is up, {host.address}, {', '.join(f'/dev/{disk.name}' for disk in host.disks)}")
    try:
        await three_hosts(tour, lab)
        if not keep:
            async with tour.timed("everything taken down again"):
                ignore_interrupts()
                tour.say("Everything is taken down again.")
                await take_down(lab)
    except BaseException:
        await take_down(lab)
        raise
    return ""


def heed_one_interrupt() -> None:
    """The first Ctrl-C ends what is shown. After it what was made is taken down, and that is not to be cut off."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def end() -> None:
        click.echo("\ninterrupted; everything is taken down", err=True)
        task.cancel()

    def interrupted(*_: object) -> None:
        ignore_interrupts()
        loop.call_soon_threadsafe(end)

    signal.signal(signal.SIGINT, interrupted)


async def take_down(lab: Lab) -> None:
    ignore_interrupts()
    for _ in range(TAKE_DOWNS - 1):
        with suppress(QuartermasterError, OSError):
            return await lab.destroy()
    return await lab.destroy()


async def fetch(tour: Tour) -> None:
    """What this machine lacks, once."""
    packages = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if packages:
        tour.say(f"Debian packages that this machine lacks: {', '.join(packages)}.")
        async with tour.timed("Debian packages (first time only)", fetches=True):
            await asyncio.to_thread(install, packages)
    if missing("etcd"):
        tour.say("etcd is built once, and kept for the next time.")
        async with tour.timed("etcd: built from source (first time only)", fetches=True):
            await asyncio.to_thread(build, ["etcd"])
    os.environ["PATH"] = f"{find_program('etcd').parent}:{os.environ.get('PATH', os.defpath)}"


def directory_of(tour: Tour, *, keep: bool) -> Path:
    """One that stays is where `qm lab` finds it."""
    if not keep:
        return tour.directory / "lab"
    from quartermaster.cli.labs import labs_directory

    return labs_directory() / LAB


def what_next() -> None:
    click.secho("\nthe hosts stay up; what to try next", bold=True)
    for command in (
        f"{QM} lab list",
        f"{QM} lab exec {LAB}/h1 -- {QM} status",
        f"{QM} lab exec {LAB}/h2 -- {QM} volume list",
        f"{QM} lab exec {LAB}/h2 -- gluster volume info    # what GlusterFS itself says",
        f"{QM} lab cut {LAB}/h4          # pull its cable; `lab heal` plugs it in again",
        f"{QM} lab disk replace {LAB}/h1 vdb    # a disk dies, a blank one takes its place",
        f"{QM} lab down {LAB}             # take all of it away",
    ):
        click.echo(f"  {command}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the virtual hosts up")
    parser.add_argument("--single", action="store_true", help="only what one host without root can show")
    parser.add_argument("--began", type=float, help="when `make demo` began to set up, in seconds since 1970")
    given = parser.parse_args()
    set_up_s = max(0.0, time.time() - given.began) if given.began is not None else 0.0
    # A shell that starts it in the background has Ctrl-C ignored for it and for everything that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="quartermaster-demo-"))
    try:
        asyncio.run(demo(directory, keep=given.keep, single=given.single, set_up_s=set_up_s))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except (DemoFailedError, QuartermasterError, SetupError, BuildError, TimeoutError) as error:
        click.secho(f"the demo failed: {error}", fg="red", err=True)
        return 1
    finally:
        ignore_interrupts()
        remove(directory)
    return 0


def remove(directory: Path) -> None:
    """Not what is known of virtual hosts that could not be taken down: with it they still can be."""
    if (directory / "lab" / STATE_FILE).exists():
        click.secho(f"virtual hosts are left, and what is known of them is in {directory}", fg="red", err=True)
        return
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
