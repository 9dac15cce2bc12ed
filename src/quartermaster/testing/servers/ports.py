"""Loopback ports that nobody else takes between the moment of choosing and the moment a server listens.

Asking the kernel for port 0 is not enough: the number comes from the range of outgoing connections, so any client may
hold it by the time a killed server wants it back. These ports lie below that range, and each is reserved by an
abstract Unix socket, which the kernel removes with the process and keeps apart between network namespaces.
"""

import os
import socket

from quartermaster.support.errors import QuartermasterError

FIRST_PORT = 20_000
LAST_PORT = 31_999


class NoFreePortError(QuartermasterError):
    """Every port of the range is taken."""

    reason = "NoFreePort"


class Ports:
    """A set of reserved ports; `release` gives them back."""

    def __init__(self) -> None:
        self._reservations: list[socket.socket] = []
        # Workers start at different places: they rarely have to step over each other's reservations.
        self._next = os.getpid() * 97

    def reserve(self) -> int:
        span = LAST_PORT - FIRST_PORT + 1
        for _ in range(span):
            port = FIRST_PORT + self._next % span
            self._next += 1
            if self._try(port):
                return port
        raise NoFreePortError(
            f"cannot reserve a port between {FIRST_PORT} and {LAST_PORT}", hint="stop servers that are left from before"
        )

    def release(self) -> None:
        while self._reservations:
            self._reservations.pop().close()

    def _try(self, port: int) -> bool:
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            reservation.bind(f"\0quartermaster-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            return False
        self._reservations.append(reservation)
        return True
