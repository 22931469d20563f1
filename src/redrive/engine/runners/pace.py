"""
How quick a handler was lately.

Owns the decision to give a thread or a child letters that it cannot begin at once: only if the handler's recent runs
were short. Knows no letter, no thread and no process.
"""

from __future__ import annotations

_QUICK = 0.02  # seconds; sending the next letter ahead to a child saves about a hundredth of that
_IN_A_ROW = 100  # letters; one slow letter in a hundred is enough to stop sending ahead


class Pace:
    """Whether all recent letters of a handler took less than *quick* seconds; False until there were enough of them."""

    def __init__(self, quick: float | None = None) -> None:
        self.is_quick = False  # whether the next letter will probably be short, too
        self._quick, self._in_a_row = _QUICK if quick is None else quick, 0

    def note(self, seconds: float) -> None:
        """Take in how long a letter ran."""
        self._in_a_row = self._in_a_row + 1 if seconds < self._quick else 0
        self.is_quick = self._in_a_row >= _IN_A_ROW
