"""What the real gluster 10.3 answered, as recorded, is read as it was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.backends.glusterfs import parsing
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host.commands import Command, Result
from quartermaster.host.fake import FakeCommands
from quartermaster.support.errors import HostError

RECORDED = Path(__file__).parent / "recorded"


def answer(name: str) -> parsing.Answer:
    return parsing.read_answer((RECORDED / f"{name}.xml").read_bytes(), "ask")


def test_the_host_that_was_asked_is_a_member_of_its_pool() -> None:
    peers = parsing.peers_of(answer("pool"))
    assert [(peer.name, peer.local, peer.serves) for peer in peers] == [
        ("192.0.2.2", False, True),
        ("192.0.2.3", False, True),
        ("localhost", True, True),
    ]
    assert len({peer.uuid for peer in peers}) == 3


def test_a_host_that_is_down_is_a_member_that_does_not_serve() -> None:
    assert [peer.name for peer in parsing.peers_of(answer("pool-one-down")) if not peer.serves] == ["192.0.2.3"]


def test_who_uses_a_volume_is_told_from_the_daemons_of_gluster() -> None:
    text = (RECORDED / "client-list.txt").read_text()
    assert parsing.clients_of(text, "ask") == {"glustershd": 1, "quotad": 1, "fuse": 1}
    with pytest.raises(HostError, match="gluster answered something else: volume status: failed"):
        parsing.clients_of("volume status: failed", "ask")


def test_a_volume_has_its_bricks_in_order_and_its_options() -> None:
    (volume,) = parsing.volumes_of(answer("info"))
    assert (volume.name, volume.started, volume.replica, volume.disperse) == ("v1", True, 3, 0)
    assert [brick.name for brick in volume.bricks] == [f"192.0.2.{n}:/var/lib/b/v1" for n in (1, 2, 3)]
    assert volume.options["user.quartermaster.owner"] == "default/default"


def test_a_pool_without_volumes_has_none() -> None:
    assert parsing.volumes_of(answer("info-no-volumes")) == ()
    assert parsing.online_bricks(answer("status-no-volumes")) == {}


def test_of_a_status_only_bricks_count_and_only_those_that_run() -> None:
    assert len(parsing.online_bricks(answer("status"))["v1"]) == 3
    assert parsing.online_bricks(answer("status-one-down")) == {
        "v1": {"192.0.2.1:/var/lib/b/v1": "147:59827", "192.0.2.2:/var/lib/b/v1": "84:55470"}
    }


def test_a_brick_that_does_not_answer_has_no_count() -> None:
    bricks = parsing.volumes_of(answer("info"))[0].bricks
    assert [(one.connected, one.pending) for one in parsing.heal_counts(answer("heal"), bricks)] == [(True, 0)] * 3
    counts = parsing.heal_counts(answer("heal-one-down"), bricks)
    assert [one.connected for one in counts] == [True, True, False]
    assert all(one.pending > 0 for one in counts[:2])


def test_a_brick_that_is_not_listed_or_has_no_number_has_not_answered() -> None:
    bricks = parsing.volumes_of(answer("info"))[0].bricks
    assert [one.connected for one in parsing.heal_counts(answer("split-brain"), bricks)] == [False] * 3
    nothing = parsing.read_answer(b"<cliOutput><healInfo><bricks/></healInfo><opRet>0</opRet></cliOutput>", "ask")
    assert [one.connected for one in parsing.heal_counts(nothing, bricks)] == [False] * 3
    assert [one.brick for one in parsing.heal_counts(nothing, bricks)] == [brick.name for brick in bricks]


def test_no_file_is_split_where_none_is_listed() -> None:
    assert parsing.split_files(answer("split-brain")) == ()


def test_split_files_are_named_once_by_their_path_or_by_gluster_own_name() -> None:
    bricks = parsing.volumes_of(answer("info"))[0].bricks
    assert [one.split_brain for one in parsing.heal_counts(answer("heal-split"), bricks)] == [2, 2, 0]
    assert parsing.split_files(answer("split-brain-files")) == (
        "/report & notes.txt",
        "<gfid:4c1d6c0a-5f0b-4d6d-9d0c-0a5be2b1f6a2>",
    )


def test_the_limit_is_in_bytes() -> None:
    (limit,) = parsing.quota_limits(answer("quota"))
    assert (limit.path, limit.limit) == ("/", 209715200)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unknown-volume", "does not exist"),
        ("detach-refused", "hosts one or more bricks"),
        ("delete-peer-down", "peers are down"),
    ],
)
def test_a_refusal_is_told_in_the_words_of_gluster(name: str, words: str) -> None:
    refused = answer(name)
    assert refused.failed
    assert words in refused.error


def test_an_answer_that_does_not_say_whether_it_was_done_is_an_error() -> None:
    with pytest.raises(HostError, match="does not say whether"):
        parsing.read_answer(b"<cliOutput><volInfo><volumes/></volInfo></cliOutput>", "ask")


async def test_the_status_of_thousands_of_volumes_is_read_and_one_that_was_cut_off_is_told_as_such() -> None:
    text = (RECORDED / "status.xml").read_text()
    begin, end = text.index("      <volume>"), text.index("</volume>") + len("</volume>\n")
    many = "".join(text[begin:end].replace(">v1<", f">v{number}<") for number in range(3000))

    def answered(command: Command) -> Result:
        whole = f"{text[:begin]}{many}{text[end:]}".encode()
        return Result(stdout=whole[: command.output_limit], truncated=len(whole) > command.output_limit)

    def cut_off(_: Command) -> Result:
        return Result(stdout=text.encode()[:500], truncated=True)

    commands = FakeCommands()
    commands.handle("gluster", handler=answered)
    assert len(await Gluster(commands).online(())) == 3000
    commands.handle("gluster", handler=cut_off)
    with pytest.raises(HostError, match="cannot ask for the bricks: the answer of gluster is cut off after 64 MiB"):
        await Gluster(commands).online(())


def test_what_is_no_xml_is_an_error_that_shows_it() -> None:
    with pytest.raises(HostError, match="Connection failed"):
        parsing.read_answer(b"Connection failed. Please check if gluster daemon is operational.\n", "ask")
