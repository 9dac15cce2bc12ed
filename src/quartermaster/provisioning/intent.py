"""What was decided for a claim, written on the claim before anything is made, and on the volume when it is.

Whoever may edit a claim may also write annotations on it. A forged intent could name any directory of a host, so an
intent is sealed with a key that only the operator has, together with the uid of the claim that it is for. A volume's
record needs no seal: volumes belong to administrators.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from quartermaster.backends.base import Volume
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning.protocol import with_annotations, with_finalizer, without_finalizer
from quartermaster.resources.kubernetes.core import Secret
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT, LEFT, PROVISIONING_FINALIZER, VOLUME
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.support import entropy
from quartermaster.support.errors import AlreadyExistsError, InvalidError, NotFoundError, TerminalError

KEY_NAME = "quartermaster-provisioning"
_KEY_FIELD = "key"
_KEY_BYTES = 32


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is needed to finish what was begun: the class may be gone or another by then."""

    cluster: ClusterKey
    volume: Volume
    reclaim_policy: str
    class_name: str = ""
    mount_options: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a volume was made: all that is needed to grow it or to delete it."""

    cluster: ClusterKey
    volume: Volume


class Seal:
    """Tells what we wrote from what somebody else did."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, claim: PersistentVolumeClaim, intent: Intent) -> PersistentVolumeClaim:
        payload = msgspec.json.encode(intent)
        text = f"{self._digest(claim, payload)} {payload.decode()}"
        return with_finalizer(with_annotations(claim, {INTENT: text, LEFT: ""}), PROVISIONING_FINALIZER)

    def read(self, claim: PersistentVolumeClaim, annotation: str = INTENT) -> Intent | None:
        """The intent that we wrote on this claim; None where there is none, it is not ours, or of another version."""
        payload = self._payload(claim, annotation)
        try:
            return msgspec.json.decode(payload, type=Intent) if payload else None
        except msgspec.DecodeError:
            return None

    def check(self, claim: PersistentVolumeClaim) -> None:
        """TerminalError for an intent that is ours and cannot be read: what was begun must not be begun anew."""
        if any(self._payload(claim, one) and self.read(claim, one) is None for one in (INTENT, LEFT)):
            raise TerminalError(
                f"cannot read the intent on the claim {claim.key}: another version of quartermaster wrote it",
                hint="run the version that wrote it",
            )

    def _payload(self, claim: PersistentVolumeClaim, annotation: str) -> str:
        """What we sealed; "" for anything else."""
        digest, _, payload = claim.metadata.annotations.get(annotation, "").partition(" ")
        same = hmac.compare_digest(digest.encode(), self._digest(claim, payload.encode()).encode())
        return payload if payload and same else ""

    def _digest(self, claim: PersistentVolumeClaim, payload: bytes) -> str:
        return hmac.new(self._key, claim.metadata.uid.encode() + b"\0" + payload, hashlib.sha256).hexdigest()


def without_intent(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return without_finalizer(with_annotations(claim, {INTENT: "", LEFT: ""}), PROVISIONING_FINALIZER)


def put_aside(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """For a volume that is to be placed anew. Nothing is taken or made by the intent any more; but the claim does not
    go before somebody was asked to end what may be left of it.
    """
    return with_annotations(claim, {INTENT: "", LEFT: claim.metadata.annotations[INTENT]})


def taken_up(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """The other way round, so that it is ended like one that was begun just now."""
    return with_annotations(claim, {INTENT: claim.metadata.annotations[LEFT], LEFT: ""})


def has_trace(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim bears an intent or its finalizer, whoever wrote them."""
    return INTENT in claim.metadata.annotations or PROVISIONING_FINALIZER in claim.metadata.finalizers


async def open_seal(store: Store, namespace: str) -> Seal:
    """The seal of the operator of a namespace; the first one makes the key."""
    for _ in range(2):
        try:
            return Seal(_key_of(await store.get(Secret, KEY_NAME, namespace)))
        except NotFoundError:
            key = entropy.source().getrandbits(8 * _KEY_BYTES).to_bytes(_KEY_BYTES, "big")
            secret = Secret(
                metadata=ObjectMeta(name=KEY_NAME, namespace=namespace),
                data={_KEY_FIELD: base64.b64encode(key).decode()},
            )
        try:
            return Seal(_key_of(await store.create(secret)))
        except AlreadyExistsError:
            continue
    raise NotFoundError(f"cannot read the secret {namespace}/{KEY_NAME}: it comes and goes")


async def find_seal(store: Store, namespace: str) -> Seal | None:
    """The same for somebody who only looks; None where there is none yet, and so nothing that it seals."""
    try:
        return Seal(_key_of(await store.get(Secret, KEY_NAME, namespace)))
    except NotFoundError:
        return None


def _key_of(secret: Secret) -> bytes:
    try:
        key = base64.b64decode(secret.data.get(_KEY_FIELD, ""), validate=True)
    except binascii.Error:
        key = b""
    if len(key) < _KEY_BYTES:
        raise InvalidError(
            f"cannot use the secret {secret.key}: its {_KEY_FIELD} is not {_KEY_BYTES} bytes in base64",
            hint="delete it while no claim is being provisioned: a new one is made",
        )
    return key


def with_record(volume: PersistentVolume, record: Record) -> PersistentVolume:
    return with_annotations(volume, {VOLUME: msgspec.json.encode(record).decode()})


def record_of(volume: PersistentVolume) -> Record | None:
    """How the volume was made; None for one that is not ours."""
    text = volume.metadata.annotations.get(VOLUME)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.DecodeError:
        return None
