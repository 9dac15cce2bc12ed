"""Tokens with which a host joins: they expire, are used once, and only a hash of each is kept.

A token carries what a host needs to find and trust the leader: addresses, and the fingerprint of the authority. Who has
used one is remembered by the key that was shown with it, so that an answer that was lost can be asked for again, and
whoever else has the token gets nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec
from msgspec.structs import replace

from quartermaster.resources.kubernetes.core import Secret
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.support import clock, entropy
from quartermaster.support.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError

TYPE = "quartermaster.coreos.com/join-token"
LIFETIME_S = 3600.0
_PREFIX = "qm1-"
NAME_PREFIX = "join-token-"
_SECRET_BYTES = 24
_ATTEMPTS = 8
_NEW = "make a new one with `qm token create`"


class Token(msgspec.Struct, frozen=True, array_like=True):
    """What a person carries from one host to another."""

    id: str
    secret: str
    fingerprint: str  # of the authority
    addresses: tuple[str, ...]  # host:port of those that may lead

    def __repr__(self) -> str:
        return f"Token({self.id})"


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the store keeps of a token."""

    id: str
    hash: str
    expires: float  # seconds since 1970
    host: str = ""  # the only host that may use it; "" is any new one
    used_by: str = ""
    key: str = ""  # the digest of the key that was shown


def encode(token: Token) -> str:
    text = base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")
    return f"{_PREFIX}{text}"


def decode(text: str) -> Token:
    _, found, body = text.strip().partition(_PREFIX)
    try:
        plain = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)) if found else b""
        return msgspec.json.decode(plain, type=Token)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise InvalidError(
            "cannot read the token: it is damaged or was not copied whole", hint=f"copy it again, or {_NEW}"
        ) from error


async def create_token(
    store: Store,
    namespace: str,
    *,
    fingerprint: str,
    addresses: tuple[str, ...],
    lifetime_s: float = LIFETIME_S,
    host: str = "",
) -> Token:
    identity = entropy.name_suffix(8)
    secret = base64.urlsafe_b64encode(entropy.source().randbytes(_SECRET_BYTES)).decode()
    record = TokenRecord(id=identity, hash=_hash(secret), expires=clock.wall_time() + lifetime_s, host=host)
    await store.create(_to_secret(record, namespace))
    return Token(identity, secret, fingerprint, addresses)


async def list_tokens(store: Store, namespace: str) -> tuple[TokenRecord, ...]:
    page = await store.list(Secret, namespace, fields=f"type={TYPE}")
    return tuple(_from_secret(found) for found in page.items)


async def revoke_token(store: Store, namespace: str, identity: str) -> None:
    await store.delete(Secret, NAME_PREFIX + identity, namespace)


async def examine(store: Store, namespace: str, identity: str, secret: str, *, host: str, key: str) -> TokenRecord:
    """What `redeem` would find, without using the token up."""
    return (await _good(store, namespace, identity, secret, host=host, key=key))[1]


async def redeem(store: Store, namespace: str, identity: str, secret: str, *, host: str, key: str) -> TokenRecord:
    """Use a token for a host with that key. Once it returns, nobody with another key can; the same one may repeat it.

    ForbiddenError says why not, and more than "unknown" only to one who has the token's secret.
    """
    for attempt in range(_ATTEMPTS):
        found, record = await _good(store, namespace, identity, secret, host=host, key=key)
        if record.key:
            return record
        used = replace(record, used_by=host, key=key)
        changed = replace(found, data=_to_secret(used, namespace).data)
        try:
            await store.update(changed)
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        return used
    raise AssertionError("unreachable")


async def _good(
    store: Store, namespace: str, identity: str, secret: str, *, host: str, key: str
) -> tuple[Secret, TokenRecord]:
    try:
        found = await store.get(Secret, NAME_PREFIX + identity, namespace)
    except NotFoundError as error:
        raise _refusal("it is not known") from error
    record = _from_secret(found)
    if wrong := judge(record, secret, host=host, key=key, now=clock.wall_time()):
        raise _refusal(wrong)
    return found, record


def judge(record: TokenRecord, secret: str, *, host: str, key: str, now: float) -> str:
    """Why a token cannot be used; "" when it can."""
    if not hmac.compare_digest(record.hash, _hash(secret)):
        return "it is not known"
    # Whoever used it may ask for the same again.
    if record.key and (not hmac.compare_digest(record.key, key) or record.used_by != host):
        return f"host {record.used_by} has used it, and it works once"
    if now >= record.expires:
        return f"it has expired at {moment(record.expires)}"
    if record.host and record.host != host:
        return f"it is for host {record.host} only"
    return ""


def _refusal(why: str) -> ForbiddenError:
    return ForbiddenError(f"cannot join with this token: {why}", hint=_NEW)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _to_secret(record: TokenRecord, namespace: str) -> Secret:
    values = {name: str(value) for name, value in msgspec.to_builtins(record).items() if value != ""}
    data = {name: binascii.b2a_base64(value.encode(), newline=False).decode() for name, value in values.items()}
    return Secret(metadata=ObjectMeta(name=NAME_PREFIX + record.id, namespace=namespace), type=TYPE, data=data)


def _from_secret(found: Secret) -> TokenRecord:
    values = {name: binascii.a2b_base64(text).decode() for name, text in found.data.items()}
    try:
        return msgspec.convert(values, TokenRecord, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidError(f"cannot read the join token {found.key}: {error}", hint="revoke it") from error
