"""What a program of a fake host answers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bench.connectors.kernel import Kernel


class Answer(msgspec.Struct, frozen=True):
    """`then` is what the program does itself, in the namespace of its caller."""

    code: int = 0
    out: bytes = b""
    err: bytes = b""
    then: tuple[str, ...] = ()


Program = Callable[[Kernel, list[str], str], Answer]


def said(text: str) -> Answer:
    return Answer(out=text.encode())


def failed(code: int, text: str) -> Answer:
    return Answer(code, err=text.encode())
