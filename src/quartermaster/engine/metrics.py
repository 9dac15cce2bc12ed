"""What the engine counts, in one table, from which the reference page is made.

prometheus-client is optional: without it every instrument has the same interface and does nothing. Each `Metrics`
has a registry of its own, so that two runtimes in one process (tests, simulation) do not add up.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, cast

import msgspec


class Metric(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


QUEUE_DEPTH = Metric("quartermaster_queue_depth", "gauge", ("controller",), "Keys that wait for a worker.")
QUEUE_LATENCY = Metric(
    "quartermaster_queue_latency_seconds", "histogram", ("controller",), "From a key's arrival to a worker taking it."
)
QUEUE_RETRIES = Metric(
    "quartermaster_queue_retries_total", "counter", ("controller",), "Keys put back to be tried again after an error."
)
QUEUE_OVERFLOWS = Metric(
    "quartermaster_queue_overflows_total",
    "counter",
    ("controller",),
    "Keys refused by a full queue, which is made up for by going through everything again.",
)
QUEUE_ERRORS = Metric(
    "quartermaster_queue_errors_total", "counter", ("controller",), "Passages through everything that an error ended."
)
RECONCILE_DURATION = Metric(
    "quartermaster_reconcile_duration_seconds", "histogram", ("controller",), "How long a worker held a key."
)
RECONCILE_RESULTS = Metric(
    "quartermaster_reconcile_results_total",
    "counter",
    ("controller", "result"),
    "Reconciles by outcome: done, requeued, conflict, error, timeout, terminal.",
)
WATCH_RESTARTS = Metric(
    "quartermaster_watch_restarts_total", "counter", ("cache",), "Watches started again after an error."
)
WATCH_RELISTS = Metric(
    "quartermaster_watch_relists_total", "counter", ("cache",), "Full lists made because the revision had expired."
)
CACHE_OBJECTS = Metric("quartermaster_cache_objects", "gauge", ("cache",), "Objects held in a cache.")
CACHE_STALE = Metric(
    "quartermaster_cache_stale_seconds",
    "gauge",
    ("cache",),
    "How long a cache has failed to follow the store, as of its last attempt; 0 when it follows.",
)
HANDLER_ERRORS = Metric(
    "quartermaster_handler_errors_total",
    "counter",
    ("cache",),
    "Exceptions of handlers, predicates, mappers and index functions.",
)
LEADER = Metric("quartermaster_leader", "gauge", ("lease",), "1 while this process leads.")
EVENTS_DROPPED = Metric(
    "quartermaster_events_dropped_total",
    "counter",
    ("cause",),
    "Events that were not written: full (buffer), rate (too many for one object), store (the store would not).",
)
COLLECTED = Metric(
    "quartermaster_collected_objects_total",
    "counter",
    ("action",),
    "What was cleaned up: deleted, orphaned, released (a finalizer), trimmed (a dangling owner), expired (an Event).",
)

HOOK_CALLS = Metric(
    "quartermaster_hook_calls_total",
    "counter",
    ("hook", "outcome"),
    "Calls of hooks: ok or error in the controller, the HTTP status in the service.",
)
HOOK_DURATION = Metric("quartermaster_hook_duration_seconds", "histogram", ("hook",), "How long a hook took.")
HOOK_WRITES = Metric(
    "quartermaster_hook_writes_total",
    "counter",
    ("hook", "action"),
    "What the answers of hooks led to: create, update, patch, delete, and metadata or status of the watched object.",
)

METRICS: tuple[Metric, ...] = (
    QUEUE_DEPTH,
    QUEUE_LATENCY,
    QUEUE_RETRIES,
    QUEUE_OVERFLOWS,
    QUEUE_ERRORS,
    RECONCILE_DURATION,
    RECONCILE_RESULTS,
    WATCH_RESTARTS,
    WATCH_RELISTS,
    CACHE_OBJECTS,
    CACHE_STALE,
    HANDLER_ERRORS,
    LEADER,
    EVENTS_DROPPED,
    COLLECTED,
    HOOK_CALLS,
    HOOK_DURATION,
    HOOK_WRITES,
)

# From a tenth of a millisecond to the longest reconcile that the default timeout lets run.
_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)


class Counter(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class Gauge(Protocol):
    def set(self, value: float) -> None: ...


class Histogram(Protocol):
    def observe(self, amount: float) -> None: ...


class _Nothing:
    """Every instrument where prometheus-client is not installed."""

    def inc(self, amount: float = 1) -> None:
        pass

    def set(self, value: float) -> None:
        pass

    def observe(self, amount: float) -> None:
        pass


NOTHING = _Nothing()


class Metrics:
    """Instruments by table line and label values. Ask once and keep what you get: asking looks it up."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._families: dict[str, Any] = {}
        self._registry: Any = None
        if not enabled:
            return
        try:
            import prometheus_client
        except ImportError:
            return
        self._registry = prometheus_client.CollectorRegistry()
        for metric in METRICS:
            if metric.type == "histogram":
                self._families[metric.name] = prometheus_client.Histogram(
                    metric.name, metric.help, metric.labels, registry=self._registry, buckets=_BUCKETS
                )
            else:
                make = prometheus_client.Counter if metric.type == "counter" else prometheus_client.Gauge
                self._families[metric.name] = make(metric.name, metric.help, metric.labels, registry=self._registry)

    def counter(self, metric: Metric, *labels: str) -> Counter:
        return cast(Counter, self._instrument(metric, labels))

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        return cast(Gauge, self._instrument(metric, labels))

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        return cast(Histogram, self._instrument(metric, labels))

    def value(self, metric: Metric, *labels: str) -> float:
        """A counter's or gauge's value, a histogram's count; 0 where nothing was counted."""
        if self._registry is None:
            return 0.0
        name = metric.name + ("_count" if metric.type == "histogram" else "")
        found = self._registry.get_sample_value(name, dict(zip(metric.labels, labels, strict=True)))
        return float(found or 0.0)

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        if self._registry is None:
            return b"# metrics need prometheus-client: pip install 'quartermaster[all]'\n"
        import prometheus_client

        return prometheus_client.generate_latest(self._registry)

    def _instrument(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        family = self._families.get(metric.name)
        return NOTHING if family is None else family.labels(*labels)


# For whoever was given none: nothing is counted.
SILENT = Metrics(enabled=False)
