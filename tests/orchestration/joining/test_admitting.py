"""Who is let in under which addresses."""

from __future__ import annotations

from quartermaster.orchestration.joining.admitting import whose_address
from quartermaster.orchestration.joining.wire import Request
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostSpec

BRIDGE = "172.17.0.1"  # on every host that runs containers


def host(name: str, *addresses: str) -> Host:
    return Host(metadata=ObjectMeta(name=name, namespace="default"), spec=HostSpec(addresses=addresses))


def request(name: str, *addresses: str) -> Request:
    return Request(token="t", secret="s", host=name, addresses=addresses, request="")


def test_the_address_at_which_another_host_is_looked_for_is_refused() -> None:
    known = [host("h1", "10.0.0.1", BRIDGE), host("h2", "2001:db8::2")]
    wrong = whose_address(known, request("h3", "10.0.0.1"))
    assert wrong is not None
    assert str(wrong) == (
        "cannot join as h3: the address 10.0.0.1 is that of host h1; "
        "name one of its own with --address; if h1 is gone for good, `qm delete host h1` first"
    )
    assert whose_address(known, request("h3", "10.0.0.3", "10.0.0.1")) is not None
    assert whose_address(known, request("h3", BRIDGE, "10.0.0.3")) is not None
    assert whose_address(known, request("h3", "2001:DB8:0::2")) is not None


def test_what_many_hosts_have_beside_their_own_is_no_matter() -> None:
    known = [host("h1", "10.0.0.1", BRIDGE, "127.0.0.1"), host("h2")]
    assert whose_address(known, request("h3", "10.0.0.3", BRIDGE, "127.0.0.1")) is None
    assert whose_address(known, request("h3", "127.0.0.1")) is None
    assert whose_address(known, request("h3")) is None


def test_a_host_that_asks_again_has_its_own_address() -> None:
    assert whose_address([host("h3", "10.0.0.3")], request("h3", "10.0.0.3")) is None
