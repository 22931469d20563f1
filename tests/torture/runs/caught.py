"""
Builds that are broken on purpose, tried until they are caught.

One round may let a broken build pass: its faults come at random, and on a machine that does much else
its workers may not even have started when patience ends. So there are more rounds, with more patience.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.torture.checker import Verdict

PATIENCE = (4, 30, 120)  # seconds


def by(rule: str, folder: Path, round_: Callable[[Path, float], Verdict]) -> None:
    """Play rounds, each in a folder of its own and with its patience, until one is blamed by *rule*."""
    verdicts = []
    for patience in PATIENCE:
        place = folder / f"patience-{patience}"
        place.mkdir()
        verdicts.append(round_(place, patience))
        if any(rule in problem for problem in verdicts[-1].problems):
            return
    raise AssertionError(verdicts)
