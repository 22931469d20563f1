"""
A letter whose last worker died runs alone.

Owns which claimed letter is a suspect and when it may run: with no other letter held by this process, so
that another death convicts only it. Until then, and while it runs, the worker claims nothing. So a suspect
that a dead worker held with others had not begun. Knows no store and no engine; what that death means to the
letter, and after how many losses it is failed, is in `core.decide`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.decide import Interrupted
from redrive.core.why import Why

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.stores.contract import Claim

MAKE_ROOM = Interrupted(Why.GIVEN_BACK)  # the outcome of letters that were claimed together with a suspect
LATER = Interrupted(Why.WAITS_TO_RUN_ALONE, wait=30.0)  # the outcome of a suspect that waited too long
_PATIENCE = 2.0  # seconds for which a suspect may keep this process from claiming while other letters run


class Suspects:
    """At most one suspect of this process: it waits until it can run alone, or it runs."""

    def __init__(self, handlers: Mapping[str, Handler], clock: Clock) -> None:
        self._handlers, self._clock = handlers, clock
        self._since = 0.0  # when the suspect began to wait
        self._careful = False
        self.waiting: Claim | None = None
        self.running: Claim | None = None

    @property
    def any(self) -> bool:
        """Whether a suspect waits or runs, so that nothing else may begin or be claimed."""
        return self.waiting is not None or self.running is not None

    @property
    def limit(self) -> int | None:
        """How many letters to claim for a set of slots: 1 after a suspect came, because more may follow."""
        return 1 if self._careful else None

    def found_in(self, claims: Sequence[Claim]) -> Claim | None:
        """Return the first suspect among *claims*, which now waits to run alone; None if there is none."""
        suspect = next((claim for claim in claims if claim.letter.losses and self._endangers(claim)), None)
        if claims:
            self._careful = suspect is not None
        if suspect is not None:
            self.waiting, self._since = suspect, self._clock.monotonic()
        return suspect

    def begin(self) -> Claim | None:
        """Return the suspect that waited; it runs now."""
        self.waiting, self.running = None, self.waiting
        return self.running

    def out_of_patience(self) -> Claim | None:
        """Return the suspect if it has waited too long for the others to end; it waits here no longer."""
        return self.drop() if self._clock.monotonic() - self._since > _PATIENCE else None

    def drop(self) -> Claim | None:
        """Return the suspect that waited; it waits here no longer."""
        suspect, self.waiting = self.waiting, None
        return suspect

    def had_not_begun(self, claim: Claim, held: int) -> bool:
        """Whether *claim*, one of *held* that died with their worker, is a suspect that still waited to run alone."""
        return held > 1 and claim.letter.losses > 0 and claim.letter.kind in self._handlers and self._endangers(claim)

    def _endangers(self, claim: Claim) -> bool:
        """Whether a letter could take other letters of this process with it if it kills again."""
        return self._handlers[claim.letter.kind].engine != "process"
