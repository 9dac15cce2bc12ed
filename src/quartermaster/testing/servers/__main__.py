"""Keeps one server running in the foreground and writes how to reach it into a file.

    python -m quartermaster.testing.servers kubernetes --directory /tmp/kubernetes --access-file /tmp/access.json

A test run with several workers starts its shared servers this way: no worker owns them, and they end with the process
named by --while-pid even if that is killed.
"""

import argparse
import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from quartermaster.support.errors import QuartermasterError

from .etcd import EtcdAccess, EtcdCluster
from .kubernetes import KubernetesAccess, KubernetesServer


async def start(arguments: argparse.Namespace, stack: AsyncExitStack) -> EtcdAccess | KubernetesAccess:
    directory: Path = arguments.directory
    if arguments.server == "etcd":
        cluster = EtcdCluster(directory, size=arguments.size, version=arguments.version)
        return (await stack.enter_async_context(cluster)).access
    server = KubernetesServer(
        directory, controller_manager=arguments.controller_manager, manifests=arguments.apply or ()
    )
    return (await stack.enter_async_context(server)).access


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        access = await start(arguments, stack)
        # Readers poll for the file: it appears whole or not at all.
        staged = arguments.access_file.with_suffix(".part")
        staged.write_bytes(msgspec.json.encode(access))
        staged.rename(arguments.access_file)
        while not ended.is_set() and (arguments.while_pid is None or process_exists(arguments.while_pid)):
            try:
                await asyncio.wait_for(ended.wait(), 0.5)
            except TimeoutError:
                continue


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quartermaster.testing.servers")
    parser.add_argument("server", choices=["etcd", "kubernetes"])
    parser.add_argument("--directory", type=Path, required=True, help="data, certificates and logs")
    parser.add_argument("--access-file", type=Path, required=True, help="written when the server is ready")
    parser.add_argument("--while-pid", type=int, help="end when this process is gone")
    parser.add_argument("--size", type=int, default=3, help="members of etcd")
    parser.add_argument("--version", default="3.6", help="minor version of etcd")
    parser.add_argument("--controller-manager", action="store_true", help="with garbage collection")
    parser.add_argument("--apply", action="append", help="a file to apply to Kubernetes once it is ready")
    arguments = parser.parse_args()
    arguments.directory = arguments.directory.resolve()
    try:
        asyncio.run(serve(arguments))
    except QuartermasterError as error:
        sys.exit(str(error))


main()
