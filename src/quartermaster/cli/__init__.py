"""`qm`: the command line. One file per verb; a command's imports are paid for only when it runs."""

from quartermaster.cli.root import main

__all__ = ["main"]
