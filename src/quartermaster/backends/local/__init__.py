"""Disks and directories of hosts as they are, without a storage system: no daemons, and no root for directories.

The shortest backend, and the example for the next one: docs/guide/writing-a-backend.md walks through it.
"""

from quartermaster.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
