"""Spans and metrics by OpenTelemetry; needs the extra `otel`. `telemetry` has the face, every other file one part."""

from redrive.errors import SettingsError

try:
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401 - only to say what is missing
except ImportError as missing:
    raise SettingsError(
        ["cannot trace: opentelemetry-api is not installed; run pip install 'redrive[otel]', or set tracing to false"]
    ) from missing

from redrive.signals.otel.telemetry import OpenTelemetry, continued

__all__ = ["OpenTelemetry", "continued"]
