"""`qm cstor check`: what OpenEBS would refuse of a CStorPoolCluster."""

from __future__ import annotations

import click

from quartermaster.cli.options import output_option_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm cstor check pools.yaml                     its form, and its disks if they stand in the file too
  qm cstor check new.yaml --against old.yaml    the change from one to the other
  qm cstor check new.yaml --live                against what is in the store: nodes, disks, volumes
  qm cstor check pools.yaml -o json             for programs
"""


@click.command(short_help="Check a CStorPoolCluster against what OpenEBS takes.", epilog=EPILOG)
@click.argument("file", metavar="FILE", type=str)
@click.option("--against", metavar="FILE", help="The pool cluster as it is now: check the change.")
@click.option("--live", is_flag=True, help="Take the pool cluster, nodes, disks and volumes from the store.")
@output_option_of(("json", "yaml"))
@store_options
def command(session: Session, *, file: str, against: str | None, live: bool, output: str) -> None:
    """Check a CStorPoolCluster against what OpenEBS takes. Nothing is written.

    Nodes, BlockDevices, BlockDeviceClaims and CStorVolumeReplicas that stand in the same file are looked at; without
    any, only the form of the pool cluster is checked. The exit code is 1 when OpenEBS would refuse it.
    """
    from quartermaster.cli.cstor_checking import check_file

    if against and live:
        raise click.UsageError("--against and --live exclude each other: both say what there is now")
    if code := session.run(lambda: check_file(session, file, against=against, live=live, output=output)):
        raise click.exceptions.Exit(code)
