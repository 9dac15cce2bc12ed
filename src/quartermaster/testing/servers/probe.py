"""Asks a server whether it is healthy with one plain HTTP request: readiness must not depend on a client library."""

import asyncio
import ssl
from urllib.parse import urlsplit

from quartermaster.support.deadlines import within

REQUEST_TIMEOUT_S = 5.0
ANSWER_LIMIT_BYTES = 64 * 1024


async def fetch(url: str, *, tls: ssl.SSLContext | None = None, token: str = "") -> tuple[int, str]:
    """Status and body of a GET; (0, "") when nobody answers."""
    parts = urlsplit(url)
    lines = [f"GET {parts.path or '/'} HTTP/1.0", f"Host: {parts.netloc}"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    request = "\r\n".join([*lines, "", ""]).encode()
    try:
        async with within(REQUEST_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=tls)
            try:
                writer.write(request)
                answer = b""
                while len(answer) < ANSWER_LIMIT_BYTES and (chunk := await reader.read(ANSWER_LIMIT_BYTES)):
                    answer += chunk
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return 0, ""
    head, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    status = head.split(" ", 2)[1:2]
    return (int(status[0]) if status and status[0].isdigit() else 0), body
