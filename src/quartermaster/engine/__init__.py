"""The controller runtime: caches, queues, workers, leadership, events and clean-up on any `Store`.

docs/design/engine.md is the contract on one page; examples/01-a-reconciler is the shortest program on it.
"""

from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.collector import Collector, collect_once
from quartermaster.engine.controller import DONE, Controller, Reconciler, Request, Result, Scope, Service
from quartermaster.engine.election import Election, Leadership
from quartermaster.engine.events import EventRecorder
from quartermaster.engine.expiry import Expiry, expire_events
from quartermaster.engine.fenced import FencedStore
from quartermaster.engine.metrics import METRICS, Metric, Metrics
from quartermaster.engine.queue import WorkQueue
from quartermaster.engine.rates import TokenBucket
from quartermaster.engine.runtime import Listen, Runtime
from quartermaster.engine.watching import (
    Predicate,
    Watch,
    all_of,
    annotations_changed,
    any_of,
    finalizers_changed,
    generation_changed,
    labels_changed,
    mapped,
    owned,
)

__all__ = [
    "DONE",
    "METRICS",
    "Cache",
    "Caches",
    "Collector",
    "Controller",
    "Election",
    "EventRecorder",
    "Expiry",
    "FencedStore",
    "Leadership",
    "Listen",
    "Metric",
    "Metrics",
    "Predicate",
    "Reconciler",
    "Request",
    "Result",
    "Runtime",
    "Scope",
    "Service",
    "TokenBucket",
    "Watch",
    "WorkQueue",
    "all_of",
    "annotations_changed",
    "any_of",
    "collect_once",
    "expire_events",
    "finalizers_changed",
    "generation_changed",
    "labels_changed",
    "mapped",
    "owned",
]
