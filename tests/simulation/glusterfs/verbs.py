"""The commands of the modelled GlusterFS: each a generator that yields how long its next part takes.

A change locks the volume on every glusterd that is there, and is done at all of them; one that is lost in between is
told of in the answer, although the others have done it. Whoever asked may be gone long before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from msgspec.structs import replace

from quartermaster.backends.glusterfs.fake_answers import layout_in_words
from quartermaster.support import entropy

from . import answers, growing
from .lineage import Shape, take
from .model import GlusterModel
from .records import (
    ACCEPTED,
    IN_CLUSTER,
    STARTED,
    STOPPED,
    TAKEN,
    BrickRecord,
    Glusterd,
    PeerRecord,
    RefusedError,
    VolumeRecord,
)

Parts = Generator[float, None, str]
Change = Callable[[VolumeRecord], VolumeRecord | None]
DEAD_BRICK_S = 10.0  # that `heal info` waits for a brick which does not answer
SILENT_S = 120.0  # that `gluster` waits for a host that does not answer
QUOTA = "features.quota"
_ONE_COPY = (
    "replace-brick is not permitted on distribute only volumes. "
    "Please use add-brick and remove-brick operations instead."
)
_HOSTS_BRICKS = (
    "hosts one or more bricks. If the peer is in not recoverable state then use either replace-brick or remove-brick "
    "command with force to remove all bricks from the peer and attempt the peer detach again."
)
_OPTIONS = {
    "cluster.granular-entry-heal": "on",
    "storage.fips-mode-rchecksum": "on",
    "transport.address-family": "inet",
    "nfs.disable": "on",
    "performance.client-io-threads": "off",
}


class UnansweredError(Exception):
    """The glusterd that was asked is not there, or has ended meanwhile."""


class Watcher:
    """Is told of every change at the moment at which it takes effect."""

    def created(self, volume: VolumeRecord) -> None: ...

    def changed(self, verb: str, volume: VolumeRecord) -> None: ...

    def stopped(self, volume: VolumeRecord) -> None: ...

    def deleted(self, volume: VolumeRecord) -> None: ...

    def replaced(self, volume: VolumeRecord, position: int, new: BrickRecord) -> None:
        """About to be: `volume` is as it was."""

    def detached(self, peer: PeerRecord) -> None: ...


class Verbs:
    def __init__(self, model: GlusterModel, watcher: Watcher) -> None:
        self._model = model
        self._watcher = watcher

    def parts(self, address: str, words: Sequence[str], *, asking: str) -> Parts:
        """What the gluster of a host does when it is given these words, by another one perhaps; returns the answer."""
        if not self._model.network.reaches(asking, address):
            yield SILENT_S
            raise UnansweredError
        delicate = words[1] == "replace-brick" and self._has_none_to_spare(address, words[2])
        self._model.delicate += delicate
        try:
            return (yield from self._parts(address, words))
        finally:
            self._model.delicate -= delicate

    def _has_none_to_spare(self, address: str, name: str) -> bool:
        daemon = self._model.running(address)
        known = daemon.volumes.get(name) if daemon is not None else None
        return known is not None and known.shape.has_none_to_spare

    def _parts(self, address: str, words: Sequence[str]) -> Parts:
        noun, verb, *rest = words
        yield entropy.source().uniform(0.02, 0.2)
        asked = self._asked(address)
        force = bool(rest) and rest[-1] == "force"
        match (noun, verb):
            case ("pool", "list"):
                return answers.peers(self._model, asked)
            case ("volume", "info"):
                return self._info(asked, rest[0])
            case ("volume", "status") if rest[-1] == "client-list":
                return answers.clients(self._model, self._existing(asked, rest[0]))
            case ("volume", "status"):
                return (yield from self._status(asked, rest[0]))
            case ("volume", "heal"):
                return (yield from self._heal(asked, rest))
            case ("peer", "probe"):
                return (yield from self._probe(asked, rest[0]))
            case ("peer", "detach"):
                return (yield from self._detach(asked, rest[0], force=force))
            case ("volume", "create"):
                return (yield from self._create(asked, rest))
            case ("volume", "start"):
                return (yield from self._start(asked, rest[0], force=force))
            case ("volume", "stop"):
                return (yield from self._stop(asked, rest[0]))
            case ("volume", "delete"):
                return (yield from self._delete(asked, rest[0]))
            case ("volume", "set"):
                options = dict(zip(rest[1::2], rest[2::2], strict=True))
                return (yield from self._set(asked, rest[0], options))
            case ("volume", "quota"):
                return (yield from self._quota(asked, rest))
            case ("volume", "replace-brick"):
                return (yield from self._replace(asked, *rest[:3]))
            case ("volume", "add-brick"):
                return (yield from self._add(asked, *rest[:2]))
            case ("volume", "remove-brick"):
                return (yield from self._remove(asked, *rest))
        raise AssertionError(f"the model does not know: {' '.join(words)}")

    def members(self, address: str) -> int:
        """How many there are in the pool of a host that it has a connection with."""
        found = self._model.running(address)
        return 1 + len(self._model.connected(found)) if found is not None else 0

    # Looks.

    def _info(self, asked: Glusterd, name: str) -> str:
        if name != "all" and name not in asked.volumes:
            raise RefusedError("Volume does not exist")
        return answers.infos([asked.volumes[one] for one in sorted(asked.volumes) if name in ("all", one)])

    def _status(self, asked: Glusterd, what: str) -> Parts:
        """Of all volumes those that are being changed are left out: seen of gluster."""
        yield from self._wait(asked)
        names = [name for name in sorted(asked.volumes) if not self._is_locked(asked, name)]
        if what != "all":
            self._refuse_locked(asked, what)
            if not self._existing(asked, what).started:
                raise RefusedError(f"Volume {what} is not started")
            names = [what]
        there = [asked, *self._model.connected(asked)]
        return answers.statuses(self._model, [asked.volumes[name] for name in names], there)

    def _heal(self, asked: Glusterd, words: Sequence[str]) -> Parts:
        volume = self._existing(asked, words[0])
        if volume.shape.width == 1:
            kinds = "replicate/disperse"
            what = f"This command is supported for only volumes of {kinds} type."
            raise RefusedError(f"{what} Volume {volume.name} is not of type {kinds}")
        if not volume.started:
            raise RefusedError(f"Volume {volume.name} is not started (Or) All the bricks are not running.")
        if len(words) == 1 or words[1] == "full":
            return answers.done()  # what can be healed is being healed
        if words[1] == "split-brain":
            source = [brick.name for brick in volume.bricks].index(words[3])
            members = volume.set_of(source)
            take(self._model.answering(volume, members), source - members.start, words[4].removeprefix("/"))
            return answers.done()
        silent = [brick for brick in volume.bricks if not self._model.network.reaches(asked.address, brick.address)]
        if silent:
            yield DEAD_BRICK_S
        return answers.heals(self._model, volume, asked, words[-1])

    # The pool.

    def _probe(self, asked: Glusterd, address: str) -> Parts:
        model = self._model
        if address == asked.address or any(peer.address == address for peer in asked.peers.values()):
            return answers.done()
        yield entropy.source().uniform(0.1, 0.5)
        asked = self._asked(asked.address)
        target = model.running(address)
        if target is None or not model.network.reaches(asked.address, address):
            raise RefusedError("Probe returned with Transport endpoint is not connected")
        if target.in_pool or target.volumes:
            raise RefusedError(f"{address} is either already part of another cluster or having volumes configured")
        members = [asked, *model.connected(asked)]
        for uuid, peer in asked.peers.items():
            target.peers[uuid] = PeerRecord(uuid, peer.address)
        for member in members:
            member.peers[target.uuid] = PeerRecord(target.uuid, address, ACCEPTED)
            target.peers[member.uuid] = PeerRecord(member.uuid, member.address, ACCEPTED)
        for member in members:
            model.link(member, target)
            model.shake_hands(member, target)
        return answers.done()

    def _detach(self, asked: Glusterd, address: str, *, force: bool) -> Parts:
        model = self._model
        peer = next((one for one in asked.peers.values() if one.address == address), None)
        if peer is None:
            raise RefusedError(f"{address} is not part of cluster", 1)
        if any(brick.uuid == peer.uuid for volume in asked.volumes.values() for brick in volume.bricks):
            raise RefusedError(f"Peer {address} {_HOSTS_BRICKS}", 1)
        there = model.connected(asked)
        away = [uuid for uuid in asked.peers if uuid != peer.uuid and all(one.uuid != uuid for one in there)]
        if away and not force:
            raise RefusedError("One of the peers is probably down. Check with 'peer status'", 1)
        yield entropy.source().uniform(0.1, 0.5)
        asked = self._asked(asked.address)
        if peer.uuid not in asked.peers:
            return answers.done()
        self._watcher.detached(peer)
        there = model.connected(asked)
        for member in [asked, *there]:
            member.peers.pop(peer.uuid, None)
            model.unlink(member, peer.uuid)
        gone = next((one for one in there if one.uuid == peer.uuid), None)
        if gone is not None:
            gone.peers.clear()
            for volume in list(gone.volumes.values()):
                del gone.volumes[volume.name]
                model.apply(gone, None, volume)
        return answers.done()

    # Volumes.

    def _create(self, asked: Glusterd, words: Sequence[str]) -> Parts:
        name, model = words[0], self._model
        layout, names = layout_in_words(words[1:])
        if name in asked.volumes:
            raise RefusedError(f"Volume {name} already exists")
        bricks = [self._place(asked, brick) for brick in names]
        known = [brick for volume in asked.volumes.values() for brick in volume.bricks]
        taken = next((brick.name for brick in bricks if brick.uuid == asked.uuid and brick in known), "")
        if taken:
            raise RefusedError(f"Brick: {taken} {TAKEN}")
        members = yield from self._locked(asked, name)
        there, lost = self._there(asked, members)
        try:
            for brick in bricks:
                self._refuse_unfit(brick, there)
        except RefusedError:
            self._unlock(asked, name, members)
            raise
        identity = entropy.new_uid()
        for brick in bricks:
            if brick.uuid not in [one.uuid for one in lost]:
                model.make_brick(brick.address, brick.path, identity)
        if lost:
            self._unlock(asked, name, members)
            raise RefusedError(f"Staging failed on {lost[0].address}. Please check log file for details.")
        volume = VolumeRecord(name, identity, Shape(*layout), tuple(bricks), _OPTIONS)
        model.newest[identity] = {}
        self._commit(asked, members, volume, None)
        self._watcher.created(volume)
        return answers.done()

    def _start(self, asked: Glusterd, name: str, *, force: bool) -> Parts:
        def started(volume: VolumeRecord) -> VolumeRecord:
            if volume.started and not force:
                raise RefusedError(f"Volume {name} already started")
            return replace(volume, status=STARTED)

        return (yield from self._change(asked, "start", name, started))

    def _stop(self, asked: Glusterd, name: str) -> Parts:
        def stopped(volume: VolumeRecord) -> VolumeRecord:
            if not volume.started:
                raise RefusedError(f"Volume {name} is not in the started state")
            self._watcher.stopped(volume)
            return replace(volume, status=STOPPED)

        return (yield from self._change(asked, "stop", name, stopped))

    def _delete(self, asked: Glusterd, name: str) -> Parts:
        def deleted(volume: VolumeRecord) -> None:
            if volume.started:
                raise RefusedError(f"Volume {name} has been started.Volume needs to be stopped before deletion.")
            if len(self._model.connected(asked)) < len(asked.peers):
                raise RefusedError("Some of the peers are down")
            self._watcher.deleted(volume)

        return (yield from self._change(asked, "delete", name, deleted))

    def _set(self, asked: Glusterd, name: str, options: Mapping[str, str]) -> Parts:
        def with_options(volume: VolumeRecord) -> VolumeRecord:
            timeouts = [one for one in options if one in ("features.hard-timeout", "features.soft-timeout")]
            if timeouts and volume.options.get(QUOTA) != "on":
                raise RefusedError("Quota is disabled, please enable quota")
            return replace(volume, options={**volume.options, **options})

        return (yield from self._change(asked, "set", name, with_options))

    def _quota(self, asked: Glusterd, words: Sequence[str]) -> Parts:
        name, verb, *rest = words

        def enabled(volume: VolumeRecord) -> VolumeRecord:
            if not volume.started:
                raise RefusedError("Volume is stopped, start volume before executing quota command.")
            if volume.options.get(QUOTA) == "on":
                raise RefusedError("Quota is already enabled")
            more = {QUOTA: "on", "features.inode-quota": "on", "features.quota-deem-statfs": "on"}
            return replace(volume, options={**volume.options, **more})

        def limited(volume: VolumeRecord) -> VolumeRecord:
            if volume.options.get(QUOTA) != "on":
                raise RefusedError("Quota is disabled, please enable quota")
            return replace(volume, limit=int(rest[1]))

        if verb == "list":
            return answers.quota(self._existing(asked, name))
        return (yield from self._change(asked, f"quota {verb}", name, enabled if verb == "enable" else limited))

    def _replace(self, asked: Glusterd, name: str, old: str, new: str) -> Parts:
        model = self._model

        def with_new(volume: VolumeRecord) -> VolumeRecord:
            if not volume.started:
                raise RefusedError(f"volume: {name} is not started")
            if len(volume.sets[0]) == 1:
                raise RefusedError(_ONE_COPY)
            position = next((at for at, brick in enumerate(volume.bricks) if brick.name == old), None)
            if position is None:
                raise RefusedError(f"brick: {old} does not exist in volume: {name}")
            brick = self._place(asked, new)
            self._refuse_unfit(brick, [asked, *model.connected(asked)])
            self._watcher.replaced(volume, position, brick)
            model.make_brick(brick.address, brick.path, volume.id)
            bricks = (*volume.bricks[:position], brick, *volume.bricks[position + 1 :])
            return replace(volume, bricks=bricks)

        return (yield from self._change(asked, "replace-brick", name, with_new))

    def _add(self, asked: Glusterd, name: str, new: str) -> Parts:
        model = self._model

        def with_new(volume: VolumeRecord) -> VolumeRecord:
            brick = self._place(asked, new)
            known = [one for other in asked.volumes.values() for one in other.bricks]
            used = model.is_used(brick.address, brick.path)
            added = growing.with_brick(volume, brick, known, asked.uuid, used=used)
            self._refuse_unfit(brick, [asked, *model.connected(asked)])
            model.make_brick(brick.address, brick.path, volume.id)
            return added

        return (yield from self._change(asked, "add-brick", name, with_new))

    def _remove(self, asked: Glusterd, name: str, old: str, how: str) -> Parts:
        def changed(volume: VolumeRecord) -> VolumeRecord:
            if how == "start":
                return growing.leaving(volume, old)
            if how == "commit":
                moved = not self._model.is_moving(volume)
                return growing.without_moved(volume, old, asked.uuid, moved=moved)
            return growing.without(volume, old)

        if how == "status":
            growing.refuse_status(self._existing(asked, name), old)
            return answers.done()
        return (yield from self._change(asked, f"remove-brick {how}", name, changed))

    # How a change is made.

    def _change(self, asked: Glusterd, verb: str, name: str, change: Change) -> Parts:
        self._existing(asked, name)
        members = yield from self._locked(asked, name)
        _, lost = self._there(asked, members)
        try:
            volume = self._existing(asked, name)
            _refuse_minority(asked, volume)
            changed = change(volume)
        except RefusedError:
            self._unlock(asked, name, members)
            raise
        self._watcher.changed(verb, volume)
        self._commit(asked, members, changed, volume)
        if lost:
            raise RefusedError(f"Commit failed on {lost[0].address}. Please check log file for details.")
        return answers.done()

    def _commit(
        self, asked: Glusterd, members: Sequence[Glusterd], volume: VolumeRecord | None, before: VolumeRecord | None
    ) -> None:
        """By everybody who is there, at once. Each counts the changes that it has seen itself: where two could not
        reach each other, a third one has a higher version than either of them.
        """
        model = self._model
        if volume is not None and before is not None:
            volume = replace(volume, version=before.version + 1)
        name = (volume or before).name  # type: ignore[union-attr]
        there, _ = self._there(asked, members)
        if volume is not None:
            model.volumes[volume.id] = volume
        elif before is not None:
            model.volumes.pop(before.id, None)  # one that was deleted before is there again where somebody brought it
        for member in there:
            own = member.volumes.get(name)
            if volume is None:
                member.volumes.pop(name, None)
            else:
                member.volumes[name] = volume if own is None else replace(volume, version=own.version + 1)
            model.apply(member, volume, own or before)
        if volume is not None and before is not None and len(volume.bricks) == len(before.bricks):
            for position, brick in enumerate(volume.bricks):
                if brick != before.bricks[position]:
                    model.replaced(volume, position)
        self._unlock(asked, name, members)

    def _locked(self, asked: Glusterd, name: str) -> Generator[float, None, list[Glusterd]]:
        yield from self._wait(asked)
        self._refuse_locked(asked, name)
        members = [asked, *self._model.connected(asked)]
        for member in members:
            self._model.locks[member.uuid, name] = asked.uuid
        yield entropy.source().uniform(0.1, 1.5)
        try:
            yield from self._wait(asked)
        except UnansweredError:
            self._unlock(asked, name, members)
            raise
        if self._model.running(asked.address) is not asked or self._model.locks.get((asked.uuid, name)) != asked.uuid:
            self._unlock(asked, name, members)
            raise UnansweredError
        # Who has connected meanwhile was told how it was before, and takes part.
        return [*members, *(one for one in self._model.connected(asked) if one not in members)]

    def _unlock(self, asked: Glusterd, name: str, members: Sequence[Glusterd]) -> None:
        for member in members:
            if self._model.locks.get((member.uuid, name)) == asked.uuid:
                del self._model.locks[member.uuid, name]

    def _refuse_locked(self, asked: Glusterd, name: str) -> None:
        if self._is_locked(asked, name):
            raise RefusedError(f"Another transaction is in progress for {name}. Please try again after some time.")

    def _is_locked(self, asked: Glusterd, name: str) -> bool:
        return any((member.uuid, name) in self._model.locks for member in [asked, *self._model.connected(asked)])

    def _wait(self, asked: Glusterd) -> Generator[float, None, None]:
        """Until everybody answers or is given up."""
        while self._model.hangs(asked):
            yield 0.5
            self._asked(asked.address)

    def _there(self, asked: Glusterd, members: Sequence[Glusterd]) -> tuple[list[Glusterd], list[Glusterd]]:
        """Who of them takes part in the end, and who was lost meanwhile. Who was detached is neither."""
        left = [one for one in members if one is asked or one.uuid in asked.peers]
        reach = [
            one
            for one in left
            if self._model.linked(asked, one) and self._model.network.reaches(asked.address, one.address)
        ]
        return reach, [one for one in left if one not in reach]

    def _asked(self, address: str) -> Glusterd:
        found = self._model.running(address)
        if found is None:
            raise UnansweredError
        return found

    def _existing(self, asked: Glusterd, name: str) -> VolumeRecord:
        found = asked.volumes.get(name)
        if found is None:
            raise RefusedError(f"Volume {name} does not exist")
        return found

    def _place(self, asked: Glusterd, name: str) -> BrickRecord:
        address, _, path = name.partition(":")
        for peer in (PeerRecord(asked.uuid, asked.address), *asked.peers.values()):
            if peer.address == address and peer.state == IN_CLUSTER:
                return BrickRecord(address, path, peer.uuid)
        raise RefusedError(f"Host {address} is not in 'Peer in Cluster' state")

    def _refuse_unfit(self, brick: BrickRecord, there: Sequence[Glusterd]) -> None:
        if all(one.uuid != brick.uuid for one in there):
            raise RefusedError(f"Host {brick.address} not connected")
        if self._model.is_used(brick.address, brick.path):
            raise RefusedError(f"{brick.path} is already part of a volume")
        if not self._model.can_hold(brick.address, brick.path):
            raise RefusedError(f"Failed to create brick directory for brick {brick.name}. Reason : Input/output error")


def _refuse_minority(asked: Glusterd, volume: VolumeRecord) -> None:
    if volume.needs_quorum and not asked.quorate:
        raise RefusedError("Quorum not met. Volume operation not allowed.")
