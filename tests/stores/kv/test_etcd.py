"""What is particular to the key-value store on etcd: its URL, TLS, users and roles, limits, and being closed."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest

from quartermaster.stores.kv.base import Compare, Put, Remove
from quartermaster.stores.kv.etcd import EtcdKeyValue, Settings, connect
from quartermaster.stores.kv.etcd.failures import Failure, Verdict, judge
from quartermaster.stores.kv.etcd.members import Members
from quartermaster.stores.kv.etcd.settings import parse
from quartermaster.support import entropy
from quartermaster.support.errors import (
    ForbiddenError,
    NotFoundError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
    UsageError,
)
from quartermaster.testing.servers import EtcdAccess, EtcdCluster
from quartermaster.testing.servers.certificates import CertificateFiles

Throwaway = Callable[..., Awaitable[EtcdCluster]]


def addresses(etcd: EtcdAccess | EtcdCluster) -> tuple[str, ...]:
    return tuple(endpoint.partition("://")[2] for endpoint in etcd.endpoints)


@pytest.fixture
async def kv(etcd_servers: EtcdAccess) -> AsyncIterator[EtcdKeyValue]:
    store = connect(Settings(endpoints=addresses(etcd_servers), prefix=f"/{entropy.new_uid()}"))
    yield store
    await store.close()


def test_a_url_names_members_and_prefix() -> None:
    settings = parse("etcd://a:1,b,[::1],[fd00::2]:3/teams/blue/?timeout=5", {})
    assert settings.endpoints == ("a:1", "b:2379", "[::1]:2379", "[fd00::2]:3")
    assert (settings.prefix, settings.tls, settings.deadline_s) == ("/teams/blue", False, 5.0)
    assert parse("etcd://a", {}).prefix == parse("etcd://a/", {}).prefix == "/quartermaster"


def test_a_url_may_follow_the_members_and_name_a_file_that_lists_them(tmp_path: Path) -> None:
    settings = parse("etcd://a:1?sync=true", {})
    assert settings.sync
    assert not parse("etcd://a:1", {}).sync
    with pytest.raises(UsageError, match="sync 'perhaps' is neither true nor false"):
        parse("etcd://a:1?sync=perhaps", {})
    listed = tmp_path / "access.json"
    url = f"etcd://a:1?members={listed}"
    assert parse(url, {}).endpoints == ("a:1",)
    listed.write_text('{"endpoints": ["b:2", "c:3"], "host": "h1"}')
    assert parse(url, {}).endpoints == ("b:2", "c:3")
    listed.write_text("not JSON")
    assert parse(url, {}).endpoints == ("a:1",)


async def test_connections_to_members_that_stay_are_kept() -> None:
    members = Members(Settings(endpoints=("a:1", "b:2")))
    before = {member.address: member for member in members._members}
    members.follow(["b:2", "c:3"])
    assert members.endpoints == ("b:2", "c:3")
    assert members._members[0] is before["b:2"]
    assert members.serving in members._members
    members.follow([])
    assert members.endpoints == ("b:2", "c:3")
    await members.close()


def test_a_shown_url_has_no_secret() -> None:
    settings = parse("etcds://us%40er:p%40ss@a,b/x", {})
    assert (settings.user, settings.password) == ("us@er", "p@ss")
    assert settings.url == "etcds://us%40er@a:2379,b:2379/x"
    assert "p@ss" not in repr(settings)
    assert "p%40ss" not in repr(settings)


def test_the_environment_fills_what_the_url_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file\n")
    environment = {"QM_ETCD_CA": "/ca", "QM_ETCD_CERT": "/cert", "QM_ETCD_KEY": "/key", "QM_ETCD_SERVER_NAME": "name"}
    settings = parse("etcds://u@a?ca=/other", environment | {"QM_ETCD_PASSWORD": "from the environment"})
    assert (settings.authority, settings.certificate, settings.key) == ("/other", "/cert", "/key")
    assert (settings.server_name, settings.password) == ("name", "from the environment")
    assert parse("etcd://u@a", {"QM_ETCD_PASSWORD_FILE": str(tmp_path / "password")}).password == "from a file"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://a:2379", "does not start with etcd://"),
        ("etcd:///prefix", "is not an address"),
        ("etcd://a,,b", "is not an address"),
        ("etcd://a:port", "'a:port' is not an address"),
        ("etcd://a:99999", "is not an address"),
        ("etcd://[::1", "'[::1' is not an address"),
        ("etcd://[::1]x:2379", "is not an address"),
        ("etcd://[a]:2379", "is not an address"),
        ("etcd://fd00::2", "'fd00::2' is not an address"),
        ("etcd://a b:2379", "'a b:2379' is not an address"),
        ("etcd://a?ca=/ca.crt", "ca is for TLS"),
        ("etcds://a?servername=b", "did you mean server-name?"),
        ("etcds://a?cert=/c", "needs cert and key"),
        ("etcd://a?timeout=soon", "timeout 'soon'"),
        ("etcd://user@a", "no password for the user user"),
        ("etcds://a?ca=/does/not/exist", "cannot read the certificate authority /does/not/exist"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence(url: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QM_ETCD_PASSWORD", raising=False)
    with pytest.raises(UsageError, match="cannot") as caught:
        connect(url)
    assert complaint in str(caught.value)


def test_a_complaint_about_a_url_does_not_show_its_password() -> None:
    with pytest.raises(UsageError) as caught:
        connect("etcd://user:hunter2@host:port")
    assert "hunter2" not in str(caught.value)


def test_generated_messages_run_on_every_supported_runtime() -> None:
    from quartermaster.stores.kv.etcd import rpc_pb2

    assert rpc_pb2.__file__ is not None
    assert "runtime_version" not in Path(rpc_pb2.__file__).read_text()


@pytest.mark.parametrize(
    ("code", "text", "verdict"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: connection refused", Verdict.ELSEWHERE),
        ("UNAVAILABLE", "etcdserver: no leader", Verdict.ELSEWHERE),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Verdict.ELSEWHERE),
        ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure", Verdict.DOUBT),
        ("UNAVAILABLE", "etcdserver: leader changed", Verdict.DOUBT),
        ("UNAVAILABLE", "Socket closed", Verdict.DOUBT),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Verdict.DOUBT),
        ("INTERNAL", "Received RST_STREAM with error code 2", Verdict.DOUBT),
        ("UNIMPLEMENTED", "Received http2 header with status: 404", Verdict.DOUBT),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Verdict.TOKEN),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Verdict.TOKEN),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Verdict.FINAL),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Verdict.FINAL),
        ("UNKNOWN", "rpc error: code = PermissionDenied desc = etcdserver: permission denied", Verdict.FINAL),
        ("DATA_LOSS", "etcdserver: corrupt cluster", Verdict.FINAL),
    ],
)
def test_a_failure_is_repeated_only_where_that_helps(code: str, text: str, verdict: Verdict) -> None:
    assert judge(Failure(text, grpc.StatusCode[code])) is verdict


async def test_keys_lie_under_the_prefix(etcd_servers: EtcdAccess, kv: EtcdKeyValue) -> None:
    await kv.transact([], [Put("/objects/a", b"1")])
    prefix = kv.url.rpartition("/")[2]
    assert await etcd_servers.etcdctl("get", "--prefix", f"/{prefix}/") == f"/{prefix}/objects/a\n1\n"


async def test_a_transaction_of_128_operations_is_done_and_of_129_refused(kv: EtcdKeyValue) -> None:
    operations = [Put(f"/{number:03}", b"") for number in range(129)]
    assert (await kv.transact([], operations[:128])).succeeded
    with pytest.raises(RefusedError, match="129 operations under 0 conditions"):
        await kv.transact([], operations)
    with pytest.raises(RefusedError, match="0 operations under 129 conditions"):
        await kv.transact([Compare(f"/{number}", modified=0) for number in range(129)], [])


async def test_a_value_that_is_too_large_is_refused_and_the_next_call_works(kv: EtcdKeyValue) -> None:
    for size in (1_600_000, 8_000_000):
        with pytest.raises(RefusedError, match=r"cannot write /large.*write less at once"):
            await kv.transact([], [Put("/large", bytes(size))])
    assert await kv.get("/large") is None


async def test_a_range_larger_than_a_default_message_arrives(kv: EtcdKeyValue) -> None:
    for number in range(6):
        await kv.transact([], [Put(f"/{number}", bytes(1_000_000))])
    assert sum(len(entry.value) for entry in (await kv.range("/", "0")).entries) == 6_000_000
    async with aclosing(kv.watch("/", "0", after=(await kv.range("/", "0")).entries[0].created - 1)) as watch:
        assert [(await anext(watch)).changes[0].key for _ in range(6)] == [f"/{number}" for number in range(6)]


async def test_a_quiet_watch_tells_how_far_it_is(kv: EtcdKeyValue) -> None:
    start = await kv.revision()
    async with aclosing(kv.watch("/watched/", "/watched0", after=start)) as watch, asyncio.timeout(10):
        elsewhere = await kv.transact([], [Put("/elsewhere", b"")])
        batch = await anext(watch)
    assert batch.changes == ()
    assert batch.revision >= elsewhere.revision


async def test_closing_the_store_ends_a_watch_that_waits(kv: EtcdKeyValue) -> None:
    async def follow() -> None:
        async with aclosing(kv.watch("/", "0", after=await kv.revision())) as watch:
            async for _ in watch:
                pass

    following = asyncio.ensure_future(follow())
    await asyncio.wait([following], timeout=0.2)
    await kv.close()
    with pytest.raises(UnavailableError, match="closed"):
        await asyncio.wait_for(following, 5)
    with pytest.raises(UnavailableError, match="closed"):
        await kv.get("/a")


async def test_closing_the_store_ends_a_call_that_waits(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=1)
    kv = connect(Settings(endpoints=addresses(etcd)))

    async def read() -> None:
        while True:
            await kv.get("/a")

    reading = asyncio.ensure_future(read())
    await asyncio.wait([reading], timeout=0.2)
    etcd.members[0].pause()
    await asyncio.wait([reading], timeout=0.2)
    await kv.close()
    with pytest.raises(UnavailableError, match="closed"):
        await asyncio.wait_for(reading, 5)


async def test_no_member_is_an_error_that_names_them_within_the_deadline(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=1)
    kv = connect(Settings(endpoints=(*addresses(etcd), "127.0.0.1:9"), deadline_s=1.0))
    await kv.transact([], [Put("/a", b"1")])
    await etcd.members[0].kill()
    started = asyncio.get_running_loop().time()
    with pytest.raises(UnavailableError) as caught:
        await kv.get("/a")
    assert asyncio.get_running_loop().time() - started < 15.0  # the deadline that nobody set is 30 s
    assert f"cannot read /a: no member of {addresses(etcd)[0]}, 127.0.0.1:9 served it within 1 s" in str(caught.value)
    with pytest.raises(UnavailableError, match="cannot watch /"):
        await anext(kv.watch("/", "0", after=1))
    await kv.close()


@pytest.mark.slow
async def test_many_who_wait_for_a_token_give_up_together() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        kv = connect(Settings(endpoints=(address,), user="user", password="password", deadline_s=0.3))
        async with asyncio.timeout(3):
            errors = await asyncio.gather(*(kv.get("/a") for _ in range(8)), return_exceptions=True)
        assert [type(error) for error in errors] == [UnavailableError] * 8
        await kv.close()


async def test_the_oldest_supported_version_works(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=1, version="3.4")
    kv = connect(Settings(endpoints=addresses(etcd)))
    start = await kv.revision()
    created = await kv.transact([Compare("/a", modified=0)], [Put("/a", b"1"), Put("/b", b"2")])
    assert created.succeeded
    assert not (await kv.transact([Compare("/a", modified=0)], [Put("/a", b"2")])).succeeded
    lease = await kv.grant(0.5)
    assert await kv.keep_alive(lease)
    await kv.transact([], [Put("/c", b"3", lease)])
    await kv.revoke(lease)
    assert not await kv.keep_alive(lease)
    with pytest.raises(NotFoundError):
        await kv.transact([], [Put("/c", b"3", lease)])
    await kv.transact([], [Remove("/a")])
    assert [entry.key for entry in (await kv.range("/", "0")).entries] == ["/b"]
    async with aclosing(kv.watch("/", "0", after=start)) as watch, asyncio.timeout(10):
        seen = [[(change.key, change.value) for change in (await anext(watch)).changes] for _ in range(4)]
    assert seen == [[("/a", b"1"), ("/b", b"2")], [("/c", b"3")], [("/c", None)], [("/a", None)]]
    await kv.close()


async def test_a_range_whose_moment_is_compacted_on_the_way_is_read_in_one(
    etcd_throwaway: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartermaster.stores.kv.etcd.keyvalue.CHUNK", 2)
    kv = connect(Settings(endpoints=addresses(await etcd_throwaway(size=1))))
    await kv.transact([], [Put(f"/{number}", b"x") for number in range(5)])
    call, calls = kv._members.call, 0

    async def compacting(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        answer = await call(*arguments)
        if calls == 1:
            await kv.transact([], [Put("/9", b"x")])
            await kv.compact(await kv.revision())
        return answer

    monkeypatch.setattr(kv._members, "call", compacting)
    found = await kv.range("/", "0")
    assert [entry.key for entry in found.entries] == ["/0", "/1", "/2", "/3", "/4", "/9"]
    assert (found.more, found.revision) == (False, await kv.revision())
    await kv.close()


def secured(etcd: EtcdCluster, **changes: object) -> Settings:
    """The way into a cluster with TLS and users."""
    access = etcd.access
    files = access.tls
    assert isinstance(files, CertificateFiles)
    fields: dict[str, object] = {
        "endpoints": addresses(etcd),
        "tls": True,
        "authority": files.authority,
        "certificate": files.certificate,
        "key": files.key,
        "user": access.user,
        "password": access.password,
        "deadline_s": 10.0,
    }
    return Settings(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
async def etcd_secured(etcd_throwaway: Throwaway) -> EtcdCluster:
    return await etcd_throwaway(size=1, tls=True, auth=True)


async def test_tls_and_a_user_open_the_door(etcd_secured: EtcdCluster) -> None:
    kv = connect(secured(etcd_secured, server_name="localhost"))
    outcome = await kv.transact([], [Put("/a", b"1")])
    async with aclosing(kv.watch("/", "0", after=outcome.revision - 1)) as watch, asyncio.timeout(10):
        assert [change.key for change in (await anext(watch)).changes] == ["/a"]
    await kv.close()


async def test_a_wrong_password_and_no_user_are_unauthorized(etcd_throwaway: Throwaway) -> None:
    [address] = addresses(await etcd_throwaway(size=1, auth=True))
    for url, cause in ((f"root:wrong@{address}", "authentication failed"), (address, "user name is empty")):
        kv = connect(f"etcd://{url}")
        with pytest.raises(UnauthorizedError, match=f"cannot read /a.*{cause}") as caught:
            await kv.get("/a")
        assert "wrong" not in str(caught.value)
        with pytest.raises(UnauthorizedError, match=cause):
            await kv.transact([], [Put("/a", b"1")])
        with pytest.raises(UnauthorizedError, match=cause):
            await anext(kv.watch("/", "0", after=1))
        await kv.close()


async def test_a_client_certificate_is_a_user(etcd_secured: EtcdCluster) -> None:
    kv = connect(secured(etcd_secured, user="", password=""))
    with pytest.raises(ForbiddenError):
        await kv.get("/a")
    await etcd_secured.etcdctl("user", "add", "quartermaster:unused")
    await etcd_secured.etcdctl("user", "grant-role", "quartermaster", "root")
    assert (await kv.transact([], [Put("/a", b"1")])).succeeded
    await kv.close()


async def test_a_server_of_another_authority_is_not_trusted(etcd_secured: EtcdCluster, tmp_path: Path) -> None:
    import trustme

    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    kv = connect(secured(etcd_secured, authority=str(tmp_path / "other.crt"), deadline_s=1.0))
    with pytest.raises(UnavailableError, match=r"(?i)certificate.?verify.?failed"):
        await kv.get("/a")
    await kv.close()


@pytest.mark.parametrize("version", ["3.6", "3.4"])
async def test_a_token_that_the_server_forgot_is_asked_for_again(etcd_throwaway: Throwaway, version: str) -> None:
    etcd = await etcd_throwaway(size=1, auth=True, version=version)
    access = etcd.access
    kv = connect(Settings(endpoints=addresses(etcd), user=access.user, password=access.password))
    first = await kv.transact([], [Put("/a", b"1")])
    async with aclosing(kv.watch("/", "0", after=first.revision - 1)) as watch, asyncio.timeout(20):
        assert (await anext(watch)).revision == first.revision
        await etcd.members[0].kill()
        await etcd.members[0].start()
        second = asyncio.ensure_future(kv.transact([Compare("/a", modified=first.revision)], [Put("/a", b"2")]))
        assert (await anext(watch)).changes[0].value == b"2"
        assert (await second).succeeded
    await kv.close()


@pytest.mark.parametrize("version", ["3.6", "3.4"])
async def test_a_role_limited_to_a_prefix_writes_only_below_it(etcd_throwaway: Throwaway, version: str) -> None:
    etcd = await etcd_throwaway(size=1, auth=True, version=version)
    await etcd.etcdctl("user", "add", "host1:secret")
    await etcd.etcdctl("role", "add", "host1")
    await etcd.etcdctl("role", "grant-permission", "host1", "readwrite", "--prefix", "/quartermaster/objects/host1/")
    await etcd.etcdctl("user", "grant-role", "host1", "host1")
    kv = connect(f"etcd://host1:secret@{addresses(etcd)[0]}")
    revision = (await kv.range("/objects/host1/", "/objects/host10")).revision
    assert (await kv.transact([Compare("/objects/host1/a", modified=0)], [Put("/objects/host1/a", b"1")])).succeeded
    with pytest.raises(ForbiddenError, match="cannot read the revision"):
        await kv.revision()
    for forbidden in ("/objects/host10/a", "/objects/host2/a", "/objects/"):
        with pytest.raises(ForbiddenError, match=f"cannot write {forbidden}"):
            await kv.transact([], [Put(forbidden, b"1")])
        with pytest.raises(ForbiddenError):
            await kv.get(forbidden)
    with pytest.raises(ForbiddenError):
        await kv.transact([], [Put("/objects/host1/b", b"1"), Remove("/objects/host2/a")])
    with pytest.raises(ForbiddenError):
        await kv.range("/objects/", "/objects0")
    with pytest.raises(ForbiddenError):
        await anext(kv.watch("/objects/", "/objects0", after=revision))
    async with aclosing(kv.watch("/objects/host1/", "/objects/host10", after=revision)) as watch:
        assert [change.key for change in (await anext(watch)).changes] == ["/objects/host1/a"]
    await kv.close()
