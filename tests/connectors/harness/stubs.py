"""Servers that drivers talk to, in a process of their own: a killed or stopped connector does not stop them.

Each request is one step of the world and can go wrong as a program can: no answer, or an answer that is an error after
the effect.
"""

from __future__ import annotations

import os
import signal
import socketserver
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.connectors.harness.world import FAIL_AFTER, FAIL_BEFORE, World

HttpHandler = Callable[[World, str, str, dict[str, str], bytes], tuple[int, bytes]]
"""World, method, path, headers, body → status, body."""
TcpHandler = Callable[[World, bytes], bytes]


@contextmanager
def serve_http(
    world: World, handler: HttpHandler, *, fact: str = "http_port", tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """The port; it is the fact of that name as well. With `tls` it is HTTPS."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            world.log({"http": f"{self.command} {self.path}", "body": body.decode(errors="replace")})
            with world.step(f"{self.command} {self.path}") as how:
                if how == FAIL_BEFORE:
                    return
                status, answer = handler(world, self.command, self.path, dict(self.headers), body)
                if how == FAIL_AFTER:
                    status, answer = 500, b"{}"
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

        def log_message(self, *_arguments: Any) -> None:
            return

    yield from _serve(world, Handler, fact, tls)


@contextmanager
def serve_tcp(world: World, handler: TcpHandler, *, size: int, fact: str = "tcp_port") -> Iterator[int]:
    """Requests of `size` bytes each."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(request := self.rfile.read(size)) == size:
                world.log({"tcp": request.hex()})
                with world.step(f"request {request.hex()}") as how:
                    if how == FAIL_BEFORE:
                        return
                    answer = handler(world, request)
                    if how == FAIL_AFTER:
                        return
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(answer)

    yield from _serve(world, Handler, fact)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def _serve(world: World, handler: Any, fact: str, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    pid = os.fork()
    if pid == 0:
        try:
            server.serve_forever(poll_interval=0.05)
        finally:
            os._exit(0)
    server.server_close()
    port = int(server.server_address[1])
    world.set_fact(fact, port)
    try:
        yield port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
