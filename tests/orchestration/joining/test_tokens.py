"""Tokens: a secret that is kept as a hash, works once, for a while, and for whom it was made."""

from __future__ import annotations

import binascii

import pytest

from quartermaster.orchestration.joining.tokens import (
    Token,
    TokenRecord,
    create_token,
    decode,
    encode,
    judge,
    list_tokens,
    redeem,
    revoke_token,
)
from quartermaster.resources import Secret
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ForbiddenError, InvalidError

ADDRESSES = ("10.0.0.1:7743", "[fd00::1]:7743")


async def made(store: ObjectStore, **options: object) -> Token:
    return await create_token(store, "default", fingerprint="f" * 64, addresses=ADDRESSES, **options)  # type: ignore[arg-type]


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(MemoryKeyValue())


async def test_a_token_carries_where_the_leader_is_and_how_to_know_it(store: ObjectStore) -> None:
    token = await made(store)
    assert decode(f" {encode(token)}\n") == token
    assert token.addresses == ADDRESSES


async def test_the_store_keeps_a_hash_and_never_the_secret(store: ObjectStore) -> None:
    token = await made(store)
    (kept,) = (await store.list(Secret, "default")).items
    values = [binascii.a2b_base64(value).decode() for value in kept.data.values()]
    assert not any(token.secret in value for value in values)
    assert token.secret not in repr(token)


@pytest.mark.parametrize("text", ["", "nonsense", "qm1-", "qm1-AAAA", "qm1-W10"])
def test_a_token_that_was_not_copied_whole_is_told_so(text: str) -> None:
    with pytest.raises(InvalidError, match="damaged or was not copied whole"):
        decode(text)


async def test_a_token_works_once_and_the_same_key_may_ask_again(store: ObjectStore) -> None:
    token = await made(store)
    for _ in range(2):
        used = await redeem(store, "default", token.id, token.secret, host="h2", key="k2")
    assert used.used_by == "h2"
    for host, key in (("h2", "stolen"), ("h3", "k2"), ("h3", "k3")):
        with pytest.raises(ForbiddenError, match="host h2 has used it, and it works once"):
            await redeem(store, "default", token.id, token.secret, host=host, key=key)
    assert [record.used_by for record in await list_tokens(store, "default")] == ["h2"]


async def test_who_does_not_know_the_secret_learns_nothing(store: ObjectStore) -> None:
    token = await made(store, lifetime_s=-1)
    for identity, secret in ((token.id, "guess"), ("other", token.secret)):
        with pytest.raises(ForbiddenError, match="it is not known"):
            await redeem(store, "default", identity, secret, host="h2", key="k")
    with pytest.raises(ForbiddenError, match="it has expired at 20"):
        await redeem(store, "default", token.id, token.secret, host="h2", key="k")


async def test_a_revoked_token_is_gone(store: ObjectStore) -> None:
    token = await made(store)
    await revoke_token(store, "default", token.id)
    with pytest.raises(ForbiddenError, match="it is not known"):
        await redeem(store, "default", token.id, token.secret, host="h2", key="k")


def test_a_token_for_one_host_is_for_no_other() -> None:
    record = TokenRecord(
        id="i", hash="2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", expires=10.0, host="h3"
    )
    assert judge(record, "secret", host="h2", key="k", now=5.0) == "it is for host h3 only"
    assert judge(record, "secret", host="h3", key="k", now=5.0) == ""
    assert judge(record, "secret", host="h3", key="k", now=10.0).startswith("it has expired")
