"""
What an application declares about a queue, checked.

Owns the sentences about a wrong limit; the error lists all problems at once. Knows no store: it only makes the
value that stores get.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, TypedDict

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.errors import SettingsError
from redrive.stores.contract import QueueSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

_WHOLE = ("concurrency", "max_size", "max_in_flight")


class QueueLimits(TypedDict):
    """The limits of a queue; None is no limit."""

    concurrency: int | None
    max_size: int | None
    rate: float | None
    max_in_flight: int | None


_KNOWN = (*QueueLimits.__annotations__, "ordered", "retry_budget")


def queue_spec(name: str, limits: QueueLimits, *, ordered: bool, slips: Iterable[str] = ()) -> QueueSpec:
    """Return the queue *name* as stores need it; raise SettingsError with every problem, *slips* included."""
    problems = [] if isinstance(name, str) and name else [f"the name of a queue is {name!r}; it must be text"]
    problems += [f"{slip} of queue {name!r} is no option{did_you_mean(slip, _KNOWN)}" for slip in slips]
    problems += [
        f"{limit} of queue {name!r} is {value!r}; it must be "
        f"{'whole and' if limit in _WHOLE else 'a finite number'} above 0, or absent for no limit"
        for limit, value in limits.items()
        if value is not None and not _is_limit(value, whole=limit in _WHOLE)
    ]
    if problems:
        raise SettingsError(problems)
    rate = None if limits["rate"] is None else float(limits["rate"])
    return QueueSpec(
        name=name,
        ordered=bool(ordered),
        max_size=limits["max_size"],
        rate=rate,
        max_in_flight=limits["max_in_flight"],
    )


def _is_limit(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return isfinite(value) and value > 0
