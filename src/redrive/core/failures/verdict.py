"""
What a group of failures looks like.

Owns the verdict. The rules, in order; the first that holds gives the verdict:

1. the worker died while running the letter: *poison* (the letter kills its worker);
2. every failure is of category network or resource: *dependency* (what the handler calls is away);
3. at least 10 letters, and at least half of all finished letters of the same kinds failed this
   way: *systemic* (the code or its surroundings, not the letters);
4. every failure is of category validation or permanent, or letters of the same kinds were
   delivered: *poison* (these letters, not their siblings);
5. otherwise *unclear*: too few finished letters to tell.

Knows no store: the caller brings the counts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from redrive.core.letter import Category
from redrive.core.why import Why

CRASHED = str(Why.WORKER_CRASHED)  # the fingerprint of every letter that killed its worker
_ELSEWHERE = {Category.NETWORK, Category.RESOURCE}
_OWN_FAULT = {Category.VALIDATION, Category.PERMANENT}
_ENOUGH = 10  # letters


class Verdict(StrEnum):
    """What a group of failures looks like."""

    POISON = "poison"
    SYSTEMIC = "systemic"
    DEPENDENCY = "dependency"
    UNCLEAR = "unclear"


class Evidence(NamedTuple):
    """What is known of a group: its letters, and what became of other letters of the same kinds."""

    fingerprint: str
    kinds: tuple[str, ...]
    categories: tuple[str, ...]
    this_way: int  # letters of the group
    failed: int  # failed letters of these kinds, the group's included
    delivered: int  # delivered letters of these kinds


def judge(group: Evidence) -> tuple[Verdict, str]:
    """Return the verdict on *group* and the rule that gave it, in words."""
    categories, kinds = set(group.categories), ", ".join(sorted(group.kinds))
    finished = group.delivered + group.failed
    if group.fingerprint == CRASHED:
        return Verdict.POISON, "workers died while running these letters"
    if categories and categories <= _ELSEWHERE:
        return Verdict.DEPENDENCY, f"every failure is of category {_words(categories)}: what the handler calls is away"
    if group.this_way >= _ENOUGH and 2 * group.this_way >= finished:
        return Verdict.SYSTEMIC, f"{group.this_way} of {finished} finished letters of {kinds} fail this way"
    if categories and categories <= _OWN_FAULT:
        return Verdict.POISON, f"every failure is of category {_words(categories)}: trying again unchanged cannot help"
    if group.delivered:
        siblings = f"while others of {kinds} were delivered: {group.delivered}"
        return Verdict.POISON, f"{group.this_way} failed this way {siblings}"
    return Verdict.UNCLEAR, f"too few finished letters of {kinds} to tell"


def _words(categories: set[str]) -> str:
    return " or ".join(sorted(categories))
