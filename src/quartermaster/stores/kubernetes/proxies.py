"""Which proxy leads to the API server: the kubeconfig's, else that of the environment, as for kubectl.

Only proxies that are spoken to in plain HTTP (`proxy-url: http://host:port`) are supported, with CONNECT; the way
through them to the server is TLS from end to end. kubectl also takes https:// and socks5:// proxies: those are refused
by name when the kubeconfig is read, never passed over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from quartermaster.support.errors import UsageError


def checked_proxy(url: str, where: str) -> str:
    """A proxy that is spoken to in plain HTTP; TLS to the server goes through it end to end."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(
            f'cannot use {where}: a proxy of type "{parts.scheme or url}" is not supported',
            hint="give an http:// proxy that allows CONNECT",
        )
    return url


def proxy_from_environment(server: str, environment: Mapping[str, str]) -> str:
    """HTTPS_PROXY or HTTP_PROXY unless NO_PROXY names the host; this machine is never behind a proxy."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    excluded = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not proxy or _is_loopback(host) or _is_excluded(host, excluded):
        return ""
    return checked_proxy(proxy if "://" in proxy else f"http://{proxy}", f"{name.upper()} of the environment")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_excluded(host: str, excluded: str) -> bool:
    return any(_names(word.strip().lower(), host.lower()) for word in excluded.split(","))


def _names(word: str, host: str) -> bool:
    """Whether a word of NO_PROXY means the host: `*`, an address, a network, or a domain with all below it."""
    if word in ("*", host):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(word, strict=False)
    except ValueError:
        return bool(word) and host.endswith("." + word.lstrip("*").lstrip("."))
