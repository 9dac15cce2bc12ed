"""Asks an iSCSI target what a LUN is, as a program of its own: this file, with nothing but the standard library.

Where the kernel has no SCSI, nobody on this host can be asked what is behind a LUN: qemu-storage-daemon passes no
command through. So this logs in for a moment, sends INQUIRY, and goes. What to ask comes by standard input, so a
password in it is in no argument list; and a target that does not answer holds up a child, not the loop.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import sys
from typing import Any

_LOGIN, _COMMAND, _LOGOUT = 0x43, 0x01, 0x46
_LOGIN_ANSWER, _SCSI_ANSWER, _DATA_IN = 0x23, 0x21, 0x25
_SECURITY, _OPERATIONAL, _FULL = 0, 1, 3
_TRANSIT = 0x80
_NO_TAG = 0xFFFFFFFF
_IDENTIFICATION = 0x83
_ROOM = 4096
_MOST_STEPS = 16
_MOST_HOPS = 3
_MD5 = "5"
_GOOD, _CHECK_CONDITION = 0x00, 0x02
_ILLEGAL_REQUEST, _NO_SUCH_LUN = 0x05, 0x25  # a sense key, and an additional code
_DISKS = (0x00, 0x04, 0x05, 0x07, 0x0E, 0x14)  # peripheral device types that have blocks
_KEYS = {
    "HeaderDigest": "None",
    "DataDigest": "None",
    "InitialR2T": "Yes",
    "ImmediateData": "No",
    "MaxRecvDataSegmentLength": "65536",
    "MaxBurstLength": "262144",
    "FirstBurstLength": "65536",
    "MaxConnections": "1",
    "MaxOutstandingR2T": "1",
    "DefaultTime2Wait": "0",
    "DefaultTime2Retain": "0",
    "ErrorRecoveryLevel": "0",
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
}


class Refused(Exception):  # noqa: N818 - it is an answer
    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class Moved(Exception):  # noqa: N818 - it is an answer
    """The target is to be found at another address."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port}")
        self.host = host
        self.port = port


class Conversation:
    """One session, from its login to its end."""

    def __init__(self, connection: socket.socket, question: dict[str, Any]) -> None:
        self._connection = connection
        self._question = question
        self._status_number = 0
        self._command_number = 1

    def log_in(self) -> None:
        names = {
            "InitiatorName": self._question["initiator"],
            "TargetName": self._question["iqn"],
            "SessionType": "Normal",
            "AuthMethod": "CHAP,None" if self._question["user"] else "None",
        }
        stage, keys = _SECURITY, names
        offered = False
        for _ in range(_MOST_STEPS):
            flags, told = self._negotiate(stage, keys)
            if flags & _TRANSIT:
                stage = flags & 0x03
            if stage == _FULL:
                return
            if "CHAP_C" in told:
                keys = self._chap(told)
            elif stage == _SECURITY and told.get("AuthMethod") == "CHAP":
                keys = {"CHAP_A": _MD5}
            elif stage == _OPERATIONAL and not offered:
                keys, offered = dict(_KEYS), True
            else:
                keys = {}
        raise Refused("answer", "its login does not end")

    def inquire(self, *, page: int | None) -> bytes:
        """What the LUN says of itself; nothing for a page that it does not have."""
        code, number = (0, 0) if page is None else (1, page)
        block = struct.pack(">BBBHB10x", 0x12, code, number, _ROOM, 0)
        lun = self._question["lun"]
        address = struct.pack(">H6x", lun if lun < 256 else 0x4000 | lun)
        header = struct.pack(
            ">BB2x4x8sIIII16s", _COMMAND, 0xC1, address, 7, _ROOM, self._command_number, self._status_number, block
        )
        self._connection.sendall(header)
        self._command_number += 1
        found = b""
        while True:
            answer, data = self._receive()
            kind = answer[0] & 0x3F
            if kind == _DATA_IN:
                found += data
                if answer[1] & 0x01:  # the status comes with the last data
                    return _judged(found, response=0, status=answer[3], sense=b"")
            elif kind == _SCSI_ANSWER:
                return _judged(found, response=answer[2], status=answer[3], sense=data[2:])

    def log_out(self) -> None:
        header = struct.pack(">BB2x4x8xIH2xII16x", _LOGOUT, 0x80, 8, 0, self._command_number, self._status_number)
        self._connection.sendall(header)
        self._receive()

    def _negotiate(self, stage: int, keys: dict[str, str]) -> tuple[int, dict[str, str]]:
        """One step of the login: the flags of the answer, and its keys."""
        # A CHAP exchange stays where it is until the response to the challenge has been given.
        ready = "CHAP_A" not in keys
        following = _OPERATIONAL if stage == _SECURITY else _FULL
        flags = (_TRANSIT | stage << 2 | following) if ready else stage << 2
        data = b"".join(f"{key}={value}".encode() + b"\0" for key, value in keys.items())
        header = struct.pack(
            ">BBBBI6sHIH2xII16x",
            *(_LOGIN, flags, 0, 0, len(data), bytes.fromhex(self._question["isid"]), 0, 1, 0),
            *(self._command_number, self._status_number),
        )
        self._connection.sendall(header + data + bytes(-len(data) % 4))
        answer, text = self._receive()
        if answer[0] & 0x3F != _LOGIN_ANSWER:
            raise Refused("answer", "it does not speak iSCSI")
        told = _pairs(text)
        self._refuse(answer[36], answer[37], told)
        return answer[1], told

    def _refuse(self, status: int, detail: int, told: dict[str, str]) -> None:
        match status, detail:
            case 0, _:
                return
            case 1, _:
                host, _, port = told.get("TargetAddress", "").partition(",")[0].rpartition(":")
                if host and port.isdecimal():
                    raise Moved(host.strip("[]"), int(port))
                raise Refused("answer", "it names no address to which the target has moved")
            case 2, 1 | 2:
                raise Refused("authentication", "the target refuses the user, its password or this initiator")
            case 2, 3:
                raise Refused("absent", "there is no such target at this portal")
            case 3, _:
                raise Refused("busy", f"the target cannot serve a login now (status {status:02x}{detail:02x})")
            case _:
                raise Refused("answer", f"the target refuses the login (status {status:02x}{detail:02x})")

    def _chap(self, told: dict[str, str]) -> dict[str, str]:
        if told.get("CHAP_A") != _MD5:
            raise Refused("answer", "the target wants another algorithm of CHAP than MD5")
        challenge = _binary(told["CHAP_C"])
        text = bytes([int(told.get("CHAP_I", "0"), 0)]) + self._question["password"].encode() + challenge
        response = hashlib.md5(text, usedforsecurity=False).hexdigest()
        return {"CHAP_N": self._question["user"], "CHAP_R": f"0x{response}"}

    def _receive(self) -> tuple[bytes, bytes]:
        header = self._exactly(48)
        extra, length = header[4] * 4, int.from_bytes(header[5:8], "big")
        rest = self._exactly(extra + length + -length % 4)
        if header[0] & 0x3F in (_LOGIN_ANSWER, _SCSI_ANSWER) or (header[0] & 0x3F == _DATA_IN and header[1] & 0x01):
            self._status_number = (int.from_bytes(header[24:28], "big") + 1) & 0xFFFFFFFF
        return header, rest[extra : extra + length]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self._connection.recv(count - len(found))
            if not part:
                raise Refused("unreachable", "it closed the connection")
            found += part
        return found


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """`{"page": hexadecimal}`, empty where the LUN has none; or `{"kind", "problem"}`."""
    host, port = question["host"], question["port"]
    try:
        for _ in range(_MOST_HOPS):
            try:
                return {"page": _ask_at(host, port, question).hex()}
            except Moved as moved:
                host, port = moved.host, moved.port
    except Refused as error:
        return {"kind": error.kind, "problem": str(error)}
    except TimeoutError:
        return {"kind": "unreachable", "problem": "it did not answer in time"}
    except OSError as error:
        return {"kind": "unreachable", "problem": str(error.strerror or error)}
    except (ValueError, KeyError, IndexError, struct.error):
        return {"kind": "answer", "problem": "it answers with something that is not iSCSI"}
    return {"kind": "answer", "problem": "it sends from one address to the next"}


def _ask_at(host: str, port: int, question: dict[str, Any]) -> bytes:
    with socket.create_connection((host, port), timeout=question["timeout_s"]) as connection:
        conversation = Conversation(connection, question)
        conversation.log_in()
        plain = conversation.inquire(page=None)
        if not plain or plain[0] >> 5 == 3:
            raise Refused("absent", "the target has no such LUN")
        if plain[0] & 0x1F not in _DISKS:
            raise Refused("absent", "it is no disk, but a device of the target itself")
        page = conversation.inquire(page=_IDENTIFICATION)
        conversation.log_out()
        return page


def _judged(found: bytes, *, response: int, status: int, sense: bytes) -> bytes:
    """What was found; nothing where the LUN refuses the question. One that is busy has said nothing of itself."""
    if response == 0 and status == _GOOD:
        return found
    key, code = _sense(sense)
    if code == _NO_SUCH_LUN:
        raise Refused("absent", "the target has no such LUN")
    if response == 0 and status == _CHECK_CONDITION and key == _ILLEGAL_REQUEST:
        return b""
    raise Refused("busy", f"the LUN cannot say now what it is (response {response:02x}, status {status:02x})")


def _pairs(data: bytes) -> dict[str, str]:
    words = [word.partition("=") for word in data.decode(errors="replace").split("\0") if word]
    return {key: value for key, _, value in words}


def _binary(text: str) -> bytes:
    if text[:2].lower() == "0b":
        return base64.b64decode(text[2:])
    digits = text[2:] if text[:2].lower() == "0x" else text
    return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))


def _sense(data: bytes) -> tuple[int, int]:
    """The key, and the additional code."""
    if len(data) > 2 and data[0] & 0x7F in (0x72, 0x73):
        return data[1] & 0x0F, data[2]
    return (data[2] & 0x0F, data[12]) if len(data) > 12 else (0, 0)


def main() -> None:
    json.dump(ask(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
