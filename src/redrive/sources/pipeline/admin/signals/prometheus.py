"""
A pipeline's metrics for Prometheus; needs the extra `prometheus`.

Owns the collector that looks at an engine at each scrape, and the page it is served on. A scrape asks no broker: what
waits in topics is what the engine saw last. What is counted stands in `metrics`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from redrive.engine.clock import SystemClock, unix_ms
from redrive.signals.metrics import Bounded
from redrive.signals.prometheus import MetricsPage, family, listen
from redrive.sources.pipeline.admin.signals.depth_watch import DepthWatch
from redrive.sources.pipeline.admin.signals.metrics import (
    CALLS,
    LATENCY,
    PIPELINE_METRICS,
    calls,
    depth_readings,
    latency,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redrive.signals.metrics import Measure
    from redrive.sources.pipeline.engine.pipeline import Pipeline

__all__ = ["PipelineCollector", "serving_metrics"]
_BY_NAME = {metric.name: metric for metric in PIPELINE_METRICS}


class PipelineCollector:
    """Shows *pipeline* to Prometheus; with *depths*, also what waits in its topics."""

    def __init__(self, pipeline: Pipeline, depths: DepthWatch | None = None) -> None:
        self._pipeline, self._depths = pipeline, depths
        self._bounded = Bounded()

    def describe(self) -> list[Any]:
        """Return the metrics without values."""
        return list(_families().values())

    def collect(self) -> Iterator[Any]:
        """Yield the counts and the state of the nodes."""
        families, env = _families(), self._pipeline.graph.env
        amounts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for name, labels, amount in (*readings(self._pipeline), *self._waiting(env)):
            amounts[name, self._bounded(_BY_NAME[name], labels)] += amount  # type: ignore[assignment]  # floats count too
        for (name, labels), amount in amounts.items():
            families[name].add_metric(labels, amount)
        for node, counts in self._pipeline.counts.items():
            families[CALLS].add_metric([env, node], *calls(counts))
            families[LATENCY].add_metric([env, node], *latency(counts))
        yield from families.values()

    def _waiting(self, env: str) -> Iterator[Measure]:
        seen = {} if self._depths is None else self._depths.seen
        for each in seen.values():
            yield from depth_readings(env, each, unix_ms() / 1000)


@asynccontextmanager
async def serving_metrics(pipeline: Pipeline, host: str = "127.0.0.1", port: int = 9464) -> AsyncIterator[MetricsPage]:
    """
    Serve the metrics of *pipeline* at `http://host:port/metrics` meanwhile.

    Port 0 takes any free one. Raise SettingsError if the port cannot be had.
    """
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - `signals.prometheus` says what is missing

    depths, registry = DepthWatch(pipeline, SystemClock()), CollectorRegistry()
    registry.register(PipelineCollector(pipeline, depths))
    page = MetricsPage(*listen(host, port, registry), None, None)
    looking = asyncio.create_task(depths.run())
    try:
        yield page
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        await asyncio.to_thread(page.close)


def _families() -> dict[str, Any]:
    return {metric.name: _histogram(metric) if metric.type == "histogram" else family(metric)
            for metric in PIPELINE_METRICS}  # fmt: skip


def _histogram(metric: Any) -> Any:
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415

    return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
