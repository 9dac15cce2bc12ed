"""`qm volume`: claims and their volumes, and a volume on the host where the command runs."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_claims
from quartermaster.cli.options import output_option_of, seconds_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm volume list                       claims, their volumes, where they are and where mounted
  qm volume mount data /mnt/data       the volume of the claim data, on this host
  qm volume unmount /mnt/data          by path, or by claim

A claim is an object like any other: `qm apply -f claim.yaml`, `qm describe pvc data`, `qm delete pvc data`.
"""
FORMS = ("wide", "yaml", "json")


@click.group(short_help="List volumes, and mount them on this host.", epilog=EPILOG)
def command() -> None:
    """List volumes, and mount them on this host."""


@command.command(
    "list",
    short_help="List claims with their volumes.",
    epilog="\b\nExamples:\n  qm volume list\n  qm volume list -A -o wide\n  qm volume list -o json\n",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@output_option_of(FORMS)
@store_options
def list_volumes(session: Session, *, all_namespaces: bool, output: str) -> None:
    """List claims with their volumes: where they are, where they are mounted, and what they wait for."""
    from quartermaster.cli.volumes import show_volumes

    session.run(lambda: show_volumes(session, all_namespaces=all_namespaces, output=output))


@command.command(
    "mount",
    short_help="Mount the volume of a claim on this host.",
    epilog="""\b
Examples:
  qm volume mount data /mnt/data
  qm volume mount data /mnt/data --timeout 5m
  cd "$(qm volume mount data ~/data)"      the path that is printed is the one to use
""",
)
@click.argument("claim", metavar="CLAIM", shell_complete=complete_claims)
@click.argument("path", metavar="PATH", type=click.Path(file_okay=False))
@click.option("--host", metavar="NAME", default="", help="The name of this host, if it is not its own.")
@click.option(
    "--timeout", metavar="DURATION", type=seconds_of, default="60s", show_default=True, help="How long to wait."
)
@store_options
def mount(session: Session, *, claim: str, path: str, host: str, timeout: float) -> None:
    """Mount the volume of a claim on this host, and print the path to use.

    The leader is asked first. A claim whose volume is not there yet is waited for; one that waits for its first
    consumer gets its volume on this host. Mounting again what is mounted changes nothing. Without root a volume that is
    a directory of this host is given as that directory, and nothing is mounted.
    """
    from quartermaster.cli.mounting import mount_claim

    session.run(lambda: mount_claim(session, claim, path, host=host, timeout_s=timeout))


@command.command(
    "unmount",
    short_help="Unmount a volume from this host.",
    epilog="\b\nExamples:\n  qm volume unmount /mnt/data   one path\n  qm volume unmount data        wherever it is\n"
    "  qm volume unmount data --gone h3\n",
)
@click.argument("what", metavar="PATH|CLAIM", shell_complete=complete_claims)
@click.option("--host", metavar="NAME", default="", help="The name of this host, if it is not its own.")
@click.option("--gone", metavar="HOST", default="", help="Give up the mounts of a host that is gone for good.")
@store_options
def unmount(session: Session, *, what: str, host: str, gone: str) -> None:
    """Unmount a volume from this host, by path or by claim.

    What has a slash in it is a path. Unmounting what is not mounted changes nothing, and what somebody else has mounted
    is left alone. A volume that is mounted somewhere is never deleted; with --gone it no longer counts as mounted on a
    host that will not come back, and nothing is unmounted anywhere. That takes the rights of an administrator: a host
    speaks for itself only.
    """
    if gone and host:
        raise click.UsageError("--gone is about another host; leave out --host")
    if gone:
        from quartermaster.cli.giving_up import give_up

        session.run(lambda: give_up(session, what, gone))
    else:
        from quartermaster.cli.mounting import unmount_path_or_claim

        if code := session.run(lambda: unmount_path_or_claim(session, what, host=host)):
            raise click.exceptions.Exit(code)
