"""From what hosts told of a GlusterFS pool to the nodes and volumes that it is: pure, with all mistakes at once.

Nothing is guessed that could cost data: a peer that no host has told of is a mistake until it joins or is given up by
name, because a brick whose host is unknown would be made anew elsewhere. One that answers cannot be given up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from quartermaster.backends.base import Placement
from quartermaster.backends.glusterfs.facts import SIZE_OPTION, TYPE, BrickPlace
from quartermaster.backends.glusterfs.keeping import is_by_hand
from quartermaster.backends.glusterfs.layouts import Layout, layout_made
from quartermaster.backends.glusterfs.model import Brick, Peer, VolumeInfo
from quartermaster.backends.glusterfs.pool_agent import OWNER_OPTION
from quartermaster.backends.glusterfs.seeing import owner_of
from quartermaster.backends.glusterfs.survey import CLAIM_OPTION, Survey, SurveyedDisk
from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources.names import check_dns_label
from quartermaster.resources.storage import DEFAULT_CLUSTER

_INSTANCE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class FoundNode(msgspec.Struct, frozen=True):
    name: str
    host: str
    disks: tuple[SurveyedDisk, ...] = ()
    directories: tuple[str, ...] = ()
    tls: bool = False
    addresses: tuple[str, ...] = ()  # by which the pool knows its host, where that is not its first one


class FoundVolume(msgspec.Struct, frozen=True):
    name: str
    size: int
    placement: Placement
    claim: str = ""  # namespace/name
    ours: bool = True  # made by Quartermaster


class FoundPool(msgspec.Struct, frozen=True):
    key: ClusterKey
    nodes: tuple[FoundNode, ...] = ()
    volumes: tuple[FoundVolume, ...] = ()
    mistakes: tuple[str, ...] = ()  # with one of them nothing is written
    notes: tuple[str, ...] = ()
    given_up: dict[str, str] = {}  # UUID → name of peers that are to leave the pool when their bricks are elsewhere


def find(
    surveys: Mapping[str, Survey],
    namespace: str,
    *,
    cluster: str = "",
    lost: Collection[str] = (),
    addresses: Mapping[str, Sequence[str]] | None = None,
) -> FoundPool:
    """`surveys` and `addresses` by host; `cluster` is how a pool is to be called that does not say it; `lost` are peers
    by name or UUID that are given up.
    """
    found = {(base.identity.cluster) for one in surveys.values() for base in one.bases.values() if base.identity}
    key, mistakes = _key(sorted(found), namespace, cluster)
    pool = [host for host, survey in sorted(surveys.items()) if survey.runs and (survey.bases or survey.volumes)]
    if not pool:
        running = [host for host, survey in sorted(surveys.items()) if survey.runs]
        what = f"glusterd runs on {', '.join(running)}, and has no volume and no brick" if running else "glusterd runs"
        return FoundPool(key, mistakes=(*mistakes, what if running else f"{what} on none of the hosts"))
    teller = surveys[pool[0]]
    inside = {peer.uuid for peer in teller.peers}
    members = {host: survey for host, survey in sorted(surveys.items()) if survey.uuid in inside}
    given_up = [peer for peer in teller.peers if {peer.uuid, *peer.names} & set(lost)]
    mistakes += _mistakes_of_pool(surveys, teller, members, [peer.uuid for peer in given_up])
    mistakes += _mistakes_of_lost(surveys, teller, lost)
    known = {host: tuple(found) for host, found in (addresses or {}).items()}
    nodes = tuple(_node(host, surveys, known.get(host, ())) for host in members)
    names = [node.name for node in nodes]
    mistakes += [f"two hosts carry bricks of node {name}" for name in sorted(set(names)) if names.count(name) > 1]
    reader = _Reader(key, nodes, members, {peer.uuid: peer for peer in given_up})
    volumes, wrong, notes = reader.volumes(teller)
    notes += _notes_of_names(nodes, surveys, known)
    names_of = {peer.uuid: peer.name for peer in given_up}
    return FoundPool(key, nodes, volumes, (*mistakes, *wrong), tuple(notes), names_of)


def _mistakes_of_lost(surveys: Mapping[str, Survey], teller: Survey, lost: Collection[str]) -> list[str]:
    """A peer that answers has bricks that can be read: to give it up would be to give up what only they have."""
    living = {peer.uuid for survey in surveys.values() for peer in survey.peers if peer.connected}
    mistakes = []
    for name in lost:
        peer = next((one for one in teller.peers if name in (one.uuid, *one.names)), None)
        if peer is None:
            mistakes.append(f"--lost {name}: the pool has no such peer")
        elif peer.uuid in living:
            mistakes.append(f"--lost {name}: it answers; let its host join, or stop its glusterd to give it up")
    return mistakes


def _names_of(uuid: str, surveys: Mapping[str, Survey]) -> list[str]:
    """By which the pool knows a host: in its bricks first, for new ones are to be named likewise."""
    bricks = [brick for survey in surveys.values() for volume in survey.volumes for brick in volume.bricks]
    peers = [peer for survey in surveys.values() for peer in survey.peers if peer.uuid == uuid and not peer.local]
    found = [brick.name.partition(":/")[0] for brick in bricks if brick.uuid == uuid]
    return list(dict.fromkeys([*found, *(name for peer in peers for name in peer.names)]))


def _notes_of_names(
    nodes: Iterable[FoundNode], surveys: Mapping[str, Survey], known: Mapping[str, Sequence[str]]
) -> list[str]:
    """Of hosts that the pool knows by names that are no address of theirs: a person has to see whether that fits."""
    notes = []
    for node in nodes:
        names, there = _names_of(surveys[node.host].uuid, surveys), known.get(node.host, ())
        if names and there and not set(names) & set(there):
            notes.append(
                f"the pool knows host {node.host} as {', '.join(names)}; new bricks are named {there[0]}, "
                "and the pool has to know that address as the same host"
            )
    return notes


def _key(found: list[str], namespace: str, cluster: str) -> tuple[ClusterKey, list[str]]:
    mistakes = []
    if len(found) > 1:
        mistakes.append(f"the bricks belong to {len(found)} clusters: {', '.join(found)}")
    there, _, name = found[0].partition("/") if found else (namespace, "", "")
    if there != namespace:
        mistakes.append(f"the bricks belong to namespace {there}, and {namespace} was asked for: use -n {there}")
    if name and cluster and cluster != name:
        mistakes.append(f"the bricks belong to cluster {name}, and {cluster} was asked for")
    return ClusterKey(namespace, TYPE, name or cluster or DEFAULT_CLUSTER), mistakes


def _mistakes_of_pool(
    surveys: Mapping[str, Survey], teller: Survey, members: Mapping[str, Survey], given_up: Collection[str]
) -> list[str]:
    known = {survey.uuid for survey in members.values()}
    mistakes = [
        f"the pool has a peer {peer.name} ({peer.uuid}), which is no host of this store: "
        f"let it join, or give it up with --lost {peer.name}"
        for peer in teller.peers
        if peer.uuid not in known and peer.uuid not in given_up
    ]
    inside = {peer.uuid for peer in teller.peers}
    for host, survey in sorted(surveys.items()):
        carries = bool(survey.disks or survey.bases)
        if carries and survey.uuid not in inside:
            mistakes.append(f"host {host} has bricks, and {_why_outside(host, survey)}")
        for path, base in sorted(survey.bases.items()):
            if base.trouble:
                mistakes.append(f"host {host}: {base.trouble}")
            elif base.identity is not None and survey.uuid and base.identity.uuid != survey.uuid:
                mistakes.append(f"host {host}: {path} belongs to another glusterd ({base.identity.uuid})")
    return mistakes


def _why_outside(host: str, survey: Survey) -> str:
    """Of a host that was given up before, nothing but its old disks may be left."""
    leaves = f"`qm leave` on {host} takes the host out"
    if survey.runs:
        return f"its glusterd ({survey.uuid or 'of unknown UUID'}) is in another pool; {leaves}"
    return f"no glusterd runs there: start it if it is one of this pool, else {leaves}"


def _node(host: str, surveys: Mapping[str, Survey], there: tuple[str, ...]) -> FoundNode:
    """Named as its bricks say; what is mounted by us is a disk, everything else a directory that somebody cares for.
    `there` are the addresses of the host: new bricks go by the first one unless the node says another.
    """
    survey = surveys[host]
    used = [name for name in _names_of(survey.uuid, surveys) if name in there]
    addresses = tuple(used[:1]) if used and there[0] not in used else ()
    named = [base.identity.node for base in survey.bases.values() if base.identity is not None]
    mounted = {disk.base for disk in survey.disks}
    directories = tuple(path for path in sorted(survey.bases) if path not in mounted)
    return FoundNode(named[0] if named else host, host, survey.disks, directories, survey.tls, addresses)


class _Reader:
    """Volumes of one pool, given who its members are."""

    def __init__(
        self,
        key: ClusterKey,
        nodes: tuple[FoundNode, ...],
        members: Mapping[str, Survey],
        given_up: Mapping[str, Peer],
    ) -> None:
        self._owner = owner_of(key)
        self._members = members
        self._given_up = given_up
        self._nodes = {members[node.host].uuid: node for node in nodes}

    def volumes(self, teller: Survey) -> tuple[tuple[FoundVolume, ...], list[str], list[str]]:
        found: list[FoundVolume] = []
        mistakes: list[str] = []
        notes: list[str] = []
        for volume in sorted(teller.volumes, key=lambda one: one.name):
            owner = volume.options.get(OWNER_OPTION, "")
            layout = layout_made(volume)
            if owner not in ("", self._owner):
                notes.append(f"volume {volume.name} belongs to {owner}, and is left alone")
            elif not _INSTANCE.fullmatch(volume.name) or check_dns_label(volume.name):
                notes.append(f"volume {volume.name} is left alone: no object can have that name")
            elif not volume.bricks or len(volume.bricks) % layout.width:
                count = f"{len(volume.bricks)} bricks, which are no sets of {layout.text}"
                mistakes.append(f"volume {volume.name} has {count}")
            elif (places := self._places(volume)) is None:
                continue
            elif not any(place.host in self._members for place in places):
                mistakes.append(f"volume {volume.name} has no brick on a host of this store")
            else:
                found.append(self._volume(volume, layout, places, teller.limits.get(volume.name, 0)))
        return tuple(found), mistakes, notes

    def _places(self, volume: VolumeInfo) -> list[BrickPlace] | None:
        """None where a brick is on a peer that nobody knows, which is told elsewhere."""
        places = [self._place(brick) for brick in volume.bricks]
        return None if None in places else [place for place in places if place is not None]

    def _place(self, brick: Brick) -> BrickPlace | None:
        address, _, path = brick.name.partition(":")
        node = self._nodes.get(brick.uuid)
        base = str(PurePosixPath(path).parent)
        if node is not None:
            return BrickPlace(node.name, node.host, address, base, path)
        lost = self._given_up.get(brick.uuid)
        return BrickPlace(lost.name, lost.name, address, base, path) if lost is not None else None

    def _volume(self, volume: VolumeInfo, layout: Layout, places: list[BrickPlace], limit: int) -> FoundVolume:
        said = volume.options.get(SIZE_OPTION, "")
        size = int(said) if said.isdecimal() else limit or self._room(layout, places)
        keeper = next((host for host, survey in self._members.items() if volume.name in survey.keeps), "")
        hosts = [place.host for place in places if place.host in self._members]
        details = {
            "owner": self._owner,
            "layout": msgspec.to_builtins(layout),
            "bricks": [msgspec.to_builtins(place) for place in places],
            "options": {name: value for name, value in volume.options.items() if name != SIZE_OPTION},
        }
        order = tuple(dict.fromkeys([*([keeper] if keeper else []), *hosts]))
        return FoundVolume(
            volume.name,
            size,
            Placement(order, details, "it was there"),
            claim=volume.options.get(CLAIM_OPTION, ""),
            ours=not is_by_hand(volume.options),
        )

    def _room(self, layout: Layout, places: list[BrickPlace]) -> int:
        """What fits where nothing limits it: the smallest brick of every set."""
        totals = [self._total(place) for place in places]
        sets = [totals[at : at + layout.width] for at in range(0, len(totals), layout.width)]
        full = [[total for at, total in enumerate(one) if total and not layout.is_arbiter(at)] for one in sets]
        return sum(min(one) * (layout.data or 1) for one in full if one)

    def _total(self, place: BrickPlace) -> int:
        survey = self._members.get(place.host)
        base = survey.bases.get(place.base) if survey is not None else None
        return base.total if base is not None else 0


def describe(pool: FoundPool) -> Iterator[str]:
    """What would be written, for a person."""
    from quartermaster.planning.capacity import shown

    for node in pool.nodes:
        what = [f"{disk.path} ({disk.id})" for disk in node.disks] + list(node.directories)
        at = f", by {', '.join(node.addresses)}" if node.addresses else ""
        yield f"storagenode/{node.name} on host {node.host}{at}: {', '.join(what) or 'nothing that holds bricks'}"
    for volume in pool.volumes:
        layout = msgspec.convert(volume.placement.details["layout"], Layout)
        claim = f" of claim {volume.claim}" if volume.claim else ""
        by_hand = "" if volume.ours else ", made by hand: it is marked as ours and else left as it is"
        hosts = ", ".join(volume.placement.hosts)
        yield f"persistentvolume/{volume.name}{claim}: {shown(volume.size)}, {layout.text}, on {hosts}{by_hand}"
    for name in pool.given_up.values():
        yield f"peer {name} is given up: its bricks are made anew on others, and it leaves the pool"
