"""A real systemd as process 1, for the time of one command: systemd-nspawn on this machine's own /usr.

The root file system is memory with the machine's /usr in it, so nothing is built, downloaded or enabled, and nothing
that happens inside is left. The clone and the interpreter are there read-only. systemd starts the command as its one
unit and ends with the command's exit code.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from quartermaster.host.daemons import systemd_is_running
from quartermaster.testing.servers import find_program

ROOT = Path(__file__).resolve().parents[2]
OUT = "/out"
TIMEOUT_S = 200
UNIT = "under-test.service"
# Enters control groups of its own first: two systemd at once may not share one.
ENTER = 'for group in $OWN_GROUPS; do echo $$ > "$group/cgroup.procs"; done; exec "$@"'


def run_under_systemd(command: Sequence[str], out: Path, *, environment: dict[str, str]) -> int:
    """The exit code. `out` is the directory /out inside, where the command's output is in the file `log`."""
    machine = f"qm-test-{os.getpid()}"
    unit = out / UNIT
    unit.write_text(unit_text(command, environment))
    groups = own_groups(machine)
    try:
        for group in groups:
            group.mkdir()
        return run_nspawn(nspawn(machine, unit, out), " ".join(map(str, groups)))
    finally:
        for group in groups:
            remove_group(group)
        # It refuses to remove this one where /run is not in memory.
        shutil.rmtree(f"/run/systemd/nspawn/propagate/{machine}", ignore_errors=True)


def unit_text(command: Sequence[str], environment: dict[str, str]) -> str:
    variables = "".join(f"Environment={shlex.quote(f'{key}={value}')}\n" for key, value in environment.items())
    return (
        "[Unit]\nSuccessAction=exit\nFailureAction=exit\n"
        "[Service]\nType=oneshot\n"
        f"WorkingDirectory={ROOT}\n"
        f"{variables}"
        f"ExecStart={shlex.join(command)}\n"
        f"StandardOutput=append:{OUT}/log\nStandardError=append:{OUT}/log\n"
    )


def nspawn(machine: str, unit: Path, out: Path) -> list[str]:
    needed = dict.fromkeys([str(ROOT), sys.prefix, sys.base_prefix, str(find_program("etcd").parent)])
    seen = [Path(place) for place in needed if not place.startswith("/usr/")]
    return [
        "systemd-nspawn",
        "--quiet",
        "--directory=/",
        "--volatile=yes",
        "--register=no",
        # Without a systemd outside there is nobody to ask for control groups: those that it is in have to do.
        *([] if systemd_is_running() else ["--keep-unit"]),
        f"--machine={machine}",
        "--private-network",
        "--link-journal=no",
        "--console=pipe",
        *(f"--bind-ro={place}" for place in seen),
        f"--bind={out}:{OUT}",
        f"--bind-ro={unit}:/etc/systemd/system/{UNIT}",
        "--boot",
        "--",
        f"--unit={UNIT}",
    ]


def run_nspawn(argv: Sequence[str], groups: str) -> int:
    with subprocess.Popen(
        ["sh", "-c", ENTER, "sh", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OWN_GROUPS": groups},
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise AssertionError(f"the systemd inside did not end within {TIMEOUT_S} s:\n{output}") from None
    print(output)
    return process.returncode


def own_groups(name: str) -> list[Path]:
    """Where control groups for it are to be made; none where a systemd outside sees to that."""
    if systemd_is_running():
        return []
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    current = {controllers: path.lstrip("/") for _, controllers, path in lines}
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        target, kind, options = before.split()[4], after.split()[0], after.split()[2].split(",")
        if kind == "cgroup2":
            found.append(Path(target) / current[""] / name)
        elif kind == "cgroup" and "name=systemd" in options:
            found.append(Path(target) / current["name=systemd"] / name)
    return found


def remove_group(group: Path) -> None:
    """They are empty, or the kernel keeps them."""
    with suppress(OSError):
        for directory, _, _ in os.walk(group, topdown=False):
            os.rmdir(directory)
