"""What a host is told is looked at before anything is stored: its agent would fail with it at every later start too."""

from __future__ import annotations

from pathlib import Path

from quartermaster.cli.offering import Offer
from quartermaster.host.places import device_root, state_directory
from quartermaster.operators.settings import FILE, HostSettings
from quartermaster.orchestration.registration import Registration, described
from quartermaster.planning.choosing import offer_of
from quartermaster.resources.admission import validate
from quartermaster.resources.codec import to_document
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.names import check_label_value
from quartermaster.resources.orchestration import Host
from quartermaster.resources.paths import join, lies_in
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.support.errors import Problem, UsageError

_LABELS = "metadata.labels"
_OPTIONS = {
    "metadata.name": "--name",
    "metadata.namespace": "--namespace",
    _LABELS: "--label",
    "spec.wishes.devices": "--device",
    "spec.wishes.directories": "--directory",
}


def require_usable(before: HostSettings | None, settings: HostSettings, offer: Offer) -> None:
    """UsageError with all mistakes in what was given, now or before."""
    found = [*mistakes_in(settings), *filter(None, map(_why_no_disk, offer.devices))]
    if not found:
        return
    old = mistakes_in(before) if before is not None else []
    listed = f" {found[0]}" if len(found) == 1 else f" {len(found)} mistakes" + "".join(f"\n  {one}" for one in found)
    hint = f"what was given before is in {state_directory() / FILE}: mend it there" if set(old) & set(found) else ""
    raise UsageError(f"cannot bring up {settings.name}:{listed}", hint=hint)


def mistakes_in(settings: HostSettings) -> list[str]:
    """What the store would refuse in the Host object."""
    given = Registration(settings.name, settings.namespace, (), settings.labels, settings.wishes)
    host = described(Host(metadata=ObjectMeta(name=settings.name, namespace=settings.namespace)), given)
    problems = [one for one in validate(to_document(host)) if one.path != join(_LABELS, HOSTNAME_LABEL)]
    if not any(one.path == "metadata.name" for one in problems) and (wrong := check_label_value(settings.name)):
        problems.append(Problem("metadata.name", f'{wrong}; is "{settings.name}"'))  # it is a label's value too
    return [_told(problem) for problem in problems]


def _told(problem: Problem) -> str:
    place = next((path for path in _OPTIONS if lies_in(problem.path, path)), "")
    what = _OPTIONS.get(place, problem.path)
    if place == _LABELS:
        what += " " + problem.path.removeprefix(place).strip('.[]"')
    return f"{what}: {problem.message}" + (f" ({problem.fix})" if problem.fix else "")


def _why_no_disk(path: str) -> str:
    """Paths that can be none are refused by their form. The disks of a virtual host are files."""
    if not path.startswith("/") or path.endswith("/"):
        return ""
    if not Path(path).exists():
        return f"--device: there is no {path} on this host"
    if device_root() is None and not Path(path).is_block_device():
        return f"--device: {path} is not a disk"
    return ""


async def require_heard(settings: HostSettings, offer: Offer) -> None:
    """UsageError for an offer of a host alone that no node would take: what a StorageNode says wins over it."""
    from quartermaster.stores import open_store

    given = (*offer.devices, *offer.directories, *(("all devices",) if offer.all_devices else ()))
    if not given or not _is_there(settings.store):
        return
    store = await open_store(settings.store)
    try:
        nodes = (await store.list(StorageNode, settings.namespace)).items
    finally:
        await store.close()
    wished = offer_of(StorageNode(spec=StorageNodeSpec(type="")), None, settings.wishes)
    if not nodes or any(offer_of(node, None, settings.wishes) == wished for node in nodes):
        return
    name = nodes[0].metadata.name
    raise UsageError(
        f"cannot offer {', '.join(given)}: the StorageNode {name} says what this host offers",
        hint=f"`qm edit storagenode {name}` changes that",
    )


def _is_there(store: str) -> bool:
    """To open one makes it."""
    return Path(store.removeprefix("sqlite:")).exists()
