"""
Metrics by OpenTelemetry.

Owns the instruments: one for each metric that facts move, named so that an export to Prometheus gives the names of our
own page, and the durations of the semantic conventions. Labels are few and their values bounded. Knows no span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.signals.metrics import FACT_METRICS, Bounded, Metric, measures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import Meter

    from redrive.core.facts import Fact

_BY_NAME = {metric.name: metric for metric in FACT_METRICS}
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
DURATIONS = {
    "messaging.client.operation.duration": "How long enqueuing, claiming, settling and sending took.",
    "messaging.process.duration": "How long handlers took, failed tries included.",
    "http.client.request.duration": "How long destinations of forwards took to answer.",
    "http.server.request.duration": "How long signed requests to the inbox took.",
}


class Instruments:
    """The instruments of one meter; `count` takes facts."""

    def __init__(self, meter: Meter) -> None:
        self._bounded = Bounded()
        self._made = {metric.name: _made(metric, meter) for metric in FACT_METRICS}
        self._durations = {
            name: meter.create_histogram(name, "s", said, explicit_bucket_boundaries_advisory=_SECONDS)
            for name, said in DURATIONS.items()
        }

    def count(self, fact: Fact) -> None:
        """Count *fact*."""
        for name, values, amount in measures(fact):
            metric = _BY_NAME[name]
            labels = dict(zip(metric.labels, self._bounded(metric, values), strict=True))
            attributes = {f"redrive.{label}": value for label, value in labels.items()}
            self._made[name](amount, attributes)

    def time(self, name: str, seconds: float, attributes: Mapping[str, Any]) -> None:
        """Add a duration."""
        texts = {label: value for label, value in attributes.items() if isinstance(value, str)}
        metric = Metric(name, "histogram", tuple(texts), "")
        kept = dict(zip(texts, self._bounded(metric, tuple(texts.values())), strict=True))
        self._durations[name].record(max(0.0, seconds), {**attributes, **kept})


def otel_name(metric: Metric) -> str:
    """Return the name that an export to Prometheus turns into the metric's own: `redrive.letters.enqueued`."""
    subject, _, rest = metric.name.removeprefix("redrive_").removesuffix("_total").partition("_")
    return ".".join(part for part in ("redrive", subject, rest) if part)


def _made(metric: Metric, meter: Meter) -> Any:
    if metric.type == "histogram":
        name, buckets = otel_name(metric), metric.buckets
        return meter.create_histogram(name, description=metric.help, explicit_bucket_boundaries_advisory=buckets).record
    return meter.create_counter(otel_name(metric), description=metric.help).add
