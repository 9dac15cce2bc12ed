"""From the XML that `gluster --xml` writes to values. What is missing in it is an error that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from quartermaster.backends.glusterfs.model import (
    IN_CLUSTER,
    Brick,
    HealCount,
    Peer,
    QuotaLimit,
    VolumeInfo,
)
from quartermaster.support.errors import HostError

_CLIENTS = "Client connections for volume"


class Answer:
    """One answer of gluster. `failed`: it says that it did not do what was asked, and `error` why."""

    def __init__(self, root: ElementTree.Element) -> None:
        self.root = root
        self.failed = _text(root, "opRet") != "0"
        self.error = " ".join(_text(root, "opErrstr").split())


def read_answer(text: bytes, verb: str) -> Answer:
    shown = text[:200].decode(errors="replace").strip()
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - written by the gluster of this host
    except ElementTree.ParseError as error:
        raise HostError(f"cannot {verb}: gluster answered something else than XML: {shown or 'nothing'}") from error
    if root.find("opRet") is None:
        raise HostError(f"cannot {verb}: gluster does not say whether it did that: {shown}")
    return Answer(root)


def peers_of(answer: Answer) -> tuple[Peer, ...]:
    """From `pool list`, in which the host that was asked is called localhost."""
    return tuple(_peer(found) for found in answer.root.iter("peer"))


def _peer(found: ElementTree.Element) -> Peer:
    own = _text(found, "hostname")
    names = [one.text or "" for one in found.iterfind("hostnames/hostname")]
    return Peer(
        uuid=_text(found, "uuid"),
        names=tuple(dict.fromkeys((own, *names))),
        connected=_text(found, "connected") == "1",
        state=_number(found, "state", IN_CLUSTER),
        state_text=_text(found, "stateStr"),
        local=own == "localhost" and found.find("state") is None,
    )


def clients_of(text: str, verb: str) -> dict[str, int]:
    """From `volume status NAME client-list`, which is no XML: who is connected to its bricks, and how many of them."""
    if not text.lstrip().startswith(_CLIENTS):
        raise HostError(f"cannot {verb}: gluster answered something else: {text[:200].strip() or 'nothing'}")
    return {name: int(count) for name, count in re.findall(r"^(\S+) +(\d+) *$", text, re.MULTILINE)}


def volumes_of(answer: Answer) -> tuple[VolumeInfo, ...]:
    return tuple(_volume(found) for found in answer.root.iterfind("volInfo/volumes/volume"))


def _volume(found: ElementTree.Element) -> VolumeInfo:
    return VolumeInfo(
        name=_text(found, "name"),
        id=_text(found, "id"),
        started=_text(found, "statusStr") == "Started",
        bricks=tuple(
            Brick(_text(one, "name"), _text(one, "hostUuid"), _text(one, "isArbiter") == "1")
            for one in found.iterfind("bricks/brick")
        ),
        replica=_number(found, "replicaCount", 1),
        arbiter=_number(found, "arbiterCount"),
        disperse=_number(found, "disperseCount"),
        redundancy=_number(found, "redundancyCount"),
        options={_text(one, "name"): _text(one, "value") for one in found.iterfind("options/option")},
    )


def online_bricks(answer: Answer) -> dict[str, dict[str, str]]:
    """Volume → the bricks that run → their processes, from `volume status all`. A process that was started anew is
    another one: by its number, and by its port, for after a boot the numbers may be the same.
    """
    found: dict[str, dict[str, str]] = {}
    for volume in answer.root.iterfind("volStatus/volumes/volume"):
        found[_text(volume, "volName")] = dict(_running(volume))
    return found


def _running(volume: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for node in volume.iterfind("node"):
        path = _text(node, "path")
        # Daemons that have no brick are listed beside them, with a host in place of a path.
        if path.startswith("/") and _text(node, "status") == "1":
            yield f"{_text(node, 'hostname')}:{path}", f"{_text(node, 'pid')}:{_text(node, 'port')}"


def heal_counts(answer: Answer, bricks: Sequence[Brick]) -> tuple[HealCount, ...]:
    """One for each of the bricks, in their order, from `heal info summary`. Of a brick that does not answer there are
    no numbers, and one that is not listed is taken for such: an answer that leaves it out says nothing of it.
    """
    listed = {_text(found, "name"): _heal_count(found) for found in answer.root.iterfind("healInfo/bricks/brick")}
    return tuple(listed.get(brick.name, HealCount(brick.name, connected=False)) for brick in bricks)


def _heal_count(found: ElementTree.Element) -> HealCount:
    pending = _number(found, "totalNumberOfEntries", -1)
    return HealCount(
        brick=_text(found, "name"),
        connected=_text(found, "status") == "Connected" and pending >= 0,
        pending=max(0, pending),
        split_brain=_number(found, "numberOfEntriesInSplitBrain"),
    )


def split_files(answer: Answer) -> tuple[str, ...]:
    """From `heal info split-brain`: the files of which no copy can be taken for the right one."""
    found = [one.text or "" for one in answer.root.iterfind("healInfo/bricks/brick/file")]
    return tuple(dict.fromkeys(found))


def quota_limits(answer: Answer) -> tuple[QuotaLimit, ...]:
    return tuple(
        QuotaLimit(_text(found, "path"), _number(found, "hard_limit"), _number(found, "used_space"))
        for found in answer.root.iterfind("volQuota/limit")
    )


def _text(found: ElementTree.Element, path: str, default: str = "") -> str:
    text = found.findtext(path)
    return text.strip() if text else default


def _number(found: ElementTree.Element, path: str, default: int = 0) -> int:
    """Where a number is to be expected there may be "-" or "N/A"."""
    match = re.match(r"-?\d+", _text(found, path))
    return int(match.group()) if match else default
