"""A host that is only files: programs that are scripts, a sysfs and a /dev of its own, and a log of all that was done.

The programs are real executables in real processes, so a killed connector leaves them at work as on a real host. Each
of them, each file operation of the connector and each request to a stub passes `step`, which numbers them and can make
any one fail, before or after its effect, or kill the connector while it runs.

Nothing but the standard library is imported here: the programs start with `python -S`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
FAIL_BEFORE, FAIL_AFTER, KILL, KILL_AFTER = "fail before", "fail after", "kill", "kill after"
_MOUNTINFO = "proc/self/mountinfo"
_UNSEEN = ("bin", "log", "steps", "plan", "victim", "lock", "state/locks", "answers")
_ROOT_LINE = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"


class InjectedError(OSError):
    """A file operation that was made to fail."""


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)

    def make(self) -> World:
        for name in (
            *("bin", "sys/class/block", "sys/block", "dev/disk/by-id", "dev/disk/by-path", "proc/self", "etc"),
            *("state/attachments", "state/mounts", "state/secrets", "state/locks"),
        ):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        (self.directory / _MOUNTINFO).write_text(_ROOT_LINE)
        (self.directory / "log").touch()
        return self

    def path(self, inside: str) -> Path:
        return self.directory / inside

    def install(self, **tools: str) -> None:
        """`mount="tests.connectors.harness.tools:mount"`: a program of that name that runs the function."""
        for name, function in tools.items():
            file = self.directory / "bin" / name.replace("__", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(
                f"#!{sys.executable} -SE\n"
                f"import sys\nsys.path[:0] = {[str(REPOSITORY), str(REPOSITORY / 'src')]!r}\n"
                f"from tests.connectors.harness.tool import main\n"
                f"main({str(self.directory)!r}, {file.name!r}, {function!r})\n"
            )
            file.chmod(0o755)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with (self.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def facts(self) -> Iterator[dict[str, Any]]:
        """What the programs know of each other: sessions, maps, files on servers. Read, changed, written back."""
        file = self.directory / "facts.json"
        with self.alone():
            known = json.loads(file.read_text()) if file.exists() else {}
            before = json.dumps(known, sort_keys=True)
            yield known
            if json.dumps(known, sort_keys=True) != before:
                _replace(file, json.dumps(known, sort_keys=True))

    def fact(self, name: str, default: Any = None) -> Any:
        with self.facts() as known:
            return known.get(name, default)

    def set_fact(self, name: str, value: Any) -> None:
        with self.facts() as known:
            known[name] = value

    def mounts(self) -> list[dict[str, str]]:
        lines = (self.directory / _MOUNTINFO).read_text().splitlines()
        return [
            {"target": line.split(" ")[4], "type": line.split(" ")[-3], "source": line.split(" ")[-2]} for line in lines
        ]

    def add_mount(self, source: str, target: str, type: str) -> None:
        with self.alone():
            file = self.directory / _MOUNTINFO
            text = file.read_text()
            number = max(int(line.split(" ")[0]) for line in text.splitlines()) + 1
            _replace(file, f"{text}{number} 1 0:{number} / {target} rw - {type} {source} rw\n")

    def drop_mount(self, target: str) -> bool:
        with self.alone():
            file = self.directory / _MOUNTINFO
            lines = file.read_text().splitlines()
            place = max((n for n, line in enumerate(lines) if line.split(" ")[4] == target), default=-1)
            if place < 0:
                return False
            del lines[place]
            _replace(file, "".join(f"{line}\n" for line in lines))
            return True

    def add_device(self, name: str, **attributes: str | bytes) -> Path:
        """A device in sysfs, then its node: `add_device("sda", size="2048", device__wwid="naa.5")`."""
        directory = self.directory / "sys/class/block" / name.replace("/", "!")
        directory.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in directory.parent.iterdir())
        for key, value in {"dev": f"250:{number}", "size": "20480", **attributes}.items():
            file = directory / key.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(value if isinstance(value, bytes) else value.encode())
        node = self.directory / "dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        node.write_text("")
        return node

    def drop_device(self, name: str) -> None:
        import shutil

        (self.directory / "dev" / name).unlink(missing_ok=True)
        shutil.rmtree(self.directory / "sys/class/block" / name.replace("/", "!"), ignore_errors=True)

    def plan(self, number: int, how: str, *, late_s: float = 0.0) -> None:
        """The step of that number, counted from 0 and from now, goes wrong."""
        (self.directory / "steps").write_text("0")
        (self.directory / "plan").write_text(json.dumps({"number": number, "how": how, "late_s": late_s}))

    def unplan(self) -> None:
        (self.directory / "plan").unlink(missing_ok=True)
        (self.directory / "steps").write_text("0")

    def count(self) -> int:
        file = self.directory / "steps"
        return int(file.read_text()) if file.exists() else 0

    @contextmanager
    def step(self, name: str) -> Iterator[str]:
        """Around an effect. Yields how it shall go wrong; whoever calls makes it fail, this only kills."""
        how, late_s = self._next(name)
        if how == KILL:
            self.kill_victim()
            time.sleep(late_s)
        yield how
        if how == KILL_AFTER:
            self.kill_victim()

    def log(self, entry: dict[str, Any]) -> None:
        with (self.directory / "log").open("a") as log:
            log.write(json.dumps(entry) + "\n")

    def commands(self) -> list[list[str]]:
        """The argument vectors so far, with the world's own path cut out."""
        lines = (self.directory / "log").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        return [
            [part.replace(str(self.directory), "{world}") for part in entry["argv"]]
            for entry in entries
            if "argv" in entry
        ]

    def started(self) -> list[list[str]]:
        """What programs have started in their turn: not the library's choice, and seen by every user all the same."""
        lines = (self.directory / "log").read_text().splitlines()
        return [entry["started"] for entry in map(json.loads, lines) if "started" in entry]

    def forget(self) -> None:
        (self.directory / "log").write_text("")
        self.unplan()

    def kill_victim(self) -> None:
        file = self.directory / "victim"
        if file.exists():
            os.kill(int(file.read_text()), signal.SIGKILL)

    def snapshot(self) -> dict[str, str]:
        """Everything on the host; what only the harness knows is left out."""
        found: dict[str, str] = {}
        for place, directories, files in os.walk(self.directory):
            inside = os.path.relpath(place, self.directory)
            directories[:] = sorted(
                name for name in directories if os.path.join(inside, name).removeprefix("./") not in _UNSEEN
            )
            for name in (*directories, *files):
                key = os.path.join(inside, name).removeprefix("./")
                if key not in _UNSEEN:
                    found[key] = _content(self.directory / key)
        return found

    def _next(self, name: str) -> tuple[str, float]:
        with self.alone():
            number = self.count()
            (self.directory / "steps").write_text(str(number + 1))
            with (self.directory / "log").open("a") as log:
                log.write(json.dumps({"step": name, "number": number}) + "\n")
            file = self.directory / "plan"
            wanted = json.loads(file.read_text()) if file.exists() else {}
        return (wanted["how"], wanted["late_s"]) if wanted.get("number") == number else ("", 0.0)


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    return "directory" if path.is_dir() else path.read_bytes().decode(errors="replace")


def _replace(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(text)
    temporary.rename(file)
