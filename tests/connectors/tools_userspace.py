"""qemu-storage-daemon, as far as a connector sees it: a file that is mounted over, a pid file, a process that stays."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from quartermaster.testing.arguments import option
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World


def qemu_storage_daemon(world: World, arguments: list[str], _stdin: str) -> Answer:
    secret = option(arguments, "--object")
    if secret and not Path(json.loads(secret)["file"]).is_file():
        return 1, "", "qemu-storage-daemon: cannot read the secret"
    file = Path(json.loads(option(arguments, "--export"))["mountpoint"])
    pid_file = Path(option(arguments, "--pidfile"))
    # From now on a signal ends it in the orderly way, also while it is still opening.
    signal.signal(signal.SIGTERM, lambda *_: leave(world, file, pid_file))
    file.write_bytes(b"\0" * 4096)
    world.add_mount("/dev/fuse", str(file), "fuse")
    stay_instead_of_ending(os._exit)
    pid_file.write_text(str(os.getpid()))
    return 0, "", ""


def stay_instead_of_ending(end: Callable[[int], NoReturn]) -> None:
    """The harness ends a program after its effect; this one is a daemon, and its effect is that it is there."""

    def stay(code: int) -> NoReturn:
        while code == 0:
            signal.pause()
        end(code)

    os._exit = stay


def leave(world: World, file: Path, pid_file: Path) -> None:
    world.drop_mount(str(file))
    with suppress(FileNotFoundError):
        os.truncate(file, 0)
    pid_file.unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)
