"""
The end of the story: a receipt, and whether it is true.

Owns the check of the end state, against the books and against what the handlers themselves wrote
down outside of redrive. A demo that comes out wrong says so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.demo import letters
from redrive.demo.screen import count
from redrive.demo.shop import FIXED, HANDLED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redrive.demo.screen import Screen

STATES = ("pending", "in_flight", "delivered", "failed", "archived", "purged")
EXPECTED = {
    "enqueued": letters.TOTAL,
    "pending": 0,
    "in_flight": 0,
    "delivered": letters.TOTAL - letters.CURSED,
    "failed": 0,
    "archived": letters.CURSED,
    "purged": 0,
}


def handled(folder: Path) -> Counter[str]:
    """Return how often each letter was handled, by the handlers' own account."""
    return Counter((folder / HANDLED).read_text(encoding="ascii").split())


def problems(books: Mapping[str, int], met: Mapping[str, int], times: Mapping[str, int]) -> list[str]:
    """Return what is wrong with the end state, in words; nothing if all is well."""
    wrong = [f"{name} is {books[name]}, not {wanted}" for name, wanted in EXPECTED.items() if books[name] != wanted]
    if books["enqueued"] != sum(books[name] for name in STATES):
        wrong.append("the books do not balance")
    if met["healed"] != letters.FLAKY:
        wrong.append(f"{met['healed']} payments healed by retries, not {letters.FLAKY}")
    if met["crashed"] != letters.CURSED:
        wrong.append(f"{met['crashed']} letters failed because they crash their process, not {letters.CURSED}")
    if met["rescued"] < met["held"]:
        wrong.append(f"the killed worker held {met['held']} letters, and {met['rescued']} were taken back")
    if met["neighbours"] != letters.INVOICES - letters.CURSED:
        wrong.append(f"{met['neighbours']} neighbours of the crash delivered, not {letters.INVOICES - letters.CURSED}")
    if len(times) != books["delivered"]:
        wrong.append(f"the handlers saw {len(times)} letters, and {books['delivered']} are delivered")
    return wrong


def show(screen: Screen, books: Mapping[str, int], met: Mapping[str, int], times: Mapping[str, int]) -> None:
    """Print the receipt."""
    screen.step("Receipt", "Every letter is accounted for.")
    screen.table(("letters", "what went wrong", "what helped", "now"), _rows(met))
    screen.sum("enqueued", STATES, books)
    again = sum(1 for number in times.values() if number > 1)
    screen.say(f"By the handlers' own notes {count(len(times))} letters were handled, {again or 'none'} of them twice")
    screen.say("[dim](a kill can fall between the work and its record: at least once)[/]")


def _rows(met: Mapping[str, int]) -> list[tuple[int, str, str, str]]:
    return [
        (met["healed"], "the provider hung up", "retries", "delivered"),
        (met["rescued"], "their worker was killed", "another worker took over", "delivered"),
        (letters.BAD, "the payload was wrong", "edit, then replay", "delivered"),
        (letters.VOUCHERS, "a bug in the handler", f"release {FIXED}, then replay", "delivered"),
        (letters.CURSED, "it crashes its process", "put aside with a reason", "archived"),
    ]
