"""What must not begin while the operator only observes.

A restore puts objects back one after the other, and deposes who leads. To the next leader an object whose owner has not
been put back yet looks like one that nobody owns.
"""

from __future__ import annotations

from quartermaster.engine import Caches, Scope, Service
from quartermaster.engine.waiting import first_of
from quartermaster.provisioning.holds import observing
from quartermaster.support.errors import FencedError, QuartermasterError
from quartermaster.support.log import logger

_LOOK_S = 2.0

_log = logger("operators.acting")


class WhenActing:
    """A service that begins when nothing is held back, asked of the store at the beginning of each term."""

    def __init__(self, service: Service, namespace: str) -> None:
        self.name = service.name
        self._service = service
        self._namespace = namespace

    def prepare(self, caches: Caches) -> None:
        self._service.prepare(caches)

    async def run(self, scope: Scope) -> None:
        while not scope.stopping.is_set():
            try:
                held = await observing(scope.store, self._namespace)
            except FencedError:
                raise
            except QuartermasterError as error:
                held = f"{type(error).__name__}: {error}"
            if not held:
                await self._service.run(scope)
                return
            _log.debug("a service waits", service=self.name, why=held)
            await first_of(scope.stopping, timeout_s=_LOOK_S)
