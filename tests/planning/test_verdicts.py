"""Sentences that count: one thing is, several are."""

from __future__ import annotations

import pytest

from quartermaster.planning.cluster import ClusterKey, ClusterView, NodeOutcome, Settings
from quartermaster.planning.outcomes import DEGRADED, READY
from quartermaster.planning.verdicts import enough_nodes_ready, something_missing


@pytest.mark.parametrize(("missing", "said"), [(1, "1 of 4 nodes is not ready: n0"), (2, "2 of 4 nodes are not ready")])
def test_one_node_is_not_ready_and_several_are_not(missing: int, said: str) -> None:
    outcomes = {f"n{at}": NodeOutcome(DEGRADED if at < missing else READY, "") for at in range(4)}
    assert something_missing(
        ClusterView(ClusterKey("storage", "glusterfs", "default"), Settings(), ()), outcomes
    ).message.startswith(said)


@pytest.mark.parametrize(("ready", "said"), [(1, "1 of 2 nodes is ready, at"), (0, "0 of 2 nodes are ready, at")])
def test_one_node_is_ready_and_none_are(ready: int, said: str) -> None:
    outcomes = {f"n{at}": NodeOutcome(READY if at < ready else DEGRADED, "") for at in range(2)}
    assert enough_nodes_ready(outcomes, 2).message.startswith(said)
