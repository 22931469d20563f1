"""
The lifeline of child processes.

Owns a pipe whose other end all children hold: when our end closes, also because this process was killed, they die.
Knows no child.
"""

from __future__ import annotations

import os


class Lifeline:
    """A pipe that is opened when the first child needs it."""

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        """The descriptor that children inherit."""
        if self._ends is None:
            self._ends = os.pipe()
        return self._ends[0]

    def cut(self) -> None:
        """Let children that are left die; may be called twice."""
        if self._ends is not None:
            for end in self._ends:
                os.close(end)
            self._ends = None
