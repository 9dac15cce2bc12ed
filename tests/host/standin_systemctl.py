"""A stand-in for systemctl and journalctl that runs real processes, as far as the runtime of daemons uses them.

It is copied into a directory of its own, in which units, loaded units, process numbers, exit codes and logs lie.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

HOME = Path(__file__).resolve().parent
UNITS, LOADED, STATE = HOME / "units", HOME / "loaded", HOME / "state"


def main(arguments: list[str]) -> int:
    if Path(sys.argv[0]).name == "journalctl":
        options = dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)
        log = STATE / f"{options['_SYSTEMD_UNIT']}.log"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        sys.stdout.write("".join(lines[-int(options["lines"]) :]))
        return 0
    verb, *rest = arguments
    return {"daemon-reload": reload, "show": show, "start": start, "stop": stop, "reset-failed": forget}[verb](*rest)


def reload() -> int:
    for directory, other in ((LOADED, UNITS), (UNITS, LOADED)):
        for file in directory.glob("*.service"):
            if directory is UNITS:
                (LOADED / file.name).write_bytes(file.read_bytes())
            elif not (other / file.name).exists():
                file.unlink()
    return 0


def settings(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (LOADED / unit).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key, []).append(value.replace("%%", "%"))
    return found


def running(unit: str) -> int:
    try:
        pid = int((STATE / f"{unit}.pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # As long as its end is not written down, systemd has not noticed it either.
    return pid if state != "Z" or not (STATE / f"{unit}.exit").exists() else 0


def show(unit: str, *_: str) -> int:
    pid = running(unit)
    exit_file = STATE / f"{unit}.exit"
    code = int(exit_file.read_text()) if exit_file.exists() else None
    print(f"LoadState={'loaded' if (LOADED / unit).exists() else 'not-found'}")
    print(f"ActiveState={'active' if pid else 'failed' if code else 'inactive'}")
    print(f"MainPID={pid}")
    print(f"ExecMainCode={0 if code is None else 2 if code < 0 else 1}")
    print(f"ExecMainStatus={abs(code or 0)}")
    return 0


def start(unit: str) -> int:
    if not (LOADED / unit).exists():
        print(f"Failed to start {unit}: Unit {unit} not found.", file=sys.stderr)
        return 5
    if running(unit):
        return 0
    for suffix in ("pid", "exit"):
        (STATE / f"{unit}.{suffix}").unlink(missing_ok=True)
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        supervise(unit)
    for _ in range(500):
        if (STATE / f"{unit}.pid").exists():
            return 0
        if (STATE / f"{unit}.exit").exists():
            print(f"Job for {unit} failed because the control process exited with error code.", file=sys.stderr)
            return 1
        time.sleep(0.01)
    return 1


def supervise(unit: str) -> None:
    import shlex  # here: most calls only ask, and are many
    import subprocess

    wanted = settings(unit)
    argv = [word.replace("$$", "$") for word in shlex.split(wanted["ExecStart"][0])]
    environment = dict(shlex.split(value)[0].split("=", 1) for value in wanted.get("Environment", []))
    with (STATE / f"{unit}.log").open("ab") as log:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], **environment},
                cwd=wanted["WorkingDirectory"][0],
                start_new_session=True,
            )
        except OSError:
            write(f"{unit}.exit", "203")
            os._exit(0)
    write(f"{unit}.pid", str(process.pid))
    write(f"{unit}.exit", str(process.wait()))
    if wanted["KillMode"] == ["mixed"]:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(0)


def stop(unit: str) -> int:
    if not (LOADED / unit).exists():
        return 5
    pid = running(unit)
    if pid:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + float(settings(unit)["TimeoutStopSec"][0])
        while running(unit):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
    return 0


def forget(unit: str) -> int:
    if running(unit):
        return 0
    if not (STATE / f"{unit}.exit").exists():
        print(f"Failed to reset failed state of unit {unit}: Unit {unit} not loaded.", file=sys.stderr)
        return 1
    (STATE / f"{unit}.exit").unlink()
    return 0


def write(name: str, text: str) -> None:
    temporary = STATE / f".{name}"
    temporary.write_text(text)
    temporary.rename(STATE / name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
