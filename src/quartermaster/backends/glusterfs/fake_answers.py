"""How the modelled GlusterFS answers: the words of a command line in, the XML of `gluster --xml` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from quartermaster.host.commands import Result

if TYPE_CHECKING:
    from quartermaster.backends.glusterfs.fake import FakeGluster, FakeVolume

UNANSWERED = Result(exit_code=1, stdout=b"Connection failed. Please check if gluster daemon is operational.\n")
_REMOTE = "--remote-host="
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def answer(gluster: FakeGluster, address: str, argv: Sequence[str]) -> Result:
    from quartermaster.backends.glusterfs.fake import VERSION, RefusedByGlusterError

    if "--version" in argv:
        return Result(stdout=f"glusterfs {VERSION}\n".encode())
    server = server_of(argv) or address
    if not gluster.reaches(address, server):
        return UNANSWERED
    gluster.settle()
    try:
        body = _dispatch(gluster, server, [word for word in argv[1:] if not word.startswith("--")])
    except RefusedByGlusterError as error:
        return document("", code=-1, error=str(error))
    return body


def server_of(argv: Sequence[str]) -> str:
    """Whose gluster is asked; "" where it is that of this host."""
    return next((word.removeprefix(_REMOTE) for word in argv if word.startswith(_REMOTE)), "")


def _dispatch(gluster: FakeGluster, address: str, words: list[str]) -> Result:
    noun, verb, *rest = words
    force = bool(rest) and rest[-1] == "force"
    simple: dict[tuple[str, str], Callable[[], object]] = {
        ("peer", "probe"): lambda: gluster.probe(address, rest[0]),
        ("peer", "detach"): lambda: gluster.detach(address, rest[0], force=force),
        ("volume", "create"): lambda: _create(gluster, address, rest),
        ("volume", "start"): lambda: gluster.start(address, rest[0], force=force),
        ("volume", "stop"): lambda: gluster.stop(address, rest[0]),
        ("volume", "delete"): lambda: gluster.delete(address, rest[0]),
        ("volume", "set"): lambda: gluster.set_options(
            address, rest[0], dict(zip(rest[1::2], rest[2::2], strict=True))
        ),
        ("volume", "add-brick"): lambda: gluster.add_brick(address, rest[0], rest[1]),
        ("volume", "remove-brick"): lambda: gluster.remove_brick(address, rest[0], rest[1]),
        ("volume", "replace-brick"): lambda: gluster.replace_brick(address, rest[0], rest[1], rest[2]),
    }
    if (noun, verb) in simple:
        simple[noun, verb]()
        return document("<output>success</output>")
    if (noun, verb) == ("pool", "list"):
        return document(f"<peerStatus>{_peers(gluster, address)}</peerStatus>")
    if (noun, verb) == ("volume", "info"):
        return _infos(gluster, address, rest[0])
    if (noun, verb) == ("volume", "status"):
        return (
            _clients(gluster.volume(address, rest[0]))
            if "client-list" in rest
            else _statuses(gluster, address, rest[0])
        )
    if (noun, verb) == ("volume", "heal"):
        return _heal(gluster.volume(address, rest[0]), gluster, rest[-1])
    if (noun, verb) == ("volume", "quota"):
        return _quota(gluster, address, rest)
    raise AssertionError(f"the model does not know: {' '.join(words)}")


def _create(gluster: FakeGluster, address: str, words: list[str]) -> None:
    layout, bricks = layout_in_words(words[1:])
    gluster.create(address, words[0], layout, bricks)


def layout_in_words(words: Sequence[str]) -> tuple[tuple[int, int, bool], list[str]]:
    """What follows the name in `volume create`: the layout as `info` takes it, and the bricks."""
    bricks = [word for word in words if ":/" in word]
    said = words[: len(words) - len(bricks)]
    numbers = {said[at]: int(said[at + 1]) for at in range(0, len(said), 2)}
    data, arbiter = numbers.get("disperse-data", 0), bool(numbers.get("arbiter"))
    width = data + numbers.get("redundancy", 0) if data else numbers.get("replica", 1) + arbiter
    return (width, data, arbiter), bricks


def _clients(volume: FakeVolume) -> Result:
    lines = [
        "Client connections for volume v",
        "glustershd  1",
        "quotad  1",
        *([f"fuse  {volume.mounts}"] if volume.mounts else []),
    ]
    return Result(stdout="".join(f"{line}\n" for line in lines).encode())


def _quota(gluster: FakeGluster, address: str, words: list[str]) -> Result:
    name, verb, *rest = words
    if verb == "enable":
        gluster.enable_quota(address, name)
    elif verb == "limit-usage":
        gluster.limit(address, name, int(rest[1]))
    else:
        volume = gluster.volume(address, name)
        text = f"<path>/</path><hard_limit>{volume.limit}</hard_limit><used_space>0</used_space>"
        return document(f"<volQuota><limit>{text}</limit></volQuota>")
    return document("<cliOp>volQuota</cliOp>")


def _peers(gluster: FakeGluster, address: str) -> str:
    others = [member for member in gluster.pool_of(address).members if member != address]
    found = [peer(gluster.uuid(one), one, connected=gluster.reaches(address, one)) for one in others]
    return "".join(found) + this_host(gluster.uuid(address))


def peer(uuid: str, address: str, *, connected: bool, state: int = 3, words: str = "Peer in Cluster") -> str:
    name = f"<hostname>{address}</hostname>"
    return (
        f"<peer><uuid>{uuid}</uuid>{name}<hostnames>{name}</hostnames>"
        f"<connected>{int(connected)}</connected><state>{state}</state><stateStr>{words}</stateStr></peer>"
    )


def this_host(uuid: str) -> str:
    return f"<peer><uuid>{uuid}</uuid><hostname>localhost</hostname><connected>1</connected></peer>"


def _infos(gluster: FakeGluster, address: str, name: str) -> Result:
    known = gluster.pool_of(address).volumes
    if name != "all" and name not in known:
        return document("", code=-1, error="Volume does not exist")
    volumes = [known[one] for one in sorted(known) if name in ("all", one)]
    return document(f"<volInfo><volumes>{''.join(_info(gluster, one) for one in volumes)}</volumes></volInfo>")


def _info(gluster: FakeGluster, volume: FakeVolume) -> str:
    bricks = [(brick.name, gluster.uuid(brick.address)) for brick in volume.bricks]
    status, layout = "Started" if volume.started else "Created", (volume.width, volume.data, volume.arbiter)
    return info(volume.name, volume.id, status, layout, bricks, options=volume.options)


def info(
    name: str,
    identity: str,
    status: str,
    layout: tuple[int, int, bool],
    bricks: Sequence[tuple[str, str]],
    *,
    options: Mapping[str, str],
) -> str:
    """`layout` is (bricks of a set, those of them with data if it is erasure-coded, whether the last is an arbiter);
    of each brick its name and the UUID of its host.
    """
    width, data, arbiter = layout
    listed = "".join(
        f"<brick><name>{brick}</name><hostUuid>{uuid}</hostUuid>"
        f"<isArbiter>{int(arbiter and at % width == width - 1)}</isArbiter></brick>"
        for at, (brick, uuid) in enumerate(bricks)
    )
    pairs = [f"<option><name>{one}</name><value>{escape(value)}</value></option>" for one, value in options.items()]
    return (
        f"<volume><name>{name}</name><id>{identity}</id><statusStr>{status}</statusStr>"
        f"<replicaCount>{1 if data else width}</replicaCount><arbiterCount>{int(arbiter)}</arbiterCount>"
        f"<disperseCount>{width if data else 0}</disperseCount>"
        f"<redundancyCount>{width - data if data else 0}</redundancyCount>"
        f"<bricks>{listed}</bricks><options>{''.join(pairs)}</options></volume>"
    )


def _statuses(gluster: FakeGluster, address: str, what: str) -> Result:
    pool = gluster.pool_of(address)
    if what != "all" and not gluster.volume(address, what).started:
        return document("", code=-1, error=f"Volume {what} is not started")
    found = []
    for name in sorted(pool.volumes) if what == "all" else (what,):
        volume = pool.volumes[name]
        if volume.changing and what == "all":
            continue
        nodes = "".join(
            f"<node><hostname>{brick.address}</hostname><path>{brick.path}</path><status>{int(brick.runs)}</status>"
            f"<pid>{brick.starts}</pid></node>"
            for brick in volume.bricks
            if gluster.reaches(address, brick.address)
        )
        if volume.started:
            found.append(f"<volume><volName>{name}</volName>{nodes}</volume>")
    return document(f"<volStatus><volumes>{''.join(found)}</volumes></volStatus>")


def _heal(volume: FakeVolume, gluster: FakeGluster, what: str) -> Result:
    """Every brick that is whole counts what another one of its set lacks."""
    found = []
    for one in volume.sets():
        behind = max((brick.behind for brick in one if brick.rooted), default=0)
        for brick in one:
            if not (brick.runs and gluster.runs(brick.address)):
                found.append(
                    f"<brick><name>{brick.name}</name><status>Transport endpoint is not connected</status></brick>"
                )
                continue
            if what == "split-brain":
                files = "".join(f'<file gfid="{_NO_UUID}">{escape(name)}</file>' for name in volume.split)
                count = f"<numberOfEntries>{len(volume.split)}</numberOfEntries>"
                found.append(f"<brick><name>{brick.name}</name>{files}<status>Connected</status>{count}</brick>")
                continue
            entries = (behind if brick.complete else 0) + len(volume.split)
            found.append(
                f"<brick><name>{brick.name}</name><status>Connected</status>"
                f"<totalNumberOfEntries>{entries}</totalNumberOfEntries>"
                f"<numberOfEntriesInSplitBrain>{len(volume.split)}</numberOfEntriesInSplitBrain></brick>"
            )
    return document(f"<healInfo><bricks>{''.join(found)}</bricks></healInfo>")


def document(body: str, *, code: int = 0, error: str = "") -> Result:
    head = f"<opRet>{code}</opRet><opErrno>0</opErrno><opErrstr>{escape(error)}</opErrstr>"
    return Result(stdout=f"{_HEAD}<cliOutput>{head}{body}</cliOutput>".encode())
