"""
How quick a handler was lately.

Owns the answer to one question: may a letter wait behind one of this handler's, in a child that
is busy, although another child may be free before that one ends? Only if the wait will hardly
be felt. Knows no letter and no process.
"""

from __future__ import annotations

_QUICK = 0.02  # seconds; to send the next letter beforehand saves about a hundredth of that
_IN_A_ROW = 100  # so many letters that one in a hundred which takes long is enough to be careful


class Pace:
    """Whether each of a handler's latest letters ended quickly; no, before there were enough of them."""

    def __init__(self) -> None:
        self.is_quick = False  # whether the next one, too, will probably end before anybody minds
        self._in_a_row = 0

    def note(self, seconds: float) -> None:
        """Take in how long a letter ran."""
        self._in_a_row = self._in_a_row + 1 if seconds < _QUICK else 0
        self.is_quick = self._in_a_row >= _IN_A_ROW
