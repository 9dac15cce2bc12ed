"""What the commands of `qm lab` do: find the lab and the host that are meant, act, and say what happened."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from quartermaster.cli.output import json_text, parse_output, yaml_text
from quartermaster.cli.tables import Writer
from quartermaster.resources.quantity import of_bytes
from quartermaster.support.errors import NotFoundError, ToolMissingError, UsageError
from quartermaster.testing.lab import DiskState, Lab, VirtualHost
from quartermaster.testing.lab.lab import refuse_unprivileged
from quartermaster.testing.lab.state import STATE_FILE


def labs_directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(state) / "quartermaster" / "labs"


def lab_names() -> list[str]:
    return sorted(file.parent.name for file in labs_directory().glob(f"*/{STATE_FILE}"))


def host_words() -> list[str]:
    names = lab_names()
    every = [(name, host.name) for name in names for host in Lab.open(labs_directory() / name).hosts]
    return [host if len(names) == 1 else f"{lab}/{host}" for lab, host in every]


async def up(name: str, *, hosts: int, disks: int, disk_size: str, subnet: str) -> None:
    directory = labs_directory() / name
    if name in lab_names():
        lab = Lab.open(directory)
        down_before = [host.name for host in lab.hosts if not host.up]
        await lab.boot()
        for host in lab.hosts:
            click.echo(f"{name}/{host.name} {'started' if host.name in down_before else 'is up already'}")
        return
    lab = await Lab.create(
        directory, hosts=hosts, disks=disks, disk_size=disk_size, name=name, keep=True, subnet=subnet, progress=_tell
    )
    for host in lab.hosts:
        click.echo(
            f"{name}/{host.name} made, {host.address}, {', '.join(disk.name for disk in host.disks) or 'no disks'}"
        )


async def down(name: str, *, every: bool) -> None:
    if every or (not name and not lab_names()):
        names = lab_names()
        if not names:
            click.echo("There are no labs.", err=True)
    else:
        names = [_only_lab(name)]
    for each in names:
        await Lab.open(labs_directory() / each).destroy()
        click.echo(f"{each} taken away")


def show(output: str) -> None:
    form = parse_output(output).form
    if form not in ("", "wide", "yaml", "json"):
        raise UsageError(f'cannot print labs as "{output}"', hint="-o takes wide, yaml and json")
    documents = [_document(Lab.open(labs_directory() / name)) for name in lab_names()]
    if form in ("yaml", "json"):
        text = yaml_text(documents) if form == "yaml" else json_text(documents) + "\n"
        click.echo(text, nl=False)
        return
    if not documents:
        click.echo("There are no labs; `qm lab up` makes one.", err=True)
        return
    wide = form == "wide"
    rows = [_row(lab, host, wide=wide) for lab in documents for host in lab["hosts"]]
    headers = ["LAB", "HOST", "STATE", "ADDRESS", "DISKS", *(["DIRECTORY"] if wide else [])]
    click.echo(Writer(headers).format(rows), nl=False)


def become(word: str, argv: Sequence[str]) -> None:
    """This process becomes the command on the host, and its terminal and exit code are the command's."""
    refuse_unprivileged("run a command on a virtual host")
    _, host = find_host(word)
    # `qm` itself is to be found on the host, however it was started here.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    sys.stdout.flush()
    try:
        os.execvpe("nsenter", host.argv(argv), {**os.environ, "PATH": path})  # noqa: S606 - no shell is the point
    except FileNotFoundError as error:
        raise ToolMissingError(
            "cannot enter a virtual host: nsenter is not installed", hint="install the package util-linux"
        ) from error


async def act(verb: str, words: Sequence[str]) -> None:
    refuse_unprivileged(f"{verb} a virtual host")
    # All of them are there before anything is done to the first.
    for lab, host in [find_host(word) for word in words]:
        if verb == "remove":
            await lab.remove_host(host)
        else:
            await {"cut": host.cut, "heal": host.heal, "kill": host.kill, "boot": host.boot}[verb]()
        done = {"cut": "cut off", "heal": "connected", "kill": "killed", "boot": "up", "remove": "removed"}[verb]
        click.echo(f"{lab.name}/{host.name} {done}")


async def add(word: str, *, disks: int, disk_size: str) -> None:
    refuse_unprivileged("add a virtual host")
    lab_name, _, name = word.rpartition("/")
    lab = Lab.open(labs_directory() / _only_lab(lab_name))
    host = await lab.add_host(name, disks=disks, disk_size=disk_size)
    click.echo(f"{lab.name}/{host.name} added, {host.address}")


async def add_disk(word: str, *, size: str, serial: str) -> None:
    refuse_unprivileged("add a disk")
    lab, host = find_host(word)
    _tell_disk(lab, host, await host.add_disk(size, serial=serial), "added")


async def lose_disk(word: str, name: str) -> None:
    refuse_unprivileged("lose a disk")
    lab, host = find_host(word)
    _tell_disk(lab, host, await host.lose_disk(_short(name)), "lost")


async def replace_disk(word: str, name: str, *, serial: str) -> None:
    refuse_unprivileged("replace a disk")
    lab, host = find_host(word)
    _tell_disk(lab, host, await host.replace_disk(_short(name), serial=serial), "replaced")


def find_host(word: str) -> tuple[Lab, VirtualHost]:
    lab_name, _, name = word.rpartition("/")
    lab = Lab.open(labs_directory() / _only_lab(lab_name))
    return lab, lab.host(name)


def _only_lab(name: str) -> str:
    """The lab of that name, or the only one there is."""
    names = lab_names()
    if not names:
        raise NotFoundError("cannot find a lab: there is none", hint="`qm lab up` makes one")
    if name and name not in names:
        raise NotFoundError(f'cannot find the lab "{name}"', hint=f"there are: {', '.join(names)}")
    if not name and len(names) > 1:
        raise UsageError(f"cannot tell which lab is meant: there are {', '.join(names)}", hint="say LAB or LAB/HOST")
    return name or names[0]


def _short(disk: str) -> str:
    return disk.removeprefix("/dev/")


def _tell(progress: str) -> None:
    if sys.stderr.isatty():
        click.echo(click.style(progress, dim=True), err=True)


def _tell_disk(lab: Lab, host: VirtualHost, disk: DiskState, verb: str) -> None:
    click.echo(f"{lab.name}/{host.name} /dev/{disk.name} {verb}, {of_bytes(disk.size)}, serial {disk.stand_in.serial}")


def _row(lab: dict[str, Any], host: dict[str, Any], *, wide: bool) -> list[str]:
    shown = ",".join(f"{disk['name']}{' (lost)' * disk['lost']}" for disk in host["disks"]) or "<none>"
    row = [lab["name"], host["name"], host["state"], host["address"], shown]
    return [*row, host["directory"]] if wide else row


def _document(lab: Lab) -> dict[str, Any]:
    hosts = [
        {
            "name": host.name,
            "state": ("cut off" if host.is_cut else "up") if host.up else "down",
            "address": host.address if lab.subnet else "",
            "directory": str(host.directory),
            "disks": [
                {"name": d.name, "size": of_bytes(d.size), "serial": d.stand_in.serial, "lost": d.lost}
                for d in host.disks
            ],
        }
        for host in lab.hosts
    ]
    return {"name": lab.name, "subnet": lab.subnet, "directory": str(lab.directory), "hosts": hosts}
