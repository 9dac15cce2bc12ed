"""`qm completion`: the script that makes a shell complete kinds, names and options."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  source <(qm completion bash)                              now; put it into ~/.bashrc for later
  qm completion zsh > "${fpath[1]}/_qm"
  qm completion fish > ~/.config/fish/completions/qm.fish
"""


@click.command(short_help="Print the shell completion for bash, zsh or fish.", epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the shell completion for bash, zsh or fish.

    Kinds, options and the names of objects are completed. Names come from the store within a second, or not at all.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    from quartermaster.cli.root import COMPLETE_VARIABLE, root

    completion = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    # Not `source`: for bash that asks the bash on the PATH for its version, which need not be the reader of this.
    instance = completion(root, {}, "qm", COMPLETE_VARIABLE)
    click.echo(instance.source_template % instance.source_vars())
