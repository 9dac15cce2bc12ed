"""One HTTP/1.1 answer out of the pieces in which it arrives: a strict reader that does no I/O.

What could be understood in two ways is refused, and the connection with it: a body is worth nothing when nobody can
say where it ends. Interim answers (1xx) are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

HEAD_LIMIT = 64 << 10
BODY_LIMIT = 1 << 30  # a list of everything in one piece
_CHUNK_LINE_LIMIT = 1 << 10
_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n\0]*+)?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\r\n\0]*+\r\n)*+)\r\n"
)
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_WITHOUT_BODY = (204, 304)


class MalformedAnswerError(Exception):
    """What came is not HTTP, or more of it than anybody wants."""


class Answer(NamedTuple):
    code: int
    fields: dict[bytes, bytes]  # names in lower case; of several with one name their values, joined with commas
    body: bytes
    keeps: bool  # the connection may carry the next request


class AnswerReader:
    """Feed it until it returns the answer."""

    __slots__ = ("_buffer", "_code", "_fields", "_keeps", "_length", "_pieces", "_searched", "_size", "_step", "_whole")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._step: Callable[[], bool] = self._read_head
        self._whole = False
        self._code = 0
        self._fields: dict[bytes, bytes] = {}
        self._keeps = False
        self._length = 0  # of the body, of a chunk, of the trailer so far
        self._pieces: list[bytes] = []
        self._size = 0  # of the pieces

    def feed(self, data: bytes) -> Answer | None:
        """The answer once it is whole. What comes after its end was not asked for, and ends the connection."""
        self._buffer += data
        while not self._whole:
            if not self._step():
                return None
        return Answer(self._code, self._fields, b"".join(self._pieces), self._keeps and not self._buffer)

    def end(self) -> Answer | None:
        """The other side has hung up. Only an answer that says no length is whole by that."""
        if self._step != self._read_until_end:
            return None
        return Answer(self._code, self._fields, bytes(self._buffer), keeps=False)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", self._searched)
        if end > HEAD_LIMIT or (end < 0 and len(self._buffer) > HEAD_LIMIT):
            raise MalformedAnswerError(f"the head of the answer has more than {HEAD_LIMIT} bytes")
        if end < 0:
            self._searched = max(0, len(self._buffer) - 3)
            return False
        found = _HEAD.fullmatch(self._buffer[: end + 4])
        if found is None:
            raise MalformedAnswerError("the answer is not HTTP/1.1")
        del self._buffer[: end + 4]
        self._searched = 0
        self._code = int(found[2])
        self._fields = _fields(found[3])
        if self._code >= 200:
            self._keeps = _keeps(found[1] == b"1", self._fields)
            self._expect_body()
        elif self._code == 101:
            raise MalformedAnswerError("the server wants to speak another protocol")
        return True

    def _expect_body(self) -> None:
        coding, length = self._fields.get(b"transfer-encoding"), self._fields.get(b"content-length")
        if self._code in _WITHOUT_BODY:
            self._whole = True
        elif coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise MalformedAnswerError("the answer does not say clearly where it ends")
            self._step = self._read_chunk_line
        elif length is not None:
            if _LENGTH.fullmatch(length) is None:
                raise MalformedAnswerError("the answer does not say clearly where it ends")
            self._length = _within_limit(int(length))
            self._step = self._read_length
        else:
            self._keeps = False
            self._step = self._read_until_end

    def _read_length(self) -> bool:
        if len(self._buffer) < self._length:
            return False
        self._take(self._length)
        self._whole = True
        return True

    def _read_until_end(self) -> bool:
        _within_limit(len(self._buffer))
        return False

    def _read_chunk_line(self) -> bool:
        line = self._line(_CHUNK_LINE_LIMIT)
        if line is None:
            return False
        found = _CHUNK_LINE.fullmatch(line)
        if found is None:
            raise MalformedAnswerError("a chunk of the answer has no length")
        self._length = int(found[1], 16)
        _within_limit(self._length + self._size)
        self._step = self._read_chunk if self._length else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        end = self._length
        if len(self._buffer) < end + 2:
            return False
        if self._buffer[end : end + 2] != b"\r\n":
            raise MalformedAnswerError("a chunk of the answer is longer than it says")
        self._take(end)
        del self._buffer[:2]
        self._step = self._read_chunk_line
        return True

    def _read_trailer(self) -> bool:
        line = self._line(HEAD_LIMIT)
        if line is None:
            return False
        self._length += len(line)
        if self._length > HEAD_LIMIT:
            raise MalformedAnswerError(f"the trailer of the answer has more than {HEAD_LIMIT} bytes")
        self._whole = not line
        return True

    def _take(self, size: int) -> None:
        self._pieces.append(bytes(self._buffer[:size]))
        self._size += size
        del self._buffer[:size]

    def _line(self, limit: int) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, limit + 2)
        if end < 0:
            if len(self._buffer) > limit:
                raise MalformedAnswerError(f"a line of the answer has more than {limit} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line


def _fields(lines: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        fields[name] = fields[name] + b", " + value if name in fields else value
    return fields


def _keeps(current: bool, fields: dict[bytes, bytes]) -> bool:
    """HTTP/1.1 keeps a connection unless it says otherwise, 1.0 only if it says so."""
    words = fields.get(b"connection")
    if words is None:
        return current
    options = [word.strip() for word in words.lower().split(b",")]
    return b"close" not in options and (current or b"keep-alive" in options)


def _within_limit(size: int) -> int:
    if size > BODY_LIMIT:
        raise MalformedAnswerError(f"the answer has more than {BODY_LIMIT} bytes")
    return size
