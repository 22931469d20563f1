"""
From the outbox to a broker of the user's.

Owns the name that the outbox has for a publisher. A relay publishes letters as their handler: what it raises is
judged, retried and dead-lettered like the failure of any handler.
"""

from __future__ import annotations

from redrive.core.sending import Publisher

Relay = Publisher  # the name from before; it goes with the next version
