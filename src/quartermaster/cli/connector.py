"""`qm connector`: volumes of any storage system on this host. No store is needed; programs read the JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from quartermaster.cli import ending
from quartermaster.cli.options import output_option_of, seconds_of
from quartermaster.cli.session import Session

Command = TypeVar("Command", bound=Callable[..., Any])

_HELP = getattr(click.exceptions, "NoArgsIsHelpError", click.exceptions.Exit)  # click before 8.2 prints it and ends

EPILOG = """\b
Examples:
  qm connector properties                    what a storage system wants to know about this host
  qm connector connect -f volume.json        attach a volume; its path is in the answer
  some-program | qm connector connect        the connection information from standard input
  qm connector path VOLUME                   where it is, after a look whether it still is
  qm connector list                          ours, and what else of the kind is here
  qm connector mount VOLUME /srv/data        make a file system where there is nothing, and mount it
  qm connector stats VOLUME /srv/data        how full it is
  qm connector unmount VOLUME /srv/data
  qm connector disconnect -f volume.json     take it away
  qm connector recover                       take back what a killed program had begun

\b
Answers are JSON on standard output (that of list with -o json). An error, of whatever kind, is
{"error": {"reason", "message", "hint", "problems"}} there, a sentence on standard error, and an exit code:
  0  done
  1  the host, a program or the storage system said no
  2  the command line was wrong
  3  the connection information is wrong, or no driver can use it
  4  the volume is not attached to this host
  5  it is in use, or attached here in another way
  6  the time was up, or the storage system does not answer
  7  a device is not the volume that it should be; nothing was touched
  70 a mistake of this program, or of a driver
  129, 130, 143  ended by SIGHUP, SIGINT or SIGTERM; what was begun is taken back, and the message says if it was not
"""
_LOOKS = ("path", "stats", "list_volumes", "properties")


class AnsweringGroup(click.Group):
    """Programs read standard output: whatever goes wrong is said there too, a mistyped option as well."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        ending.listen()
        with _answering():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _answering():
            return super().invoke(ctx)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        with ending.raising():
            yield
    except (click.exceptions.Exit, _HELP, BrokenPipeError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        ending.settle()
        from quartermaster.cli.connecting import show_failure

        show_failure(error)
        if isinstance(error, ending.Ended):
            raise click.exceptions.Exit(128 + error.number) from error
        raise


def connector_options(function: Command) -> Command:
    """What chooses the connector; the command receives them as `given`."""

    @click.option(
        "--timeout", metavar="DURATION", type=seconds_of, default="2m", show_default=True, help="Of the whole call."
    )
    @click.option("--multipath", is_flag=True, help="Use all portals and ports at once, as one device.")
    @click.option(
        "--client",
        "clients",
        metavar="TYPE=CLIENT",
        multiple=True,
        help="The route of a driver type: ISCSI=userspace, CEPHFS=fuse; may be repeated.",
    )
    @click.option("--directory", metavar="DIR", default="", help="Where the records are, if not in the usual place.")
    @click.option("-v", "--verbose", count=True, help="More on standard error; twice for all of it.")
    @click.pass_obj
    def wrapped(session: Session, /, *, verbose: int, **options: Any) -> Any:
        session.override(store_url=None, namespace=None, verbosity=verbose)
        names = ("timeout", "multipath", "clients", "directory")
        given = {name: options.pop(name) for name in names}
        with _plainly(session, looks=function.__name__ in _LOOKS):
            return function(session, given=given, **options)

    wrapped.__doc__ = function.__doc__
    wrapped.__name__ = function.__name__
    wrapped.__click_params__ = [*getattr(function, "__click_params__", ()), *wrapped.__click_params__]  # type: ignore[attr-defined]
    return wrapped  # type: ignore[return-value]


@contextmanager
def _plainly(session: Session, *, looks: bool) -> Iterator[None]:
    """Without -v nobody has asked for a log: a warning is a sentence, and nothing where the command only looks, whose
    answer has all of it."""
    if session.verbosity:
        yield
        return
    from quartermaster.cli.failures import Sentences
    from quartermaster.support import log

    with log.told_by(None if looks else Sentences()):
        yield


file_option = click.option(
    "-f",
    "--filename",
    "file",
    metavar="FILE|-",
    default="-",
    type=click.Path(allow_dash=True),
    help="The connection information as JSON; standard input if not given.",
)
volume_argument = click.argument("volume", metavar="VOLUME")
directory_argument = click.argument("target", metavar="DIR")


@click.group(cls=AnsweringGroup, short_help="Attach volumes of any storage system to this host.", epilog=EPILOG)
def command() -> None:
    """Attach volumes of any storage system to this host.

    A storage system describes a volume by connection information: which driver, and that driver's data. OpenStack's
    Cinder and os-brick write the same.
    """


@command.command(
    "connect",
    short_help="Attach a volume to this host.",
    epilog="\b\nExamples:\n  qm connector connect -f volume.json\n  qm connector connect --multipath < volume.json\n",
)
@file_option
@click.option("--no-local-attach", is_flag=True, help="Attach nothing: answer the URI by which programs open it.")
@connector_options
def connect(session: Session, *, given: dict[str, Any], file: str, no_local_attach: bool) -> None:
    """Attach a volume to this host; said twice it is as once.

    \b
    The answer: {"volumeId", "driverVolumeType", "path", "device", "identity", "uri"}
    """
    from quartermaster.cli.connecting import Choice, connect_and_show

    _end(session.run(lambda: connect_and_show(Choice(**given, do_local_attach=not no_local_attach), file)))


@command.command(
    "disconnect",
    short_help="Take a volume away from this host.",
    epilog="\b\nExamples:\n  qm connector disconnect -f volume.json\n  qm connector disconnect --force < volume.json\n",
)
@file_option
@click.option("--force", is_flag=True, help="Although it is in use, and though data may be lost that are not written.")
@connector_options
def disconnect(session: Session, *, given: dict[str, Any], file: str, force: bool) -> None:
    """Take a volume away from this host.

    \b
    The answer: {"path"}, which is empty where nothing was here
    """
    from quartermaster.cli.connecting import Choice, disconnect_and_show

    _end(session.run(lambda: disconnect_and_show(Choice(**given), file, force=force)))


@command.command(
    "extend",
    short_help="Make this host see a volume's new size.",
    epilog="\b\nExamples:\n  qm connector extend -f volume.json\n"
    "  qm connector extend -f volume.json --mounted /srv/data    the file system as well\n",
)
@file_option
@click.option("--mounted", metavar="DIR", default="", help="Where it is mounted: the file system there grows with it.")
@connector_options
def extend(session: Session, *, given: dict[str, Any], file: str, mounted: str) -> None:
    """Make this host see a volume's new size, after the storage system has made it larger.

    \b
    The answer: {"size"}, in bytes
    """
    from quartermaster.cli.connecting import Choice, extend_and_show

    _end(session.run(lambda: extend_and_show(Choice(**given), file, mounted=mounted)))


@command.command(
    "mount",
    short_help="Mount an attached volume on a directory.",
    epilog="\b\nExamples:\n  qm connector mount volume-0a1b /srv/data\n"
    "  qm connector mount volume-0a1b /srv/data --file-system xfs -o noatime\n"
    "  qm connector mount volume-0a1b /srv/data --key-file /etc/keys/volume-0a1b\n",
)
@volume_argument
@directory_argument
@click.option("--file-system", metavar="TYPE", default="", help="ext4, xfs or btrfs; ext4 is made if not given.")
@click.option("-o", "--option", "options", metavar="OPTION", multiple=True, help="As `mount -o`; may be repeated.")
@click.option("--read-only", is_flag=True, help="Nothing is written, and nothing is made.")
@click.option("--key-file", metavar="FILE|-", default="", help="The volume is encrypted (LUKS) with what is in it.")
@click.option(
    "--overwrite-unknown",
    is_flag=True,
    help="Make it also where there are data that no program recognises: they are lost.",
)
@connector_options
def mount(
    session: Session,
    *,
    given: dict[str, Any],
    volume: str,
    target: str,
    file_system: str,
    options: tuple[str, ...],
    read_only: bool,
    key_file: str,
    overwrite_unknown: bool,
) -> None:
    """Mount an attached volume on a directory; said twice it is as once.

    A file system is made only where nothing is found on the device, and its first and last MiB are zero. A volume that
    was connected to be read is mounted so. A corrupted mount is made anew.

    \b
    The answer: {"volumeId", "target", "source", "fileSystem"}
    """
    from quartermaster.cli.connecting import Choice, mount_and_show

    wanted = {"file_system": file_system, "options": options, "read_only": read_only}
    wanted["overwrite_unknown"] = overwrite_unknown
    _end(session.run(lambda: mount_and_show(Choice(**given), volume, target, key_file=key_file, **wanted)))


@command.command(
    "unmount",
    short_help="Unmount a volume.",
    epilog="\b\nExamples:\n  qm connector unmount volume-0a1b /srv/data\n",
)
@volume_argument
@directory_argument
@click.option("--force", is_flag=True, help="Although files are open in it, or its server does not answer.")
@connector_options
def unmount(session: Session, *, given: dict[str, Any], volume: str, target: str, force: bool) -> None:
    """Unmount a volume; an encrypted one is closed with its last mount. It stays attached.

    \b
    The answer: {"unmounted"}, which is false where nothing was mounted
    """
    from quartermaster.cli.connecting import Choice, unmount_and_show

    _end(session.run(lambda: unmount_and_show(Choice(**given), volume, target, force=force)))


@command.command(
    "stats",
    short_help="Show how large and how full a volume is.",
    epilog="\b\nExamples:\n  qm connector stats volume-0a1b /srv/data\n  qm connector stats volume-0a1b\n",
)
@volume_argument
@click.argument("target", metavar="[DIR]", default="")
@connector_options
def stats(session: Session, *, given: dict[str, Any], volume: str, target: str) -> None:
    """Show how large and how full a volume is; of a device that is not mounted, how large.

    \b
    The answer: {"size", "used", "available", "files", "filesUsed"}, in bytes and files; null what is not known
    """
    from quartermaster.cli.connecting import Choice, show_statistics

    _end(session.run(lambda: show_statistics(Choice(**given), volume, target)))


@command.command(
    "path", short_help="Show where a volume is.", epilog="\b\nExamples:\n  qm connector path volume-0a1b\n"
)
@volume_argument
@connector_options
def path(session: Session, *, given: dict[str, Any], volume: str) -> None:
    """Show where a volume is, after a look whether it still is, and whether its storage system answers.

    \b
    The answer: as that of connect; exit code 4 where it is not here, 6 where nobody answers behind it
    """
    from quartermaster.cli.connecting import Choice, show_path

    _end(session.run(lambda: show_path(Choice(**given), volume)))


@command.command(
    "list",
    short_help="List volumes on this host, ours and others.",
    epilog="\b\nExamples:\n  qm connector list\n  qm connector list --own -o json\n",
)
@click.option("--own", is_flag=True, help="Only what was attached by this library.")
@output_option_of(("json", "yaml"))
@connector_options
def list_volumes(session: Session, *, given: dict[str, Any], own: bool, output: str) -> None:
    """List the volumes that were attached here, and sessions, maps and mounts that somebody else made.

    One that is missing is not here any more; behind one that is unreachable nobody answers.

    \b
    With -o json: {"attachments": [{"volumeId", "driverVolumeType", "state", "path", "device", "present",
    "problem"}], "foreign": [{"driver", "kind", "name", "path"}]}
    """
    from quartermaster.cli.connecting import Choice, show_list

    _end(session.run(lambda: show_list(Choice(**given), own=own, output=output)))


@command.command(
    "properties",
    short_help="Show what storage systems ask about this host.",
    epilog="\b\nExamples:\n  qm connector properties\n  qm connector properties --multipath\n",
)
@click.option("--no-local-attach", is_flag=True, help="Programs of this host open volumes themselves.")
@connector_options
def properties(session: Session, *, given: dict[str, Any], no_local_attach: bool) -> None:
    """Show what storage systems ask about this host before they export a volume to it.

    \b
    The answer: {"doLocalAttach", "platform", "osType", "ip", "host", "multipath", "initiator"}, and where the
    host has them "wwpns", "wwnns", "nqn", "nvmeHostId", "sdcGuid"
    """
    from quartermaster.cli.connecting import Choice, show_properties

    _end(session.run(lambda: show_properties(Choice(**given, do_local_attach=not no_local_attach))))


@command.command(
    "recover",
    short_help="Take back what killed programs had begun.",
    epilog="\b\nExamples:\n  qm connector recover\n",
)
@connector_options
def recover(session: Session, *, given: dict[str, Any]) -> None:
    """Take back connects that were killed half way, and finish disconnects.

    \b
    The answer: {"recovered": [{"volumeId", "was", "problem"}]}; the exit code is 1 where one has a problem
    """
    from quartermaster.cli.connecting import Choice, recover_and_show

    _end(session.run(lambda: recover_and_show(Choice(**given))))


def _end(code: int) -> None:
    if code:
        raise click.exceptions.Exit(code)
