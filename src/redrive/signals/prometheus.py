"""
Metrics for Prometheus; needs the extra `prometheus`.

Owns a listener that turns facts into counters and histograms, a collector that reads the store at each scrape, and
the page that serves both. Knows no metric: `metrics` defines them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from redrive.errors import SettingsError, StoreError
from redrive.signals.metrics import (
    FACT_METRICS,
    METRICS,
    SPOOL_METRICS,
    STORE_METRICS,
    Bounded,
    Measure,
    Metric,
    measures,
    readings,
    spool_readings,
)
from redrive.stores.spooling import spool_of

try:
    import prometheus_client as client
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
except ImportError as missing:
    raise SettingsError(
        ["cannot serve metrics: prometheus-client is not installed; run pip install 'redrive[prometheus]'"]
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from redrive.core.facts import Fact
    from redrive.signals.hub import Hub
    from redrive.stores.contract import Store

__all__ = ["FactCounter", "MetricsPage", "StoreCollector", "serve"]

_PATIENCE = 5.0  # seconds that a scrape waits for the store; Prometheus itself gives up after 10
_BY_NAME = {metric.name: metric for metric in METRICS}
_MAKERS: dict[str, Any] = {"counter": client.Counter, "histogram": client.Histogram}
_FAMILIES: dict[str, Any] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@runtime_checkable
class MeasuredApp(Protocol):
    """What `serve` needs of an application; `redrive.Redrive` is one."""

    hub: Hub

    @property
    def store(self) -> Store:
        """The store that keeps the letters."""


class FactCounter:
    """Counts facts in *registry*; give it to `app.listen`."""

    def __init__(self, registry: client.CollectorRegistry) -> None:
        self._bounded = Bounded()
        self._made = {metric.name: _made(metric, registry) for metric in FACT_METRICS}

    def __call__(self, fact: Fact) -> None:
        """Count *fact*."""
        for name, labels, amount in measures(fact):
            series = self._made[name]
            if labels:
                series = series.labels(*self._bounded(_BY_NAME[name], labels))
            add = series.observe if _BY_NAME[name].type == "histogram" else series.inc
            add(amount)


class StoreCollector:
    """
    Reads a store at each scrape, on the store's own event loop.

    A store that does not answer shows as `redrive_store_up 0` and nothing else: its letters are unknown, not zero.
    What waits in a spool in front of it is known all the same.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, *, patience: float = _PATIENCE) -> None:
        self._store, self._loop, self._patience = store, loop, patience
        self._bounded = Bounded()
        self._metrics = (*STORE_METRICS, *SPOOL_METRICS) if spool_of(store) else STORE_METRICS

    def describe(self) -> list[Any]:
        """Return the metrics without values, so that registering them does not read the store."""
        return [family(metric) for metric in self._metrics]

    def collect(self) -> Iterator[Any]:
        """Yield what the store holds."""
        counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for name, labels, amount in [*self._read_store(), *self._read(spool_readings(self._store))]:
            counts[name, self._bounded(_BY_NAME[name], labels)] += amount  # type: ignore[assignment]  # floats count too
        families = {metric.name: family(metric) for metric in self._metrics}
        for (name, labels), amount in counts.items():
            families[name].add_metric(labels, amount)
        yield from families.values()

    def _read_store(self) -> list[Measure]:
        spool = spool_of(self._store)
        is_away = spool is not None and spool.is_away  # known already: the scrape need not wait
        return ([] if is_away else self._read(readings(self._store))) or [Measure("redrive_store_up", (), 0)]

    def _read(self, reading: Coroutine[Any, Any, list[Measure]]) -> list[Measure]:
        asked = asyncio.run_coroutine_threadsafe(reading, self._loop)
        try:
            return asked.result(self._patience)
        except (StoreError, TimeoutError):
            asked.cancel()
            return []


class MetricsPage:
    """A page of metrics that is being served; `close` ends it."""

    def __init__(self, server: Any, thread: Any, watched: MeasuredApp | None, listener: FactCounter | None) -> None:
        self._server, self._thread, self._watched, self._listener = server, thread, watched, listener

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Serve no longer, and count no longer."""
        if self._watched is not None and self._listener is not None:
            self._watched.hub.unlisten(self._listener)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(watched: MeasuredApp | Store, host: str = "127.0.0.1", port: int = 9464) -> MetricsPage:
    """
    Serve the metrics of an application, or of a store alone, at `http://host:port/metrics`.

    Call it on the event loop that the application runs on; port 0 takes any free one.
    Raise SettingsError if the port is taken.
    """
    registry = client.CollectorRegistry()
    app = watched if isinstance(watched, MeasuredApp) else None
    store = watched.store if isinstance(watched, MeasuredApp) else watched
    registry.register(StoreCollector(store, asyncio.get_running_loop()))
    listener = None if app is None else FactCounter(registry)
    server, thread = listen(host, port, registry)
    if app is not None and listener is not None:
        app.hub.listen(listener)
    return MetricsPage(server, thread, app, listener)


def listen(host: str, port: int, registry: client.CollectorRegistry) -> tuple[Any, Any]:
    """Serve *registry* from a thread; return the server and its thread; raise SettingsError if the port is taken."""
    try:
        return client.start_http_server(port, host, registry)
    except OSError as error:
        problem = f"cannot serve metrics on {host}:{port}: {error.strerror or error}; set metrics_port to a free one"
        raise SettingsError([problem]) from error


def _made(metric: Metric, registry: client.CollectorRegistry) -> Any:
    options = {"buckets": metric.buckets} if metric.buckets else {}
    return _MAKERS[metric.type](metric.name, metric.help, metric.labels, registry=registry, **options)


def family(metric: Metric) -> Any:
    """Return *metric* as prometheus-client has it, without values yet."""
    return _FAMILIES[metric.type](metric.name, metric.help, labels=metric.labels)
