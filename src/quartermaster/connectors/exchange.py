"""One request to a storage system's own server, made by a program of its own: this file, with nothing but the standard
library.

A request that changes something is work like any other that a killed connector may leave behind. As a program it
carries the mark by which whoever takes over waits for its end, and it cannot hold the loop. What to ask comes by
standard input, so a password in it is in no argument list.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
from typing import Any

_MOST = 1 << 20


def exchange(question: dict[str, Any]) -> dict[str, Any]:
    """`{"status", "body"}` of HTTP, `{"raw"}` of plain TCP, or `{"problem", "kind"}`."""
    try:
        return _plain(question) if "raw" in question else _http(question)
    except ssl.SSLCertVerificationError as error:
        return {"kind": "certificate", "problem": error.verify_message or "its certificate is not trusted"}
    except TimeoutError:
        return {"kind": "unreachable", "problem": "it did not answer in time"}
    except (OSError, http.client.HTTPException) as error:
        return {"kind": "unreachable", "problem": str(getattr(error, "strerror", "") or error or type(error).__name__)}


def _http(question: dict[str, Any]) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=question.get("authority") or None)
    if not question["verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        question["host"], question["port"], timeout=question["timeout_s"], context=context
    )
    try:
        connection.request(question["method"], question["path"], question.get("body"), question["headers"])
        answer = connection.getresponse()
        return {"status": answer.status, "body": answer.read(_MOST).decode(errors="replace")}
    finally:
        connection.close()


def _plain(question: dict[str, Any]) -> dict[str, Any]:
    address = (question["host"], question["port"])
    with socket.create_connection(address, timeout=question["timeout_s"]) as connection:
        connection.sendall(bytes.fromhex(question["raw"]))
        found = b""
        while len(found) < question["expect"]:
            part = connection.recv(question["expect"] - len(found))
            if not part:
                return {"kind": "unreachable", "problem": "it closed the connection without an answer"}
            found += part
        return {"raw": found.hex()}


def main() -> None:
    json.dump(exchange(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
