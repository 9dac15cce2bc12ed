"""What a host was told when it was brought up, kept for every later start of its agent."""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.host.files import write_whole
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.names import DEFAULT_NAMESPACE
from quartermaster.resources.orchestration import Wishes
from quartermaster.support.errors import InvalidError

FILE = "host.json"


class HostSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one host. `store` "": as access.json says, which joining wrote."""

    name: str
    namespace: str = DEFAULT_NAMESPACE
    store: str = ""
    leads: bool = False  # whether the agent's process leads as well, with the rights of its own store
    addresses: tuple[str, ...] = ()
    labels: dict[str, str | None] = {}  # None: taken back
    wishes: Wishes | None = None
    timings: Timings = Timings()


def read_settings(directory: Path) -> HostSettings | None:
    """None where the host was never brought up."""
    path = directory / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=HostSettings)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"cannot read {path}: {error}", hint="mend it, or remove it and run `qm up` again"
        ) from error


def write_settings(directory: Path, settings: HostSettings) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(directory / FILE, msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")
