"""Where things are on this host: by the variables that a virtual host sets, else where they usually are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

STATE_VARIABLE = "QM_STATE_DIR"
DEVICE_ROOT_VARIABLE = "QM_DEVICE_ROOT"
SYSTEM_STATE = Path("/var/lib/quartermaster")


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """What must outlive every process: /var/lib/quartermaster for root, else a directory of the user's own."""
    given = environment.get(STATE_VARIABLE)
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return SYSTEM_STATE
    base = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".local/state"
    return Path(base) / "quartermaster"


def device_root(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The directory with the disks of a virtual host; None on a real one."""
    given = environment.get(DEVICE_ROOT_VARIABLE)
    return Path(given) if given else None


def host_name() -> str:
    """This host's own name, as objects are named."""
    return os.uname().nodename.lower().replace("_", "-") or "host"
