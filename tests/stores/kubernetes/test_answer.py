"""Reading an answer: every cut, every way to say where it ends, and what is refused."""

import math
import time
from collections.abc import Callable

import pytest

from quartermaster.stores.kubernetes.answer import (
    BODY_LIMIT,
    HEAD_LIMIT,
    Answer,
    AnswerReader,
    MalformedAnswerError,
)

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def read(data: bytes) -> Answer:
    answer = AnswerReader().feed(data)
    assert answer is not None
    return answer


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM], ids=["length", "chunks", "interim"])
def test_an_answer_is_the_same_wherever_it_is_cut(data: bytes) -> None:
    for cut in range(1, len(data)):
        reader = AnswerReader()
        assert reader.feed(data[:cut]) is None
        answer = reader.feed(data[cut:])
        assert answer is not None
        assert (answer.code, answer.body, answer.keeps) == (200, b"hello", True)
    reader = AnswerReader()
    answers = [reader.feed(data[at : at + 1]) for at in range(len(data))]
    assert answers[-1] == read(data)
    assert not any(answers[:-1])


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM], ids=["length", "chunks", "interim"])
def test_an_answer_that_breaks_off_is_none(data: bytes) -> None:
    for cut in range(len(data)):
        reader = AnswerReader()
        reader.feed(data[:cut])
        assert reader.end() is None


@pytest.mark.parametrize("code", [204, 304])
def test_some_answers_have_no_body(code: int) -> None:
    answer = read(b"HTTP/1.1 %d X\r\nContent-Length: 7\r\n\r\n" % code)
    assert (answer.code, answer.body, answer.keeps) == (code, b"", True)


def test_a_body_may_be_empty() -> None:
    assert read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").body == b""
    assert read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n").body == b""


def test_an_answer_without_a_length_lasts_until_the_server_hangs_up() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.0 502 Bad Gateway\r\n\r\nno ") is None
    assert reader.feed(b"backend") is None
    answer = reader.end()
    assert answer is not None
    assert (answer.code, answer.body, answer.keeps) == (502, b"no backend", False)


def test_names_of_headers_have_no_case_and_values_no_space_around_them() -> None:
    fields = read(b"HTTP/1.1 429 X\r\nRETRY-after: \t7 \r\nVia: a\r\nvia:b\r\nContent-Length: 0\r\n\r\n").fields
    assert (fields[b"retry-after"], fields[b"via"]) == (b"7", b"a, b")


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: Upgrade, Close\r\n", False),
        (b"1.1", b"Connection: keep-alive\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_who_keeps_the_connection(version: bytes, connection: bytes, keeps: bool) -> None:
    assert read(b"HTTP/%b 200 OK\r\n%bContent-Length: 0\r\n\r\n" % (version, connection)).keeps is keeps


def test_what_comes_after_the_end_ends_the_connection() -> None:
    for data in (PLAIN, CHUNKED):
        answer = read(data + b"HTTP/1.1 200")
        assert (answer.body, answer.keeps) == (b"hello", False)


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH_9.2",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 600 OK",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1  200 OK",
        b" HTTP/1.1 200 OK",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded: c",
        b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nA: \0",
        b"HTTP/1.1 200 OK\r\nnothing",
        b"HTTP/1.1 200 OK\r\n: nothing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5_0",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2",
        b"HTTP/1.1 200 OK\r\nContent-Length:",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d" % (BODY_LIMIT + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_a_head_that_can_be_misunderstood_is_refused(head: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        AnswerReader().feed(head + b"\r\n\r\nhello")


@pytest.mark.parametrize(
    "chunks",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\nhello",
        b"0x5\r\nhello\r\n",
        b"5\r\nhello!\r\n",
        b"5 5\r\nhello\r\n",
        b"%x\r\n" % (BODY_LIMIT + 1),
        b"5\r\nhello\r\n%x\r\n" % (BODY_LIMIT - 4),
        b"fffffffffffffffff\r\n",
        b"1;" + b"x" * 2000,
        b"1;" + b"x" * 2000 + b"\r\n",
    ],
)
def test_chunks_that_lie_are_refused(chunks: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        AnswerReader().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["endless", "ended"])
def test_a_head_without_bounds_is_not_waited_for(end: bytes) -> None:
    reader = AnswerReader()
    for piece in (b"HTTP/1.1 200 OK\r\nA: ", *[b"x" * 1000] * (HEAD_LIMIT // 1000)):
        assert reader.feed(piece) is None
    with pytest.raises(MalformedAnswerError, match="more than 65536 bytes"):
        reader.feed(b"x" * 1000 + end)


def test_a_trailer_without_bounds_is_not_waited_for() -> None:
    with pytest.raises(MalformedAnswerError, match="more than 65536 bytes"):
        AnswerReader().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x" * (HEAD_LIMIT + 1))
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    for _ in range(HEAD_LIMIT // 103):
        assert reader.feed(b"A: %b\r\n" % (b"x" * 100)) is None
    with pytest.raises(MalformedAnswerError, match="trailer"):
        reader.feed(b"A: %b\r\n" % (b"x" * 100))


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"100\r\n" + b"x" * 256 + b"\r\n"


def chunk_by_chunk(count: int) -> list[bytes]:
    return [CHUNKED_HEAD, *[CHUNK] * count, b"0\r\n\r\n"]


def many_chunks_at_once(count: int) -> list[bytes]:
    return [CHUNKED_HEAD + CHUNK * count + b"0\r\n\r\n"]


def one_body_in_pieces(count: int) -> list[bytes]:
    return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (256 * count), *[b"x" * 256] * count]


def cost_s(pieces: list[bytes], size: int) -> float:
    """Processor time of this process alone, the least of a few: others on the machine are not counted."""
    least = math.inf
    for _ in range(3):
        reader = AnswerReader()
        begin = time.process_time()
        answers = [reader.feed(piece) for piece in pieces]
        least = min(least, time.process_time() - begin)
        assert answers[:-1] == [None] * (len(pieces) - 1)
        assert answers[-1] is not None
        assert len(answers[-1].body) == size
    return least


@pytest.mark.slow
@pytest.mark.parametrize("arrives", [chunk_by_chunk, many_chunks_at_once, one_body_in_pieces])
def test_a_large_answer_takes_no_longer_per_byte(arrives: Callable[[int], list[bytes]]) -> None:
    """Eight times as large takes eight times as long; for a reader that copies what it has it is 64 times."""
    small, large = (cost_s(arrives(count), 256 * count) for count in (1_000, 8_000))
    assert large < 4 * 8 * small
