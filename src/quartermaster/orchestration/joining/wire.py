"""What is said between a host that joins and the leader: two requests over HTTPS, small enough to be read whole.

GET  /v1/authority → Greeting     anybody may ask; the token's fingerprint tells whether to believe it
POST /v1/join      → Welcome      with a Request; else a Refusal
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import msgspec

from quartermaster.support.errors import UnavailableError

PORT = 7743
AUTHORITY_PATH = "/v1/authority"
JOIN_PATH = "/v1/join"
LARGEST_BYTES = 64 << 10
ANSWER_S = 20.0


class Greeting(msgspec.Struct, frozen=True):
    authority: str  # its certificate in PEM


class Request(msgspec.Struct, frozen=True, kw_only=True):
    token: str  # its id
    secret: str
    host: str
    addresses: tuple[str, ...]
    request: str  # for a certificate, in PEM

    def __repr__(self) -> str:
        return f"Request({self.host})"


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    namespace: str
    joined: str
    endpoints: tuple[str, ...]
    certificate: str
    profile: str
    not_before: float
    not_after: float


class Refusal(msgspec.Struct, frozen=True):
    reason: str
    message: str
    hint: str = ""


class Message(msgspec.Struct, frozen=True):
    """An HTTP message: its first line, taken apart, and its body."""

    start: tuple[str, str, str]
    body: bytes


async def read_message(reader: asyncio.StreamReader) -> Message:
    """ValueError for anything that is not a small HTTP/1.1 message."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ValueError("not a small HTTP message") from error
    first, *lines = head.split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 3:
        raise ValueError("not HTTP")
    length = 0
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-length":
            length = int(value)
    if not 0 <= length <= LARGEST_BYTES:
        raise ValueError("too long")
    try:
        body = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ValueError("cut off") from error
    return Message((words[0], words[1], words[2]), body)


def request_bytes(method: str, path: str, host: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("latin-1") + body


def response_bytes(status: HTTPStatus, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("latin-1") + body


def status_of(message: Message) -> int:
    try:
        return int(message.start[1])
    except ValueError as error:
        raise UnavailableError("cannot understand the answer: it is not HTTP") from error
