"""
Letters whose backoff function this process does not know.

Owns what happens to them: they go back untried, so that a worker that knows the function can decide after their
failure, and the first one of each name is announced. Knows no function: `core.policy.backoffs` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.decide import Interrupted
from redrive.core.facts import BackoffUnknown
from redrive.core.why import Why

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact
    from redrive.core.letter import Letter
    from redrive.core.policy.backoffs import Backoffs

_ASK_AGAIN = 30.0  # seconds until such a letter may be claimed again: a worker that knows its function may come


class UnknownBackoffs:
    """Finds letters of one worker that name an unknown function."""

    def __init__(self, backoffs: Backoffs, worker: str, announce: Callable[[Fact], None]) -> None:
        self._backoffs, self._worker, self._announce = backoffs, worker, announce
        self._told: set[str] = set()

    def hold(self, letter: Letter) -> Interrupted | None:
        """Return the outcome of a *letter* that must not be tried here; None lets it run."""
        name = self._backoffs.lacking(letter.policy)
        if not name:
            return None
        if name not in self._told:
            self._told.add(name)
            self._announce(
                BackoffUnknown(worker=self._worker, backoff=name, queue=letter.queue, kind=letter.kind),
            )
        return Interrupted(Why.UNKNOWN_BACKOFF.naming(repr(name)), wait=_ASK_AGAIN)
