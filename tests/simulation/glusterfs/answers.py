"""How the modelled GlusterFS answers: the XML of `gluster --xml`."""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.backends.glusterfs.fake import VERSION
from quartermaster.backends.glusterfs.fake_answers import info, peer, this_host
from quartermaster.host.commands import Result

from .lineage import is_split
from .model import GlusterModel
from .records import STATES, Glusterd, VolumeRecord


def version() -> Result:
    return Result(stdout=f"glusterfs {VERSION}\n".encode())


def done() -> str:
    return "<output>success</output>"


def clients(model: GlusterModel, volume: VolumeRecord) -> str:
    """As text."""
    used = "fuse  1\n" if volume.name in model.users else ""
    return f"Client connections for volume {volume.name}\nglustershd  {len(volume.bricks)}\n{used}"


def peers(model: GlusterModel, asked: Glusterd) -> str:
    """One that is refused is connected all the same."""
    connected = [uuid for uuid in asked.peers if uuid in model.daemons and model.linked(asked, model.daemons[uuid])]
    found = [
        peer(one.uuid, one.address, connected=one.uuid in connected, state=one.state, words=STATES[one.state])
        for one in asked.peers.values()
    ]
    return f"<peerStatus>{''.join(found)}{this_host(asked.uuid)}</peerStatus>"


def infos(volumes: Sequence[VolumeRecord]) -> str:
    return f"<volInfo><volumes>{''.join(map(_info, volumes))}<count>{len(volumes)}</count></volumes></volInfo>"


def _info(volume: VolumeRecord) -> str:
    shape = volume.shape
    bricks = [(brick.name, brick.uuid) for brick in volume.bricks]
    layout = (shape.width, shape.data, shape.arbiter)
    return info(volume.name, volume.id, volume.status, layout, bricks, options=volume.options)


def statuses(model: GlusterModel, volumes: Sequence[VolumeRecord], there: Sequence[Glusterd]) -> str:
    """Bricks of hosts that are away are not listed."""
    known = [one.uuid for one in there]
    found = []
    for volume in volumes:
        nodes = "".join(
            f"<node><hostname>{brick.address}</hostname><path>{brick.path}</path>"
            f"<peerid>{brick.uuid}</peerid><status>{int(model.runs(brick))}</status>"
            f"<pid>{model.process_of(brick)}</pid></node>"
            for brick in volume.bricks
            if brick.uuid in known
        )
        if volume.started:
            tasks = f"<tasks>{_task(model, volume)}</tasks>"
            found.append(f"<volume><volName>{volume.name}</volName>{nodes}{tasks}</volume>")
    return f"<volStatus><volumes>{''.join(found)}</volumes></volStatus>"


def _task(model: GlusterModel, volume: VolumeRecord) -> str:
    """What is being moved out of a brick that is to go, or was."""
    if not volume.leaving:
        return ""
    status = "in progress" if model.is_moving(volume) else "completed"
    brick = f"<params><brick>{volume.leaving}</brick></params>"
    return f"<task><type>Remove brick</type>{brick}<statusStr>{status}</statusStr></task>"


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
