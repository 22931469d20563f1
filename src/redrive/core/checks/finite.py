"""
Numbers that JSON has no word for.

Owns refusing NaN and infinities in plain data: a JSON encoder writes them as null, and what is kept
must not differ from what was sent. Knows no encoder.
"""

from __future__ import annotations

import math
from typing import Any

from redrive.errors import PayloadError


def check_finite(value: Any, what: str) -> None:
    """Raise PayloadError if a number in *value*, plain data of any depth, is NaN or infinite; *what* names it."""
    waiting = [value]  # not by recursion: how deep it is, is the sender's choice
    while waiting:
        found = waiting.pop()
        if isinstance(found, float) and not math.isfinite(found):
            raise PayloadError(
                f"cannot write {what} as JSON: it holds NaN or an infinite number, which JSON would make null; "
                "leave it out, or give it as text"
            )
        if isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, (list, tuple)):
            waiting += found
