"""The servers of ScaleIO and DISCO, as far as connecting needs them."""

from __future__ import annotations

import base64
import json
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import trustme

from tests.connectors.harness.case import CANARY
from tests.connectors.harness.stubs import serve_http, serve_tcp
from tests.connectors.harness.world import World

TOKEN = f"token-of-{CANARY}"
CLUSTER = "2db9f0ab1d2c3e4f"
SILENT_S = 120
NAMES = {"volume%2Fone": "3bd1f78800000019"}


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@contextmanager
def gateway(world: World) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1").configure_cert(context)
    with serve_http(world, answer, tls=context) as port:
        yield port


def answer(world: World, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    if path.rpartition("/")[2] in world.fact("silent", []):
        time.sleep(SILENT_S)
    given = base64.b64decode(headers.get("Authorization", "").removeprefix("Basic ")).decode()
    if path == "/api/login":
        return (200, json.dumps(TOKEN).encode()) if given == f"admin:{CANARY}" else (401, b"{}")
    if given != f"admin:{TOKEN}":
        return 401, b"{}"
    name = path.rpartition("getByName::")[2]
    if method == "GET":
        found = NAMES.get(name.replace("%25", "%"))
        return (200, json.dumps(found).encode()) if found else failure(79, "Could not find the volume")
    volume, _, action = path.rpartition("Volume::")[2].partition("/action/")
    return act(world, volume, action, json.loads(body))


def act(world: World, volume: str, action: str, body: dict[str, str]) -> tuple[int, bytes]:
    link = world.path(f"dev/disk/by-id/emc-vol-{CLUSTER}-{volume}")
    if action == "addMappedSdc":
        if link.is_symlink():
            return failure(81, "The volume is already mapped to this SDC")
        node = world.add_device("scinia")
        link.symlink_to(node)
    elif action == "removeMappedSdc":
        if not link.is_symlink():
            return failure(84, "The volume is not mapped to this SDC")
        link.unlink()
        world.drop_device("scinia")
    elif not link.is_symlink():
        return failure(84, "The volume is not mapped to this SDC")
    return 200, b"{}"


def failure(code: int, message: str) -> tuple[int, bytes]:
    return 500, json.dumps({"message": message, "httpStatusCode": 500, "errorCode": code}).encode()


@contextmanager
def disco(world: World) -> Iterator[int]:
    with serve_tcp(world, disco_answer, size=26) as port:
        yield port


def disco_answer(world: World, request: bytes) -> bytes:
    length, operation, number, instance = struct.unpack("!HHQ14s", request)
    node = world.path(f"dev/dms{number}")
    if (length, instance) != (24, b"DEFAULT-INSTID") or number in world.fact("unknown", []):
        return b"\0\0\0\x05"
    if operation == 1:
        world.add_device(node.name)
        return b"\0\0\0\0"
    there = node.exists()
    world.drop_device(node.name)
    return b"\0\0\0\0" if there else b"\0\0\0\x02"
