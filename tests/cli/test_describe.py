"""`qm describe`: everything about an object, in words."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from quartermaster.resources import Condition, Event, ObjectMeta, ObjectReference, StorageNode
from quartermaster.stores import open_store
from quartermaster.support import clock
from tests.cli.conftest import SEED, Cli

Write = Callable[[str, str], Path]


def test_fields_are_words_and_lists_stand_below_each_other(cli: Cli) -> None:
    cli("apply", "-f", SEED)
    shown = cli("describe", "sn", "storage-node1").out
    assert shown.startswith("Name:         storage-node1\nNamespace:    default\nLabels:       <none>\n")
    assert "  Node Selector:\n    kubernetes.io/hostname:  storage-node1\n" in shown
    assert "  Storage Network:\n    IPs:\n      - 10.10.10.100\n" in shown
    assert "  Devices:\n    - /dev/vdb\n    - /dev/vdc\n" in shown
    assert shown.endswith("Events:       <none>\n")


def test_conditions_and_events_are_tables(cli: Cli, home: Path) -> None:
    cli("apply", "-f", SEED)

    async def happen() -> None:
        store = await open_store(f"sqlite:{home}/.local/state/quartermaster/store.db")
        node = await store.get(StorageNode, "storage-node1", "default")
        now = clock.timestamp()
        condition = Condition(
            type="Ready", status="False", reason="NoHost", message="no host", last_transition_time=now
        )
        status = msgspec.structs.replace(node.status, conditions=(condition,))
        await store.update_status(msgspec.structs.replace(node, status=status))
        about = ObjectReference(kind="StorageNode", name="storage-node1", namespace="default", uid=node.metadata.uid)
        event = Event(
            metadata=ObjectMeta(name="e", namespace="default"),
            involved_object=about,
            type="Warning",
            reason="NoHost",
            message="no host has these labels",
            first_timestamp=now,
            last_timestamp=now,
            count=3,
        )
        await store.create(event)
        await store.close()

    asyncio.run(happen())
    shown = cli("describe", "sn/storage-node1").out
    assert "  Conditions:\n    TYPE    STATUS   REASON   SINCE" in shown
    assert "Events:\n  TYPE      REASON" in shown
    assert "no host has these labels" in shown
    assert "(x3 over " in shown
    assert "Events" not in cli("describe", "sn/storage-node1", "--no-events").out


def test_a_secret_shows_sizes_only(cli: Cli, write: Write) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter22}\n"
    cli("apply", "-f", write("s.yaml", secret))
    shown = cli("describe", "secret", "s").out
    assert "bytes" in shown
    assert "aHVudGVyMjI" not in shown


def test_all_of_a_kind_are_described_one_after_the_other(cli: Cli, write: Write) -> None:
    cli("apply", "-f", SEED, "-f", write("b.yaml", SEED.read_text().replace("storage-node1", "b")))
    assert cli("describe", "sn").out.count("Name:") == 2
    assert cli("describe", "cm").err == "No resources found in default namespace.\n"


def test_a_name_that_is_not_there_is_an_error(cli: Cli) -> None:
    cli("apply", "-f", SEED)
    result = cli("describe", "sn", "nothing")
    assert (result.code, result.err) == (1, 'error: cannot find storagenode "default/nothing"\n')
