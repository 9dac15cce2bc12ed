"""`qm cstor`: the commands of the cStor backend, each in a file of its own: cstor_check.py, cstor_serve.py, …"""

from __future__ import annotations

import click

from quartermaster.cli.root import LazyGroup

COMMANDS: dict[str, str] = {
    "check": "Check a CStorPoolCluster against what OpenEBS takes.",
    "convert": "Print the CStorClusterConfig for an old CSPCAuto.",
    "serve": "Serve the hooks over HTTP.",
    "controller": "Run the controller of cStor clusters.",
    "conformance": "Drive a live installation through its workflows.",
}

EPILOG = """\b
Examples:
  qm cstor check pools.yaml                what OpenEBS would refuse of it
  qm cstor convert old.yaml                the declaration that takes its place
  qm cstor controller                      run the cStor clusters of a store
"""


class CStorGroup(LazyGroup):
    table = COMMANDS
    modules = "quartermaster.cli.cstor_"


@click.group(cls=CStorGroup, short_help="Run and check cStor clusters of OpenEBS.", epilog=EPILOG)
def command() -> None:
    """Run and check cStor clusters of OpenEBS.

    A cStor cluster is declared as a CStorClusterConfig: `qm apply`, `qm plan -f`, `qm get cscconfig`.
    """
