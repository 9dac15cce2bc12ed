"""The contender that is this library: calls come in as lines of JSON, all of a line are made at once."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from quartermaster.connectors import Connector, Roots, open_connector

CLIENTS = {"ISCSI": "kernel", "RBD": "kernel", "NFS": "kernel"}


@cache
def connector_for(root: Path, machine: str) -> Connector:
    """One is enough for a program."""
    return open_connector(
        directory=root / "state",
        mount_directory=root / "mounts",
        clients=CLIENTS,
        host="host",
        ip="192.0.2.7",
        machine=machine,
        # The table of mounts is the kernel's own of each process, and cannot be moved by a mount.
        roots=Roots(proc=root / "proc", modules=root / "modules"),
    )


async def make(root: Path, call: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(call["after_s"])
    info = {"driver_volume_type": call["type"], "data": call["data"]}
    value, error = "", ""
    began = time.monotonic()
    try:
        connector = connector_for(root, call["machine"])
        if call["verb"] == "connect":
            value = (await connector.connect(info, timeout_s=call["timeout_s"])).path
        else:
            value = await connector.disconnect(info, force=call["force"], timeout_s=call["timeout_s"])
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    return {"value": value, "error": error, "began_s": began, "ended_s": time.monotonic()}


async def serve(root: Path) -> None:
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        calls = json.loads(line)
        print(json.dumps(await asyncio.gather(*(make(root, call) for call in calls))), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
