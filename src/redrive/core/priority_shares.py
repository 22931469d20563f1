"""
Who goes next when letters of several priorities are due.

Owns the shares: of ten turns high has six, medium three and low one, so that low ones wait
longer but never for ever. Knows nothing of letters or stores: it deals from any iterators.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

TURNS = (0, 1, 0, 0, 1, 0, 2, 0, 1, 0)  # whose turn it is: the place in the streams, high first
_END: Any = object()


def take(streams: Sequence[Iterator[T]], limit: int, turn: int) -> tuple[list[T], int]:
    """
    Take up to *limit* items from the high, medium and low stream; return them and the next *turn*.

    A turn whose stream has ended passes to the highest one that has not. Give the returned
    turn to the next call, and the shares hold over any number of calls, even with a limit of 1.
    Reads no item ahead: whatever was not returned is still in its stream.
    """
    taken: list[T] = []
    going = list(range(len(streams)))
    while len(taken) < limit and len(going) > 1:
        due = TURNS[(turn + len(taken)) % len(TURNS)]
        place = due if due in going else going[0]
        item = next(streams[place], _END)
        if item is _END:
            going.remove(place)
        else:
            taken.append(item)
    if len(taken) < limit:  # one is left; without the rounds it costs a tenth
        taken.extend(islice(streams[going[0]], limit - len(taken)))
    return taken, (turn + len(taken)) % len(TURNS)
