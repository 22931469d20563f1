"""
How the letters of a bulk verb did, on the command line.

Owns the lines with which a bulk verb ends: where to look, how the letters of a canary did, how to go on.
Knows no store: `desk/act/outcome.py` says what an outcome is.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from redrive.cli.output import letters, note, say

if TYPE_CHECKING:
    from redrive.desk.act.acts import Done
    from redrive.desk.act.outcome import PlanOutcome
    from redrive.desk.desk import Desk


async def wait_for(desk: Desk, done: Done, seconds: float) -> PlanOutcome | None:
    """Wait until the letters that were replayed have come to rest; None if there are none."""
    if not done.plan or not done.acted:
        return None
    note(f"waiting for {letters(done.acted)} to come to rest, at most {seconds:g} s")
    return await desk.outcome(done.plan, wait=seconds)


def say_where_to_look(done: Done) -> None:
    """Name the command that lists the letters of a plan; those that were purged are in no list."""
    if done.plan and done.acted and done.verb != "purge":
        told = "see how they do" if done.verb == "replay" else "look at them"
        say(f"{told}: {_listing(done.plan)}")


def say_outcome(seen: PlanOutcome, done: Done, *, canary: bool) -> None:
    """Say how the letters did, and what to do next."""
    say(", ".join(text for count, text in _counts(seen) if count))
    if seen.failed:
        say(f"look at those that failed again: {_listing(seen.plan, 'status:failed')}")
    if seen.waiting:
        say(f"look at those that still wait: {_listing(seen.plan, 'status:pending,in_flight')}")
    if canary and seen.healthy:
        say(f"go on with the rest: redrive replay -q {shlex.quote(done.query)}")


def _counts(seen: PlanOutcome) -> list[tuple[int, str]]:
    return [
        (seen.delivered, f"{seen.delivered} delivered"),
        (seen.failed, f"{seen.failed} failed again"),
        (seen.waiting, f"{seen.waiting} still waiting"),
        (seen.gone, f"{seen.gone} acted on by another operator since, or removed"),
    ]


def _listing(plan: str, status: str = "") -> str:
    from redrive.desk.act.outcome import query_of

    return f"redrive ls -q {shlex.quote(f'{query_of(plan)} {status}'.strip())}"
