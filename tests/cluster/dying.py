"""`qm` as a process that notes its steps and may be told to die at one: `python -m tests.cluster.dying ROLE COMMAND…`.

A step is a write to the store or a command on the host. A leader's writes are those with a fence; everything else is an
agent's. What to die at, and what was done, are files in the directory QM_DYING; dying is SIGKILL.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

LEASE_S, RETRY_S = 4, 1.0
WRITES = ("create", "update", "update_status", "apply", "delete")


class Step(msgspec.Struct, frozen=True, order=True):
    """Something that a leader or an agent did while a node was added or removed."""

    phase: str  # add, remove
    who: str  # leader, agent
    what: str  # "write assignments/local-default.h2", "run mkfs.ext4: …"
    number: int = 1  # which of several alike

    def __str__(self) -> str:
        return f"{self.phase}: {self.who}: {self.what}" + (f" ({self.number})" if self.number > 1 else "")

    @classmethod
    def of(cls, line: str) -> Step:
        phase, who, what = line.split(": ", 2)
        numbered = re.fullmatch(r"(.*) \((\d+)\)", what)
        return cls(phase, who, numbered[1], int(numbered[2])) if numbered else cls(phase, who, what)


class Fatal(msgspec.Struct, frozen=True):
    """Where to die: before the step takes effect, or right after it."""

    step: Step
    after: bool


class Journal:
    """The files by which a test and its processes talk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._phase, self._fatal, self._died = (directory / name for name in ("phase", "fatal", "died"))

    def begin(self, phase: str) -> None:
        self._phase.write_text(phase)

    def arm(self, fatal: Fatal | None) -> None:
        for left in (self._died, *self._directory.glob("trace-*")):
            left.unlink(missing_ok=True)
        self._fatal.write_bytes(msgspec.json.encode(fatal))

    @property
    def died(self) -> bool:
        return self._died.exists()

    def trace(self, role: str) -> list[Step]:
        path = self._directory / f"trace-{role}"
        return [Step.of(line) for line in path.read_text().splitlines()] if path.exists() else []

    def note(self, who: str, what: str, *, looks: bool) -> Step | None:
        """The step, where a phase is under way. An agent looks at its devices as often as something happens to them."""
        phase = self._phase.read_text() if self._phase.exists() else ""
        alike = [one for one in self.trace(who) if (one.phase, one.what) == (phase, what)]
        if not phase or (looks and alike):
            return None
        step = Step(phase, who, what, len(alike) + 1)
        with (self._directory / f"trace-{who}").open("a") as trace:
            trace.write(f"{step}\n")
        return step

    def die_at(self, step: Step | None, *, after: bool) -> None:
        if step is None or not self._fatal.exists() or self._died.exists():
            return
        if msgspec.json.decode(self._fatal.read_bytes(), type=Fatal | None) == Fatal(step, after):
            self._died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def watched(
    journal: Journal, name: Callable[..., tuple[str, str, bool] | None], call: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def made(*arguments: Any, **options: Any) -> Any:
        found = name(*arguments, **options)
        step = journal.note(found[0], found[1], looks=found[2]) if found is not None else None
        journal.die_at(step, after=False)
        result = await call(*arguments, **options)
        journal.die_at(step, after=True)
        return result

    return made


def install(journal: Journal, role: str) -> None:
    from quartermaster.host.commands import Command, HostCommands
    from quartermaster.operators import assembly
    from quartermaster.resources.kind import kind_of
    from quartermaster.resources.kubernetes.core import Event, Lease
    from quartermaster.stores.kubernetes import KubernetesStore
    from quartermaster.stores.objects import ObjectStore

    def write(_store: object, what: Any, name: str = "", *_: Any, **options: Any) -> tuple[str, str, bool] | None:
        kind = what if isinstance(what, type) else type(what)
        who = "leader" if options.get("fence") is not None else "agent"
        if who != role or issubclass(kind, Lease | Event) or options.get("dry_run"):
            return None
        return who, f"write {kind_of(kind).plural}/{name or what.metadata.name}", False

    def run(_commands: object, command: Command) -> tuple[str, str, bool] | None:
        if role != "agent":
            return None
        return "agent", f"run {Path(command.argv[0]).name}: {steady(command.verb)}", not command.changes

    for store in (ObjectStore, KubernetesStore):
        for call in WRITES:
            setattr(store, call, watched(journal, write, getattr(store, call)))
    HostCommands.run = watched(journal, run, HostCommands.run)  # type: ignore[method-assign, assignment]
    # A successor waits until the lease of who was killed has run out.
    assembly.operator_runtime.__kwdefaults__.update(lease_s=LEASE_S, retry_s=RETRY_S)


def steady(text: str) -> str:
    """Without what another cluster would call otherwise."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    return text.replace(os.environ.get("QM_STATE_DIR", "\0"), "STATE")


def main() -> None:
    install(Journal(Path(os.environ["QM_DYING"])), sys.argv.pop(1))
    from quartermaster.cli import main as qm

    qm()


if __name__ == "__main__":
    main()
