"""
How quick a handler was lately.

Owns the decision to queue a letter in a busy child ahead of time: only if the handler's recent runs were short.
Knows no letter and no process.
"""

from __future__ import annotations

_QUICK = 0.02  # seconds; sending the next letter ahead saves about a hundredth of that
_IN_A_ROW = 100  # letters; one slow letter in a hundred is enough to stop sending ahead


class Pace:
    """Whether all recent letters of a handler ended quickly; False until there were enough of them."""

    def __init__(self) -> None:
        self.is_quick = False  # whether the next letter will probably be short, too
        self._in_a_row = 0

    def note(self, seconds: float) -> None:
        """Take in how long a letter ran."""
        self._in_a_row = self._in_a_row + 1 if seconds < _QUICK else 0
        self.is_quick = self._in_a_row >= _IN_A_ROW
