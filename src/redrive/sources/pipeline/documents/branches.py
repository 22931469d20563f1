"""
When a document has ended.

Owns the rule that decides it from notes about its branches: which of them reached the end, and which were put aside
(DLQ, quarantine). A branch's name says how many others left the same fan-out ("2of3"), so a missing note is noticed:
such a document has not ended, wherever its missing branch is. Pure: instants are numbers that someone else read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def ended_at(ends: Mapping[str, float], holds: Mapping[str, float], branch: str = "") -> float | None:
    """
    Return when the last part of *branch* reached the end; None if some part did not, or may not have.

    *ends* and *holds* are the newest instants at which a branch reached the end, and at which it was put aside. What
    was put aside counts as ended only when every end below it is newer: a crash may leave two copies of a branch, one
    at the end and one in the DLQ.
    """
    found = [ends[branch]] if branch in ends else []
    for members in _fan_outs(branch, ends.keys() | holds.keys()):
        for member in members:
            instant = ended_at(ends, holds, member)
            if instant is None:
                return None
            found.append(instant)
    if not found or min(found) <= holds.get(branch, float("-inf")):
        return None
    return max(found)


def _fan_outs(branch: str, known: set[str]) -> list[list[str]]:
    """Return the fan-outs right below *branch* that any note names, each with all its branches."""
    before = f"{branch}/" if branch else ""
    parts = {name[len(before) :].partition("/")[0] for name in known if name.startswith(before) and name != branch}
    counts = {int(part.rpartition("of")[2]) for part in parts if is_part(part)}
    return [[f"{before}{number}of{count}" for number in range(1, count + 1)] for count in sorted(counts)]


def is_part(text: str) -> bool:
    """Return whether *text* is a part of a branch's name, such as "2of3"."""
    number, _, count = text.partition("of")
    return number.isdecimal() and count.isdecimal() and len(count) <= 4 and 1 <= int(number) <= int(count)  # noqa: PLR2004
