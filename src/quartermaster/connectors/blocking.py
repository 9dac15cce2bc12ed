"""The library for programs without an event loop: the same calls, each to its end before it returns.

from quartermaster.connectors.blocking import open_connector

with open_connector() as connector:
    print(connector.connect(info).path)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from quartermaster.connectors.connector import Connector, Inventory, Recovered
from quartermaster.connectors.connector import open_connector as open_asynchronous
from quartermaster.connectors.model import Attachment, ConnectionInfo, ConnectorProperties
from quartermaster.support.errors import UsageError

if TYPE_CHECKING:
    from quartermaster.connectors.using import Mounted, Statistics

T = TypeVar("T")


class BlockingConnector:
    """Not for use inside a running event loop: use `quartermaster.connectors.open_connector` there."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._runner.close()

    def properties(self, *, multipath: bool | None = None, do_local_attach: bool | None = None) -> ConnectorProperties:
        return self._run(self._connector.properties(multipath=multipath, do_local_attach=do_local_attach))

    def connect(self, info: ConnectionInfo | Mapping[str, Any], *, timeout_s: float | None = None) -> Attachment:
        return self._run(self._connector.connect(info, timeout_s=timeout_s))

    def disconnect(
        self, info: ConnectionInfo | Mapping[str, Any], *, force: bool = False, timeout_s: float | None = None
    ) -> str:
        return self._run(self._connector.disconnect(info, force=force, timeout_s=timeout_s))

    def device_path(self, volume_id: str, *, timeout_s: float | None = None) -> str:
        return self._run(self._connector.device_path(volume_id, timeout_s=timeout_s))

    def extend(
        self,
        info: ConnectionInfo | Mapping[str, Any],
        *,
        mounted: str | os.PathLike[str] = "",
        timeout_s: float | None = None,
    ) -> int:
        return self._run(self._connector.extend(info, mounted=mounted, timeout_s=timeout_s))

    def mount(self, volume_id: str, target: str | os.PathLike[str], **options: Any) -> Mounted:
        return self._run(self._connector.mount(volume_id, target, **options))

    def unmount(
        self, volume_id: str, target: str | os.PathLike[str], *, force: bool = False, timeout_s: float | None = None
    ) -> bool:
        return self._run(self._connector.unmount(volume_id, target, force=force, timeout_s=timeout_s))

    def statistics(
        self, volume_id: str, target: str | os.PathLike[str] = "", *, timeout_s: float | None = None
    ) -> Statistics:
        return self._run(self._connector.statistics(volume_id, target, timeout_s=timeout_s))

    def recover(self, *, timeout_s: float | None = None) -> tuple[Recovered, ...]:
        return self._run(self._connector.recover(timeout_s=timeout_s))

    def list(self, *, foreign: bool = True, timeout_s: float | None = None) -> Inventory:
        return self._run(self._connector.list(foreign=foreign, timeout_s=timeout_s))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if _is_in_a_loop():
            work.close()
            raise UsageError(
                "cannot wait inside a running event loop",
                hint="use quartermaster.connectors.open_connector there, and await its calls",
            )
        return self._runner.run(work)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def open_connector(**options: Any) -> BlockingConnector:
    """With the options of `quartermaster.connectors.open_connector`."""
    return BlockingConnector(open_asynchronous(**options))
