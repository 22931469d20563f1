"""
The inbox's metrics for Prometheus; needs the extra `prometheus`.

Owns the collector of the inbox's counts, and a page that shows them beside the letters of the application. Labels are
names of sources and fixed words. Knows no request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redrive.signals.metrics import Metric
from redrive.signals.prometheus import FactCounter, StoreCollector, family

import prometheus_client as client  # isort: skip - absent, it is missed in words one line above

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterator

    from redrive.sources.webhook.counts import InboxCounts
    from redrive.sources.webhook.port import App

INBOX_METRICS = (
    Metric("redrive_inbox_requests_total", "counter", ("source", "result"), "Requests by their result."),
    Metric("redrive_inbox_refusals_total", "counter", ("source", "reason"), "Bad signatures by the reason."),
)


class InboxCollector:
    """Shows the counts of an inbox."""

    def __init__(self, counts: InboxCounts) -> None:
        self._counts = counts

    def describe(self) -> list[Any]:
        """Return the metrics without values."""
        return [family(metric) for metric in INBOX_METRICS]

    def collect(self) -> Iterator[Any]:
        """Yield what was counted."""
        amounts: tuple[Counter[Any], ...] = (self._counts.results, self._counts.refusals)
        for metric, counted in zip(INBOX_METRICS, amounts, strict=True):
            made = family(metric)
            for labels, count in list(counted.items()):
                made.add_metric([str(label) for label in labels], count)
            yield made


def page_of(app: App, counts: InboxCounts) -> Callable[[], Awaitable[tuple[bytes, bytes]]]:
    """Return what gives the content type and the text of the page; call it on the application's event loop."""
    registry = client.CollectorRegistry()
    registry.register(InboxCollector(counts))
    registry.register(StoreCollector(app.store, asyncio.get_running_loop()))
    app.hub.listen(FactCounter(registry))

    async def page() -> tuple[bytes, bytes]:
        text = await asyncio.to_thread(client.generate_latest, registry)
        return client.CONTENT_TYPE_LATEST.encode(), text

    return page
