"""
Names that a user mistyped.

Owns the guess at what was meant, for settings and for options alike. Knows neither.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALIKE = 0.6


def did_you_mean(name: str, known: Iterable[str], *, alike: float = _ALIKE) -> str:
    """Return "; did you mean …?" for the nearest of the *known* names, nothing if none is *alike* enough."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=alike)
    return f"; did you mean {close[0]}?" if close else ""
