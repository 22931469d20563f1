"""
Dead letters as Sentry events; needs the extra `sentry`.

Owns what an event contains and how Sentry groups it: one event per dead letter, grouped by our fingerprint. Facts
carry no payload, so none can get here; neither can breadcrumbs of handlers. The SDK sends in a thread of its own with
a short queue, so that no letter waits for it. Knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.core.facts import Died
from redrive.errors import SettingsError

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.utils import BadDsn
except ImportError as missing:
    raise SettingsError(
        ["cannot report to Sentry: sentry-sdk is not installed; run pip install 'redrive[sentry]'"]
    ) from missing

if TYPE_CHECKING:
    from redrive.core.facts import Fact

__all__ = ["SentryReporter", "report_to"]

SDK = "sdk"  # in place of a DSN: what the application's own sentry_sdk.init() set up
_LOGGER = "redrive"
_PATIENCE = 2.0  # seconds that closing waits for unsent events


class SentryReporter:
    """
    Sends one event for every letter that becomes a dead letter; give it to `app.listen`.

    *client* is a Sentry client, or None for the one that the application has set up when a letter dies.
    """

    def __init__(self, client: Any = None, *, release: str | None = None) -> None:
        self._client, self._release = client, release

    def __call__(self, fact: Fact) -> None:
        """Report *fact* if a letter died."""
        if isinstance(fact, Died):
            event = event_of(fact, self._release)
            if self._client is not None:
                self._client.capture_event(event)
            else:  # with the application's own tags, but without its breadcrumbs: they may quote payloads
                sentry_sdk.get_client().capture_event(event, scope=sentry_sdk.get_global_scope())

    def close(self) -> None:
        """Wait a moment for unsent events; the application's own client stays open."""
        if self._client is not None:
            self._client.close(timeout=_PATIENCE)


def report_to(dsn: str, *, release: str | None = None) -> SentryReporter:
    """Return a reporter to the project *dsn*, or, if that is `sdk`, by the app's own SDK; raise SettingsError."""
    if dsn == SDK:
        ignore_logger(_LOGGER)  # its log integration would make a second event of our log line
        return SentryReporter(release=release)
    try:
        client = sentry_sdk.Client(dsn=dsn, default_integrations=False, auto_session_tracking=False)
    except BadDsn as bad:
        raise SettingsError(
            [f"cannot report to Sentry: sentry_dsn is no DSN ({bad}); it must look like https://key@host/1, or be sdk"]
        ) from None
    return SentryReporter(client, release=release)


def event_of(fact: Died, release: str | None = None) -> dict[str, Any]:
    """Return the Sentry event about *fact*; its own `event_id` is left to the SDK, because a letter may die twice."""
    named = {**fact.event, "handler": fact.handler or None}
    details = {
        **named,
        "last_error": fact.last_error,
        "attempts": fact.attempts,
        "queue": fact.queue,
        "category": str(fact.category),
        "why": fact.why,
        "group": fact.fingerprint,
        "place": fact.place,
        "traceback": fact.traceback,
    }
    event = {
        "level": "error",
        "logger": _LOGGER,
        "fingerprint": [_LOGGER, fact.fingerprint or f"{fact.kind} {fact.error_type}"],
        "transaction": fact.kind,
        "exception": {"values": [_exception(fact)]},
        "tags": {name: value for name, value in named.items() if value}
        | {"queue": fact.queue, "group": fact.fingerprint},
        "contexts": {"dead letter": details},
    }
    return event | ({"release": release} if release else {})


def _exception(fact: Died) -> dict[str, Any]:
    return {"type": fact.error_type, "value": fact.last_error, "mechanism": {"type": _LOGGER, "handled": True}}
