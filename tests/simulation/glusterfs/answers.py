"""How the modelled GlusterFS answers: the XML of `gluster --xml`."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from quartermaster.host.commands import Result

from .lineage import is_split
from .model import GlusterModel
from .records import STATES, Glusterd, VolumeRecord

VERSION = "10.3"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_UNANSWERED = "Connection failed. Please check if gluster daemon is operational.\n"


def document(body: str, *, code: int = 0, words: str = "") -> Result:
    head = f"<opRet>{code}</opRet><opErrno>0</opErrno><opErrstr>{escape(words)}</opErrstr>"
    return Result(stdout=f"{_HEAD}<cliOutput>{head}{body}</cliOutput>".encode())


def unanswered() -> Result:
    return Result(exit_code=1, stdout=_UNANSWERED.encode())


def version() -> Result:
    return Result(stdout=f"glusterfs {VERSION}\n".encode())


def done() -> str:
    return "<output>success</output>"


def peers(model: GlusterModel, asked: Glusterd) -> str:
    connected = [peer.uuid for peer in model.connected(asked)]
    found = [
        f"<peer><uuid>{peer.uuid}</uuid><hostname>{peer.address}</hostname>"
        f"<hostnames><hostname>{peer.address}</hostname></hostnames>"
        f"<connected>{int(peer.uuid in connected)}</connected>"
        f"<state>{peer.state}</state><stateStr>{STATES[peer.state]}</stateStr></peer>"
        for peer in asked.peers.values()
    ]
    own = f"<peer><uuid>{asked.uuid}</uuid><hostname>localhost</hostname><connected>1</connected></peer>"
    return f"<peerStatus>{''.join(found)}{own}</peerStatus>"


def infos(volumes: Sequence[VolumeRecord]) -> str:
    return f"<volInfo><volumes>{''.join(map(_info, volumes))}<count>{len(volumes)}</count></volumes></volInfo>"


def _info(volume: VolumeRecord) -> str:
    shape = volume.shape
    bricks = "".join(
        f"<brick><name>{brick.name}</name><hostUuid>{brick.uuid}</hostUuid>"
        f"<isArbiter>{int(not shape.keeps_content(at % shape.width))}</isArbiter></brick>"
        for at, brick in enumerate(volume.bricks)
    )
    options = "".join(
        f"<option><name>{name}</name><value>{escape(value)}</value></option>" for name, value in volume.options.items()
    )
    return (
        f"<volume><name>{volume.name}</name><id>{volume.id}</id><statusStr>{volume.status}</statusStr>"
        f"<replicaCount>{1 if shape.data else shape.width}</replicaCount>"
        f"<arbiterCount>{int(shape.arbiter)}</arbiterCount>"
        f"<disperseCount>{shape.width if shape.data else 0}</disperseCount>"
        f"<redundancyCount>{shape.width - shape.data if shape.data else 0}</redundancyCount>"
        f"<bricks>{bricks}</bricks><options>{options}</options></volume>"
    )


def statuses(model: GlusterModel, volumes: Sequence[VolumeRecord], there: Sequence[Glusterd]) -> str:
    """Bricks of hosts that are away are not listed."""
    known = [one.uuid for one in there]
    found = []
    for volume in volumes:
        nodes = "".join(
            f"<node><hostname>{brick.address}</hostname><path>{brick.path}</path>"
            f"<peerid>{brick.uuid}</peerid><status>{int(model.runs(brick))}</status></node>"
            for brick in volume.bricks
            if brick.uuid in known
        )
        if volume.started:
            found.append(f"<volume><volName>{volume.name}</volName>{nodes}<tasks/></volume>")
    return f"<volStatus><volumes>{''.join(found)}</volumes></volStatus>"


def heals(model: GlusterModel, volume: VolumeRecord, asked: Glusterd, what: str) -> str:
    """Each brick says what others lack, as far as it knows."""
    found = []
    for members in volume.sets:
        copies = model.answering(volume, members, asked.address)
        files = model.files_of(volume, members)
        split = [file for file in files if is_split(volume.shape, copies, file)]
        for at, copy in zip(members, copies, strict=True):
            name = f"<name>{volume.bricks[at].name}</name>"
            if copy is None:
                found.append(f"<brick>{name}<status>Transport endpoint is not connected</status></brick>")
                continue
            if what == "split-brain":
                counts = "".join(f"<file>/{file}</file>" for file in split)
                counts += f"<numberOfEntries>{len(split)}</numberOfEntries>"
            else:
                counts = (
                    f"<totalNumberOfEntries>{copy.pending}</totalNumberOfEntries>"
                    f"<numberOfEntriesInHealPending>{copy.pending}</numberOfEntriesInHealPending>"
                    f"<numberOfEntriesInSplitBrain>{len(split)}</numberOfEntriesInSplitBrain>"
                    "<numberOfEntriesPossiblyHealing>0</numberOfEntriesPossiblyHealing>"
                )
            found.append(f"<brick>{name}<status>Connected</status>{counts}</brick>")
    return f"<healInfo><bricks>{''.join(found)}</bricks></healInfo>"


def quota(volume: VolumeRecord) -> str:
    limit = f"<path>/</path><hard_limit>{volume.limit}</hard_limit><used_space>0</used_space>"
    return f"<volQuota><limit>{limit}</limit></volQuota>"
