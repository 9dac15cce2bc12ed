"""What the leader would do to storage clusters, as it is or with changed files. Nothing is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quartermaster.backends.registry import installed_backends
from quartermaster.cli.given import Given
from quartermaster.cli.planning import Planned
from quartermaster.cli.session import MANAGER
from quartermaster.cli.statuses import is_led
from quartermaster.cli.tables import Writer
from quartermaster.operators.looking import Prospect, look, prospects
from quartermaster.orchestration.joining.foreseeing import Foreseen, foresee, memory_of
from quartermaster.planning.cluster import ClusterKey, NodeOutcome, NodeView
from quartermaster.planning.outcomes import FAILED, READY
from quartermaster.resources import Object, StorageCluster, StorageNode

if TYPE_CHECKING:
    from quartermaster.stores import Store

KINDS: tuple[type[Object], ...] = (StorageNode, StorageCluster)
_STEPS = ("STEP", "WHAT", "WHY")
_NODES = ("NODE", "STATE", "MESSAGE")


class Shown(msgspec.Struct, frozen=True):
    """One cluster, as programs read it."""

    cluster: str
    online: bool
    message: str
    paused: bool
    steps: list[dict[str, Any]]
    nodes: list[dict[str, str]]


async def plan_clusters(store: Store, namespace: str, given: Sequence[Given]) -> Planned:
    """Every storage cluster of the namespace, with what was given in place of what is there."""
    backends = {backend.type: backend for backend in installed_backends()}
    changed = [
        await store.apply(one.document, manager=MANAGER, force=True, dry_run=True)
        for one in given
        if one.kind in KINDS and one.namespace == namespace
    ]
    snapshot = await look(store, namespace, backends, changed)
    found = prospects(snapshot, backends)
    data: dict[str, Any] = {"clusters": [msgspec.to_builtins(_shown(*item)) for item in found.items()]}
    texts = [_text(key, prospect) for key, prospect in found.items()]
    if unserved := [_unserved(node) for node in snapshot.nodes if node.spec.type not in backends]:
        data["unserved"] = unserved
        texts.append("of no cluster:\n" + _troubles(unserved))
    if texts and not await is_led(store, namespace):
        click.echo(f"note: nobody leads in {namespace}: the hosts are as the last leader left them", err=True)
    texts = texts or [f"no storage cluster is declared in {namespace}\n"]
    memory = await memory_of(store, namespace)
    if memory is not None:
        foreseen = foresee(memory, snapshot.hosts)
        data["etcd"] = {
            "members": list(foreseen.members),
            "message": foreseen.message,
            "steps": [{"what": what, "why": why} for what, why in foreseen.steps],
        }
        texts.append(_etcd_text(foreseen))
    return Planned("\n".join(texts), data, refused=bool(unserved))


def _unserved(node: StorageNode) -> dict[str, str]:
    message = f"no backend for the type {node.spec.type} is installed"
    return {"name": node.metadata.name, "state": FAILED, "reason": "NoBackend", "message": message}


def _etcd_text(foreseen: Foreseen) -> str:
    head = f"etcd on {', '.join(foreseen.members) or 'no host'}: {foreseen.message}\n"
    if not foreseen.steps:
        return head + "  nothing to do\n"
    rows = [(str(number), what, why) for number, (what, why) in enumerate(foreseen.steps, start=1)]
    return head + _indented(Writer(_STEPS).format(rows))


def _shown(key: ClusterKey, prospect: Prospect) -> Shown:
    waiting = [step.digest for step in prospect.work.unapproved]
    return Shown(
        cluster=key.status_name,
        online=prospect.standing.online,
        message=prospect.standing.why.message,
        paused=prospect.view.settings.paused,
        steps=[
            {
                "what": step.what,
                "why": step.why,
                "destructive": step.destructive,
                "waitsForApproval": bool(step.digest) and step.digest in waiting,
            }
            for step in prospect.work.steps
        ],
        nodes=[_node(node, prospect.plan.nodes[node.name]) for node in prospect.view.nodes],
    )


def _node(node: NodeView, outcome: NodeOutcome) -> dict[str, str]:
    """With what is wrong with its declaration, also where the leader will only say so when the rest is done."""
    complaint = node.wrong or node.complaint
    wrong = complaint.message if complaint is not None and complaint.message not in outcome.message else ""
    return {
        "name": node.name,
        "state": outcome.state,
        "reason": complaint.reason if complaint is not None else "",
        "message": "; ".join(filter(None, (outcome.message, wrong))),
    }


def _text(key: ClusterKey, prospect: Prospect) -> str:
    shown = _shown(key, prospect)
    state = click.style("ONLINE", fg="green") if shown.online else click.style("OFFLINE", fg="red")
    lines = [f"{key.status_name}: {state}, {shown.message}\n"]
    if shown.paused:
        lines.append(f"  paused: nothing of this is done until `qm resume {key.status_name}`\n")
    if shown.steps:
        rows = [
            (str(number), step["what"] + _mark(step), step["why"]) for number, step in enumerate(shown.steps, start=1)
        ]
        lines.append(_indented(Writer(_STEPS).format(rows)))
    else:
        lines.append("  nothing to do\n")
    troubled = [node for node in shown.nodes if node["state"] != READY or node["reason"]]
    if troubled:
        lines.append(_troubles(troubled))
    return "".join(lines)


def _troubles(nodes: Sequence[dict[str, str]]) -> str:
    return _indented(Writer(_NODES).format([(node["name"], node["state"], node["message"]) for node in nodes]))


def _mark(step: dict[str, Any]) -> str:
    if step["waitsForApproval"]:
        return " (destroys; waits for `qm approve`)"
    return " (destroys)" if step["destructive"] else ""


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
