"""`qm agent` as a process that notes its steps and may be told to die: `python -m tests.cluster_glusterfs.dying`.

As `tests.cluster.dying`, for clusters in which any host may lead: every process notes what it does as the leader and
what as an agent, in one journal, and each place to die at is used once, by whoever comes there first.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster import dying
from tests.cluster.dying import LEASE_S, RETRY_S, WRITES, Fatal, Step, watched

# In them no node comes or goes: which of the hosts is told something first is chance.
HOSTS_ALIKE = ("create", "delete")


class Journal(dying.Journal):
    def note(self, who: str, what: str, *, looks: bool) -> Step | None:
        phase = self._phase.read_text() if self._phase.exists() else ""
        if phase in HOSTS_ALIKE:
            what = any_host(what)
        noted = super().note(who, what, looks=looks)
        # A look is a place to die at as often as it is taken: who was the first to may have died elsewhere meanwhile.
        return Step(phase, who, what) if phase and looks else noted

    def arm_all(self, fatals: Sequence[Fatal]) -> None:
        for left in (*self._directory.glob("died-*"), *self._directory.glob("trace-*")):
            left.unlink()
        self._fatal.write_bytes(msgspec.json.encode(list(fatals)))

    @property
    def deaths(self) -> list[int]:
        return sorted(int(path.name.partition("-")[2]) for path in self._directory.glob("died-*"))

    def die_at(self, step: Step | None, *, after: bool) -> None:
        if step is None or not self._fatal.exists():
            return
        for number, fatal in enumerate(msgspec.json.decode(self._fatal.read_bytes(), type=list[Fatal])):
            mark = self._directory / f"died-{number}"
            if fatal == Fatal(step, after) and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def steady(text: str) -> str:
    """Without what another cluster would call otherwise, and without which host speaks for the pool at the moment."""
    text = re.sub(r"\b10\.\d+\.\d+\.(\d+)\b", r"ADDRESS\1", dying.steady(text))
    text = re.sub(r"\.m\d+\b", ".mN", text)
    text = re.sub(r"^take h(\d) out", r"take ADDRESS\1 out", text)  # who made the pool is known by name
    return re.sub(r"^(assignments/glusterfs-\S+)\.h\d$", r"\1.HOST", text)


def any_host(what: str) -> str:
    return re.sub(r"(?<=[/.])h\d$", "HOST", what)


def install(journal: Journal) -> None:
    from quartermaster.host.commands import Command, HostCommands
    from quartermaster.operators import assembly
    from quartermaster.resources.kind import kind_of
    from quartermaster.resources.kubernetes.core import Event, Lease
    from quartermaster.stores.kubernetes import KubernetesStore
    from quartermaster.stores.objects import ObjectStore

    def write(_store: object, what: Any, name: str = "", *_: Any, **options: Any) -> tuple[str, str, bool] | None:
        kind = what if isinstance(what, type) else type(what)
        if issubclass(kind, Lease | Event) or options.get("dry_run"):
            return None
        who = "leader" if options.get("fence") is not None else "agent"
        return who, "write " + steady(f"{kind_of(kind).plural}/{name or what.metadata.name}"), False

    def run(_commands: object, command: Command) -> tuple[str, str, bool] | None:
        return "agent", f"run {Path(command.argv[0]).name}: {steady(command.verb)}", not command.changes

    for store in (ObjectStore, KubernetesStore):
        for call in WRITES:
            setattr(store, call, watched(journal, write, getattr(store, call)))
    HostCommands.run = watched(journal, run, HostCommands.run)  # type: ignore[method-assign, assignment]
    # A successor waits until the lease of who was killed has run out.
    assembly.operator_runtime.__kwdefaults__.update(lease_s=LEASE_S, retry_s=RETRY_S)


def main() -> None:
    install(Journal(Path(os.environ["QM_DYING"])))
    from quartermaster.cli import main as qm

    qm()


if __name__ == "__main__":
    main()
