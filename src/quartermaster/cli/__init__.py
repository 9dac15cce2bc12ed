"""`qm`: the command line. One file per verb; a command's imports are paid for only when it runs."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """The entry point."""
    if sys.argv[1:2] == ["connector"]:
        # Programs read its answer: a signal that comes while the rest is imported is answered too.
        from quartermaster.cli import ending

        ending.listen()
    try:
        from quartermaster.cli import root

        root.main()
    except KeyboardInterrupt:  # also while all of that is imported
        sys.exit(128 + signal.SIGINT)


__all__ = ["main"]
