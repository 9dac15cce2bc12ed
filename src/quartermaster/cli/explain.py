"""`qm explain`: kinds and their fields, from the types themselves."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_kinds

EPILOG = """\b
Examples:
  qm explain                                   the kinds
  qm explain storagenode
  qm explain storagenode.spec.glusterfs
  qm explain storagestatus --recursive         all fields at once
"""


@click.command(short_help="Explain a kind and its fields.", epilog=EPILOG)
@click.argument("path", metavar="[TYPE[.FIELD...]]", required=False, default="", shell_complete=complete_kinds)
@click.option("--recursive", is_flag=True, help="Show the fields of the fields too.")
def command(path: str, recursive: bool) -> None:
    """Explain a kind and its fields. Needs no store."""
    from quartermaster.cli.explaining import explain, explain_kinds

    click.echo(explain(path, recursive=recursive) if path else explain_kinds(), nl=False)
