"""Why a claim waits, told once for each new reason: in the claim, where programs look, and as an Event for people.

What is waited for usually wakes the claim. When it does not, the claim looks again: soon at first, then less often.
"""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.engine import Result
from quartermaster.provisioning.claims import Wait
from quartermaster.provisioning.protocol import with_condition, without_conditions
from quartermaster.provisioning.term import Term
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.model import Key
from quartermaster.support.backoff import Backoff

# For what somebody is at work on, and tells by itself.
LOOK_AGAIN = Result(requeue_after_s=30.0)
WAITING = Backoff(first_s=1.0, limit_s=30.0)
FAILING = Backoff(first_s=1.0, limit_s=300.0)


class Telling:
    def __init__(self, term: Term) -> None:
        self._term = term
        self._said: dict[Key, str] = {}
        self._looks: dict[Key, int] = {}

    async def say(self, claim: PersistentVolumeClaim, wait: Wait, *, condition: str, status: str, event: str) -> Result:
        """The answer says when to look again."""
        looks = self._looks[claim.key] = self._looks.get(claim.key, -1) + 1
        if self._said.get(claim.key) != wait.why:
            self._said[claim.key] = wait.why
            self._term.events.record(claim, event, wait.why, type="Warning")
        conditions = with_condition(claim.status.conditions, condition, status, wait.reason, wait.why)
        if conditions != claim.status.conditions:
            await self._term.store.update_status(replace(claim, status=replace(claim.status, conditions=conditions)))
        return Result(requeue_after_s=(FAILING if wait.failed else WAITING).delay_s(looks))

    async def unsay(self, claim: PersistentVolumeClaim, condition: str) -> None:
        conditions = without_conditions(claim.status.conditions, condition)
        if conditions != claim.status.conditions:
            await self._term.store.update_status(replace(claim, status=replace(claim.status, conditions=conditions)))

    def forget(self, claim: Key) -> None:
        self._said.pop(claim, None)
        self._looks.pop(claim, None)
