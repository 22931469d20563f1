"""
When failures say more about a dependency than about records.

Owns the rule: so many records in a row that fail for good without one that succeeds mean that
something is broken which no dead-letter topic heals. What fails by its own word (a rejection),
or is given up while its worker may still run, does not count. Knows no Kafka client and no clock.
"""

from __future__ import annotations

_OWN_FAULT = frozenset({"crash_loop", "stalled", "terminal"})


class FloodGate:
    """Counts failures in a row; *limit* 0 never shuts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.in_a_row = 0
        self.is_shut = False

    def succeeded(self) -> None:
        """Note a success: whatever was broken works."""
        self.in_a_row = 0
        self.is_shut = False

    def open_a_little(self) -> None:
        """Let records in again although none has succeeded; the first that fails shuts the gate, and is held."""
        self.in_a_row = self._limit
        self.is_shut = False

    def holds(self, disposition: str) -> bool:
        """Note a record that failed for good; return True if it is to be held instead of dead-lettered."""
        if not self._limit or disposition in _OWN_FAULT:
            return False
        self.in_a_row += 1
        self.is_shut = self.is_shut or self.in_a_row > self._limit
        return self.is_shut
