"""Metrics: one table, and the same interface where prometheus-client is missing."""

from __future__ import annotations

import sys

import pytest

from quartermaster.engine.metrics import LEADER, METRICS, QUEUE_DEPTH, QUEUE_LATENCY, QUEUE_RETRIES, Metrics


def test_names_are_unique_and_follow_the_rules_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith("quartermaster_")
        assert metric.name.endswith("_total") is (metric.type == "counter")
        assert metric.help.endswith(".")


def test_what_is_counted_is_shown() -> None:
    metrics = Metrics()
    metrics.counter(QUEUE_RETRIES, "a").inc()
    metrics.gauge(QUEUE_DEPTH, "a").set(7)
    metrics.histogram(QUEUE_LATENCY, "a").observe(0.2)
    text = metrics.exposition().decode()
    assert 'quartermaster_queue_retries_total{controller="a"} 1.0' in text
    assert 'quartermaster_queue_depth{controller="a"} 7.0' in text
    assert 'quartermaster_queue_latency_seconds_count{controller="a"} 1.0' in text


def test_two_of_them_do_not_add_up() -> None:
    one, two = Metrics(), Metrics()
    one.gauge(LEADER, "x").set(1)
    assert (one.value(LEADER, "x"), two.value(LEADER, "x")) == (1, 0)


def test_without_prometheus_client_nothing_is_counted_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    metrics = Metrics()
    metrics.counter(QUEUE_RETRIES, "a").inc()
    metrics.gauge(QUEUE_DEPTH, "a").set(7)
    metrics.histogram(QUEUE_LATENCY, "a").observe(0.2)
    assert metrics.value(QUEUE_RETRIES, "a") == 0
    assert b"pip install" in metrics.exposition()
