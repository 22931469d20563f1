"""
When a node that a reload removed has drained.

Owns how long its topic must look empty: what a consumer knows of its partitions is up to a second old, and a document
that came meanwhile would stay in a topic that no node reads. Pure: the caller brings the time.
"""

from __future__ import annotations

SETTLED = 3.0  # seconds


class QuietSpell:
    """How long nothing has come."""

    def __init__(self) -> None:
        self._since: float | None = None

    def is_over(self, *, quiet: bool, now: float) -> bool:
        """Note whether it is *quiet* at *now*, in seconds; return whether it has been so for long enough."""
        if not quiet:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since >= SETTLED
