"""
A Kafka consumer's metrics for Prometheus; needs the extra `prometheus`.

Owns the collector that looks at a consumer at each scrape, and the page it is served on. A
scrape asks no broker: it shows what the control thread last saw, a second ago at most. What
is counted stands in `metrics`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily

from redrive.signals.metrics import Bounded
from redrive.signals.prometheus import MetricsPage, family, listen
from redrive.sources.kafka.metrics import ATTEMPTS, KAFKA_METRICS, attempts, readings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.kafka.consumer import ParallelConsumer

__all__ = ["KafkaCollector", "serve"]
_BY_NAME = {metric.name: metric for metric in KAFKA_METRICS}


class KafkaCollector:
    """Shows *consumers* to Prometheus; register it with a `CollectorRegistry` of your own, or use `serve`."""

    def __init__(self, *consumers: ParallelConsumer) -> None:
        self._consumers = consumers
        self._bounded = Bounded()

    def describe(self) -> list[Any]:
        """Return the metrics without values."""
        return list(_families().values())

    def collect(self) -> Iterator[Any]:
        """Yield the counts and the status of the consumers."""
        families = _families()
        amounts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for consumer in self._consumers:
            for name, labels, amount in readings(consumer):
                amounts[name, self._bounded(_BY_NAME[name], labels)] += amount  # type: ignore[assignment]  # floats count too
            buckets, total = attempts(consumer.counts)
            families[ATTEMPTS].add_metric([consumer.group], buckets, total)
        for (name, labels), amount in amounts.items():
            families[name].add_metric(labels, amount)
        yield from families.values()


def serve(*consumers: ParallelConsumer, host: str = "127.0.0.1", port: int = 9464) -> MetricsPage:
    """
    Serve the metrics of *consumers* at `http://host:port/metrics` until the page is closed.

    Port 0 takes any free one. Raise SettingsError if the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(KafkaCollector(*consumers))
    return MetricsPage(*listen(host, port, registry), None, None)


def _families() -> dict[str, Any]:
    attempts_metric = _BY_NAME[ATTEMPTS]
    histogram = HistogramMetricFamily(ATTEMPTS, attempts_metric.help, labels=attempts_metric.labels)
    return {metric.name: histogram if metric.name == ATTEMPTS else family(metric) for metric in KAFKA_METRICS}
