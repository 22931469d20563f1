"""
The judge: history and final rows in, a verdict out.

Owns every rule of what must hold, in the words of Jepsen's checkers, for every store alike.
What it judges is read by `looks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.torture import looks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.history import History
    from tests.torture.looks import Look, Row

AT_REST = ("delivered", "failed", "archived")
_SHOWN = 5


class Verdict(msgspec.Struct, kw_only=True):
    """Counts, and one line for each thing that must not be."""

    attempted: int = 0
    acknowledged: int = 0
    present: int = 0
    recovered: int = 0  # not acknowledged, but kept: allowed
    delivered: int = 0
    failed: int = 0
    runs: int = 0
    duplicated_runs: int = 0  # allowed, counted
    refused: int = 0  # settlements of stale claims that the store refused
    lost: int = 0
    unexpected: int = 0
    stale: int = 0  # settlements by a stale claim that were accepted
    stuck: int = 0
    unearned: int = 0  # delivered without having run
    samples: int = 0
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        return not self.problems

    def blame(self, what: str, letters: list[str] | list[object]) -> int:
        """Note a problem if there are any *letters*; return how many."""
        if letters:
            shown = ", ".join(map(str, letters[:_SHOWN]))
            self.problems.append(f"{len(letters)} {what}: {shown}")
        return len(letters)


def read_rows(place: str | Path) -> dict[str, Row]:
    with looks.at(place) as look:
        return look.rows()


def judge(history: History, place: str | Path, *, floor: int, at_rest: bool = True) -> Verdict:
    """Return the verdict on a run that is over; *floor* is the least number of deliveries that make it count."""
    rows = read_rows(place)
    verdict = Verdict(
        attempted=len(history.offered),
        acknowledged=len(history.accepted),
        present=len(rows),
        recovered=len(rows.keys() & (history.offered - history.accepted)),
        delivered=sum(row.status == "delivered" for row in rows.values()),
        failed=sum(row.status == "failed" for row in rows.values()),
        runs=sum(map(len, history.starts.values())),
        duplicated_runs=sum(len(tokens) - 1 for tokens in history.starts.values()),
        refused=history.refused,
    )
    _judge_presence(verdict, history, rows)
    _judge_claims(verdict, history)
    _judge_rest(verdict, history, rows, at_rest=at_rest)
    verdict.problems += books_problems(place)
    if verdict.delivered < floor:
        verdict.problems.append(f"only {verdict.delivered} letters were delivered, fewer than the floor of {floor}")
    return verdict


def _judge_presence(verdict: Verdict, history: History, rows: dict[str, Row]) -> None:
    kept = rows.keys() | history.purged
    verdict.lost = verdict.blame("acknowledged letters are lost", sorted(history.accepted - kept))
    verdict.unexpected = verdict.blame("letters were never offered", sorted(rows.keys() - history.offered))


def _judge_claims(verdict: Verdict, history: History) -> None:
    """Each claim settles at most once, tokens never repeat, and what was delivered is never claimed again."""
    stale: list[object] = []
    for letter, settled in history.settled.items():
        tokens = [each.token for each in settled]
        stale += [f"{letter}@{token} settled twice" for token in set(tokens) if tokens.count(token) > 1]
        delivered = [each.token for each in settled if each.to == "delivered"]
        later = [token for token in history.claims[letter] if delivered and token > min(delivered)]
        stale += [f"{letter} claimed @{token} after its delivery @{min(delivered)}" for token in later]
    for letter, tokens in history.claims.items():
        stale += [f"{letter}@{token} claimed twice" for token in set(tokens) if tokens.count(token) > 1]
    verdict.stale = verdict.blame("settlements or claims break the order of tokens", stale)


def _judge_rest(verdict: Verdict, history: History, rows: dict[str, Row], *, at_rest: bool) -> None:
    """What was accepted as settled stands so; what is delivered has run; nothing waits for ever."""
    forgotten = [
        f"{letter} is {rows[letter].status}"
        for letter, settled in history.settled.items()
        if letter in rows and any(each.to == "delivered" for each in settled) and rows[letter].status != "delivered"
    ]
    verdict.stale += verdict.blame("deliveries were forgotten", forgotten)
    unearned = [row.id for row in rows.values() if row.status == "delivered" and not history.effects[row.id]]
    verdict.unearned = verdict.blame("letters are delivered and never ran", unearned)
    behind = [
        f"{row.id} has token {row.token}"
        for row in rows.values()
        if history.claims[row.id] and row.token < max(history.claims[row.id])
    ]
    verdict.blame("letters are older than a claim on them", behind)
    if at_rest:
        waiting = [f"{row.id} is {row.status} ({row.why})" for row in rows.values() if row.status not in AT_REST]
        verdict.stuck = verdict.blame("letters are stuck", waiting)


# ---------------------------------------------------------------------- the books


def books_problems(place: str | Path) -> list[str]:
    """Check the books, the counters against a recount, and the files themselves."""
    with looks.at(place) as look:
        return sample(look) + look.damage()


def sample(look: Look) -> list[str]:
    """Check the books at this moment: enqueued equals the sum of all others, counters equal a recount."""
    kept, counted, odd = look.books()
    enqueued, purged = kept.pop("enqueued", 0), kept.pop("purged", 0)
    problems = (
        [f"{odd} rows have a lease without a claim, a negative count, or a mark that is not their status's"]
        if odd
        else []
    )
    if enqueued != sum(kept.values()) + purged:
        problems.append(f"the books do not balance: {enqueued} enqueued, {purged} purged, {kept}")
    kept = {status: n for status, n in kept.items() if n}
    if kept != counted:
        problems.append(f"the counters say {kept}, and a recount {counted}")
    return problems
