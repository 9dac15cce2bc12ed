"""Facts: what this host is, and what others say it is."""

import os
from pathlib import Path

import pytest

from quartermaster.host.commands import HostCommands
from quartermaster.host.facts import (
    addresses,
    can_listen_on,
    gather_facts,
    parse_addresses,
    parse_os_release,
    routed_address,
)
from quartermaster.host.fake import FakeCommands


async def test_the_facts_of_this_host() -> None:
    facts = await gather_facts(HostCommands())
    assert facts.name == os.uname().nodename
    assert facts.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.memory > 100 << 20
    assert facts.cores >= 1
    assert facts.tools["mount"].endswith("/mount")
    assert "127.0.0.1" not in facts.addresses
    assert facts.distribution


def test_only_addresses_that_others_can_reach_count() -> None:
    links = [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "scope": "host"}]},
        {
            "ifname": "eth0",
            "addr_info": [
                {"local": "10.77.0.1", "scope": "global"},
                {"local": "fe80::1", "scope": "link"},
                {"local": "fd00::1", "scope": "global", "tentative": True},
                {"local": "fd00::2", "scope": "global"},
            ],
        },
        {"ifname": "down"},
    ]
    assert parse_addresses(links) == ("10.77.0.1", "fd00::2")


def test_the_distribution_is_read_as_people_know_it() -> None:
    assert parse_os_release('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n') == "Debian GNU/Linux 12"
    assert parse_os_release("ID=alpine\n") == "alpine"
    assert parse_os_release("") == ""


async def test_without_the_program_the_address_towards_others_is_found() -> None:
    assert await addresses(FakeCommands()) == routed_address()


async def test_a_host_listens_on_its_own_addresses_and_on_no_others() -> None:
    assert can_listen_on("127.30.1.2")
    assert not can_listen_on("203.0.113.77")
    assert not can_listen_on("2001:db8::77")
    assert not can_listen_on("255.255.255.255")


def test_where_the_kernel_allows_every_address_none_is_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "4").write_text("1\n")
    monkeypatch.setattr("quartermaster.host.facts._FOREIGN", str(tmp_path / "{}"))
    assert not can_listen_on("0.0.0.0")
    assert can_listen_on("127.0.0.1")
