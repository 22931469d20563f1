"""
Whether to trace.

Owns the meaning of the setting `tracing`: absent, spans are made if the application itself has set up OpenTelemetry.
Imports nothing to find that out, because most processes have no tracer. Knows no span: `otel` makes them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.signals.otel import OpenTelemetry

    Tracing = OpenTelemetry | bool | None  # what a user says: on, off, or as the application does


def open_tracing(wanted: Tracing) -> OpenTelemetry | None:
    """Return what makes spans, or None; raise SettingsError if it is wanted and not installed."""
    if wanted is False or (wanted is None and not _is_set_up()):
        return None
    from redrive.signals.otel import OpenTelemetry  # noqa: PLC0415 - needs the extra `otel`

    return wanted if isinstance(wanted, OpenTelemetry) else OpenTelemetry()


def _is_set_up() -> bool:
    """Whether the process has a tracer provider of its own; many have the API alone, because a library needs it."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    return not isinstance(api.get_tracer_provider(), (api.ProxyTracerProvider, api.NoOpTracerProvider))
