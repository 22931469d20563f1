"""
Where facts go.

Owns the list of listeners, and that no listener can stop a letter or another listener. Knows no exporter: each is a
function of a fact.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.facts import Delivered, Enqueued
from redrive.signals.log import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact

ROUTINE = (Enqueued, Delivered)
_LOUD = 3  # complaints per listener; a listener that always fails must not flood the log


class Hub:
    """Calls every listener with every fact."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Fact], None]] = []
        self._busy: list[Callable[[Fact], None]] = []  # also want routine facts
        self._broken: Counter[int] = Counter()

    def listen(self, listener: Callable[[Fact], None], *, routine: bool = True) -> None:
        """Call *listener* with every fact from now on; without *routine*, not with those of every letter."""
        if listener not in self._listeners:
            self._listeners.append(listener)
            if routine:
                self._busy.append(listener)

    def unlisten(self, listener: Callable[[Fact], None]) -> None:
        """Call *listener* no longer."""
        self._listeners.remove(listener)
        if listener in self._busy:
            self._busy.remove(listener)

    @property
    def wants_routine(self) -> bool:
        """Whether a listener wants the facts about every letter; if not, they need not be made."""
        return bool(self._busy)

    def __call__(self, fact: Fact) -> None:
        """Call the listeners; what one of them raises is logged and dropped."""
        for listener in self._busy if isinstance(fact, ROUTINE) else self._listeners:
            try:
                listener(fact)
            except Exception as error:  # noqa: BLE001 - listeners are user code; it must not stop a letter
                self._complain(listener, error)

    def _complain(self, listener: Callable[[Fact], None], error: Exception) -> None:
        self._broken[id(listener)] += 1
        if self._broken[id(listener)] <= _LOUD:
            write("warning", "redrive.listener.failed", {"listener": repr(listener), "error": type(error).__name__})
