"""
How fast a set of slots uses letters, and how many to claim ahead of it.

Owns the recent mean run time, and the rule that turns it into a number of letters. Letters that run now count with
the time they have run so far, so a handler that becomes slow is noticed before its letters end; one letter that
hangs while the other slots go on changes little. Knows no clock, no letter and no store.
"""

from __future__ import annotations

import math

LONGEST_WAIT = 0.05  # seconds that a letter may wait here while another worker could run it
_RESERVE = 2.0  # exchanges that the letters held ready should last for: one under way, and one that is late
_MOST_WORK = 0.5  # of the longest wait: what the slots should need at most for all letters that are ready
_LATE = 1.5  # of the usual time of an exchange: one that takes so long should find no slot idle
_COMPANY = 3.0  # of the time of an exchange: how long outcomes wait for others, so that exchanges are fewer and larger
_LONGEST_COMPANY = 0.01  # seconds that an outcome may wait for others


def company(exchange: float) -> float:
    """Return the seconds for which outcomes may gather before an *exchange* that takes so long."""
    return min(_LONGEST_COMPANY, _COMPANY * exchange)


def letters_ahead(run: float | None, parallel: int, exchange: float, most: int) -> int:
    """
    Return how many letters to hold ready: what the slots use until the exchange after the next, and one for each slot.

    Slots that began together end together, so each of them may need a letter in the same moment. *run* is the mean run
    time of a letter (None if none has ended), *exchange* the time of an exchange, both in seconds; *parallel* letters
    run at once. A letter that would wait too long is not claimed: if letters run longer than LONGEST_WAIT, the number
    is 0.
    """
    if run is None or run > LONGEST_WAIT:
        return 0
    if run <= 0:  # the clock did not move
        return most
    rate, cycle = parallel / run, company(exchange) + _RESERVE * exchange
    return min(most, math.ceil(rate * cycle) + parallel, math.ceil(_MOST_WORK * rate * LONGEST_WAIT))


def too_few(run: float | None, parallel: int, exchange: float) -> int:
    """Return with how many ready letters the next exchange may not wait: slots may use them up before it is over."""
    return math.ceil(_LATE * exchange * parallel / run) if run else 0


class RunTimes:
    """
    The mean run time of recent letters of one set of slots.

    It is the time that all slots were occupied, divided by the letters that ended in that time (Little's law).
    """

    __slots__ = ("_ended", "_half_life", "_seconds", "_seen_ended", "_seen_seconds", "parallel")

    def __init__(self, concurrency: int) -> None:
        self._half_life = 2 * concurrency + 8  # letters
        self._seen_seconds, self._seen_ended = 0.0, 0
        self.forget()

    def forget(self) -> None:
        """Forget everything that was noted."""
        self._seconds, self._ended = 0.0, 0.0
        self.parallel = 1  # the most letters that ran at once

    def note(self, seconds: float, ended: int, peak: int) -> bool:
        """
        Take in that slots were occupied for *seconds*, and that *ended* letters have ended, both since the start.

        *peak* is the most letters that ran at once since the last note. Return whether a letter has ended since then.
        """
        new = ended - self._seen_ended
        keep = 0.5 ** (new / self._half_life)
        self._seconds = self._seconds * keep + seconds - self._seen_seconds
        self._ended = self._ended * keep + new
        self._seen_seconds, self._seen_ended = seconds, ended
        self.parallel = peak if new > self._half_life else max(peak, self.parallel)
        return new > 0

    @property
    def mean(self) -> float | None:
        """The mean run time in seconds; None if no letter has ended."""
        return self._seconds / self._ended if self._ended else None
