"""`qm edit`: change an object in an editor."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_targets
from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm edit storagenode storage-node1
  EDITOR="code --wait" qm edit sn/storage-node1
"""


@click.command(short_help="Change an object in your editor.", epilog=EPILOG)
@click.argument("words", metavar="TYPE NAME | TYPE/NAME", nargs=-1, required=True, shell_complete=complete_targets)
@store_options
def command(session: Session, *, words: tuple[str, ...]) -> None:
    """Change an object in your editor: KUBE_EDITOR, VISUAL or EDITOR, else vi.

    A mistake opens the editor again and says what is wrong. If somebody else changed the object in between, nothing is
    written. Whatever is not written is kept in a file that the command names.
    """
    from quartermaster.cli.editing import edit

    edit(session, words)
