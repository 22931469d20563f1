"""
Which letters go next when several priorities are due.

Owns the shares: of ten letters six are high, three medium and one low, so that low ones wait longer but never for
ever. Knows nothing of letters or stores: it deals from any iterators.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

SHARES = (0, 1, 0, 0, 1, 0, 2, 0, 1, 0)  # which stream each letter of ten is dealt from, high first
_END: Any = object()


def take(streams: Sequence[Iterator[T]], limit: int, dealt: int) -> tuple[list[T], int]:
    """
    Take up to *limit* items from the high, medium and low stream; return them and the next *dealt*.

    The share of a stream that has ended goes to the highest one that has not. Give the returned number to the next
    call, and the shares hold over any number of calls, even with a limit of 1.
    Reads no item ahead: an item that was not returned is still in its stream.
    """
    taken: list[T] = []
    going = list(range(len(streams)))
    while len(taken) < limit and len(going) > 1:
        due = SHARES[(dealt + len(taken)) % len(SHARES)]
        place = due if due in going else going[0]
        item = next(streams[place], _END)
        if item is _END:
            going.remove(place)
        else:
            taken.append(item)
    if len(taken) < limit:  # one is left; without the rounds it costs a tenth
        taken.extend(islice(streams[going[0]], limit - len(taken)))
    return taken, (dealt + len(taken)) % len(SHARES)
