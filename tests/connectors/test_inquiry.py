"""What a LUN's answer to INQUIRY means: only one that refuses the question has no name, and only one has no LUN."""

import socket
import struct
from typing import Any

import pytest

from quartermaster.connectors.inquiry import Conversation, Refused

BUSY, TASK_SET_FULL, CHECK_CONDITION = 0x08, 0x28, 0x02
QUESTION: dict[str, Any] = {"lun": 1}


def answer(*, status: int, response: int = 0, sense: tuple[int, int] | None = None) -> bytes:
    data = b""
    if sense is not None:
        fixed = struct.pack(">BxB9xB5x", 0x70, *sense)
        data = struct.pack(">H", len(fixed)) + fixed
    header = struct.pack(">BBBBI40x", 0x21, 0x80, response, status, len(data))
    return header + data + bytes(-len(data) % 4)


def inquire(said: bytes) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        return Conversation(ours, QUESTION).inquire(page=0x83)


def test_a_lun_that_refuses_the_question_has_no_such_page() -> None:
    assert inquire(answer(status=CHECK_CONDITION, sense=(0x05, 0x24))) == b""


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer(status=CHECK_CONDITION, sense=(0x05, 0x25)), "absent"),
        (answer(status=BUSY), "busy"),
        (answer(status=TASK_SET_FULL), "busy"),
        (answer(status=CHECK_CONDITION, sense=(0x02, 0x04)), "busy"),
        (answer(status=0, response=1), "busy"),
    ],
    ids=["no LUN", "busy", "task set full", "not ready", "failure of the target"],
)
def test_a_lun_that_has_no_time_is_not_one_that_is_not_there(said: bytes, kind: str) -> None:
    with pytest.raises(Refused) as caught:
        inquire(said)
    assert caught.value.kind == kind
