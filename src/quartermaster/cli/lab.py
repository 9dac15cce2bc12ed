"""`qm lab`: virtual hosts on this machine, to try things and to break them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from quartermaster.cli.options import output_option_of
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm lab up --hosts 3                 three hosts with two disks each
  qm lab list                         what there is, and where
  qm lab exec h1 -- ip address        a command on a host
  qm lab shell h2                     look around there
  qm lab kill h3; qm lab boot h3      a power cut, and its end
  qm lab down                         nothing is left

Where there are several labs, a host is LAB/HOST.
"""
DEFAULT_NAME = "lab"


def examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)


def complete_hosts(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from quartermaster.cli.labs import host_words

    return [word for word in host_words() if word.startswith(incomplete)]


def complete_labs(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from quartermaster.cli.labs import lab_names

    return [name for name in lab_names() if name.startswith(incomplete)]


host_argument = click.argument("host", metavar="HOST", shell_complete=complete_hosts)
hosts_argument = click.argument("hosts", metavar="HOST...", nargs=-1, required=True, shell_complete=complete_hosts)


@click.group(short_help="Run virtual hosts on this machine.", epilog=EPILOG)
def command() -> None:
    """Run virtual hosts on this machine.

    A virtual host has a network address, disks, processes and state of its own, and the programs of this machine. The
    directories /etc, /var/lib, /var/log, /mnt, /run and the home are its own. All others, such as /srv and /tmp, are
    this machine's, and the same on every host. Labs need root. Their files are in ~/.local/state/quartermaster/labs
    (XDG_STATE_HOME).
    """


@command.command(
    "up",
    short_help="Make a lab, or start the hosts of one again.",
    epilog=examples("qm lab up --hosts 3", "qm lab up big --hosts 5 --disks 4 --disk-size 10Gi"),
)
@click.argument("name", default=DEFAULT_NAME)
@click.option("--hosts", type=click.IntRange(1, 250), default=3, show_default=True, help="How many hosts.")
@click.option("--disks", type=click.IntRange(0, 25), default=2, show_default=True, help="How many disks each has.")
@click.option("--disk-size", metavar="SIZE", default="2Gi", show_default=True, help="Of each disk; it is sparse.")
@click.option("--subnet", metavar="NETWORK", default="", help="Addresses to use; a free /24 when it is not given.")
@click.pass_obj
def up(session: Session, *, name: str, hosts: int, disks: int, disk_size: str, subnet: str) -> None:
    """Make a lab, or start the hosts of one again.

    The hosts reach each other by name and address; this machine reaches them by address. A lab that is there already
    keeps its hosts and disks, whatever the options say.
    """
    from quartermaster.cli import labs

    session.run(lambda: labs.up(name, hosts=hosts, disks=disks, disk_size=disk_size, subnet=subnet))


@command.command(
    "down", short_help="Take a lab away.", epilog=examples("qm lab down", "qm lab down big", "qm lab down --all")
)
@click.argument("name", required=False, shell_complete=complete_labs)
@click.option("--all", "every", is_flag=True, help="All labs of this user.")
@click.pass_obj
def down(session: Session, *, name: str | None, every: bool) -> None:
    """Take a lab away, with all processes, disks and files of its hosts."""
    from quartermaster.cli import labs

    if name and every:
        raise click.UsageError("give the name of a lab, or --all")
    session.run(lambda: labs.down(name or "", every=every))


@command.command("list", short_help="List labs and their hosts.", epilog=examples("qm lab list", "qm lab list -o json"))
@output_option_of(("wide", "yaml", "json"))
def list_labs(*, output: str) -> None:
    """List labs and their hosts."""
    from quartermaster.cli import labs

    labs.show(output)


@command.command(
    "exec",
    short_help="Run a command on a host.",
    epilog=examples("qm lab exec h1 -- ip address", "qm lab exec big/h2 -- sh -c 'echo $QM_STATE_DIR'"),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@host_argument
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(*, host: str, words: Sequence[str]) -> None:
    """Run a command on a host, with this terminal; the exit code is the command's.

    It starts in /, wherever this is called: name files by their whole paths. /srv and /tmp are this machine's, and the
    same on every host.
    """
    from quartermaster.cli import labs

    labs.become(host, words[1:] if words[0] == "--" else words)


@command.command("shell", short_help="Open a shell on a host.", epilog=examples("qm lab shell h1"))
@host_argument
def shell(*, host: str) -> None:
    """Open a shell on a host. It starts in /."""
    from quartermaster.cli import labs

    labs.become(host, ("bash",))


def _acting(verb: str, short_help: str, text: str, example: str) -> None:
    """One of the commands that do one thing to some hosts."""

    @command.command(verb, short_help=short_help, help=text, epilog=examples(example))
    @hosts_argument
    @click.pass_obj
    def act(session: Session, *, hosts: Sequence[str]) -> None:
        from quartermaster.cli import labs

        session.run(lambda: labs.act(verb, hosts))


_acting(
    "cut",
    "Pull the network cable of hosts.",
    "Pull the network cable of hosts. Connections hang and nobody is told, as with a broken switch.",
    "qm lab cut h2",
)
_acting("heal", "Plug the network cable of hosts in again.", "Plug the network cable in again.", "qm lab heal h2")
_acting(
    "kill",
    "End hosts as a power cut does.",
    "End hosts as a power cut does: every process gets SIGKILL and all mounts go. Disks and state stay for `boot`.",
    "qm lab kill h2 h3",
)
_acting("boot", "Start hosts that are down.", "Start hosts that are down, with the disks they had.", "qm lab boot h2")
_acting("remove", "Remove hosts for good.", "Remove hosts for good, with their disks and state.", "qm lab remove h4")


@command.command("add", short_help="Add a host to a lab.", epilog=examples("qm lab add", "qm lab add big/h9 --disks 1"))
@click.argument("host", metavar="[HOST]", default="")
@click.option("--disks", type=click.IntRange(0, 25), default=2, show_default=True, help="How many disks it has.")
@click.option("--disk-size", metavar="SIZE", default="2Gi", show_default=True, help="Of each disk; it is sparse.")
@click.pass_obj
def add(session: Session, *, host: str, disks: int, disk_size: str) -> None:
    """Add a host to a lab. Without a name it gets the next number."""
    from quartermaster.cli import labs

    session.run(lambda: labs.add(host, disks=disks, disk_size=disk_size))


@command.group("disk", short_help="Add, break and replace disks.", epilog=examples("qm lab disk add h1 --size 4Gi"))
def disk() -> None:
    """Add, break and replace disks."""


serial_option = click.option("--serial", metavar="SERIAL", default="", help="Its serial number; made up if not given.")


@disk.command(
    "add",
    short_help="Add a disk to a host.",
    epilog=examples("qm lab disk add h1 --size 4Gi", "qm lab disk add h1 --serial WD-1234"),
)
@host_argument
@click.option("--size", metavar="SIZE", default="2Gi", show_default=True, help="It is sparse.")
@serial_option
@click.pass_obj
def disk_add(session: Session, *, host: str, size: str, serial: str) -> None:
    """Add a disk to a host. It is there at once, as one that is plugged in."""
    from quartermaster.cli import labs

    session.run(lambda: labs.add_disk(host, size=size, serial=serial))


@disk.command("lose", short_help="Let a disk die.", epilog=examples("qm lab disk lose h1 vdb"))
@host_argument
@click.argument("name", metavar="DISK")
@click.pass_obj
def disk_lose(session: Session, *, host: str, name: str) -> None:
    """Let a disk die: it is gone, and a file system on it answers with errors. What was on it is lost."""
    from quartermaster.cli import labs

    session.run(lambda: labs.lose_disk(host, name))


@disk.command("replace", short_help="Put a blank disk where one was.", epilog=examples("qm lab disk replace h1 vdb"))
@host_argument
@click.argument("name", metavar="DISK")
@serial_option
@click.pass_obj
def disk_replace(session: Session, *, host: str, name: str, serial: str) -> None:
    """Put a blank disk where one was. One that still works is lost first."""
    from quartermaster.cli import labs

    session.run(lambda: labs.replace_disk(host, name, serial=serial))
