"""
Which letter a short id means.

Owns the lookup that every verb shares: the last characters of an id are enough where only one letter has them.
A whole id is spelled as stores write it, and not looked up. `core/letter/ids.py` says what a short id is.
Knows no verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.letter.ids import is_short, spelled, tail_of
from redrive.core.query import Query, Term
from redrive.errors import AmbiguousId, LetterNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.core.letter import Letter
    from redrive.stores.contract import Store

_CANDIDATES = 5


async def whole_id(store: Store, given: str) -> str:
    """Return the id that *given* means; raise LetterNotFound, or AmbiguousId if several letters end like that."""
    if not is_short(given):
        return spelled(given)
    ends = Term("id", "glob", (f"*{tail_of(given)}",))
    page = await store.find(Query((ends,)), limit=_CANDIDATES, payloads=False)
    if not page.letters:
        raise LetterNotFound(given)
    if len(page.letters) > 1:
        raise AmbiguousId(given, [_named(letter) for letter in page.letters], more=page.cursor is not None)
    return page.letters[0].id


async def whole_ids(store: Store, given: Iterable[str]) -> list[str]:
    """Return the ids that *given* mean, each once."""
    return list(dict.fromkeys([await whole_id(store, one) for one in given]))


def _named(letter: Letter) -> str:
    return f"{letter.id} ({letter.kind}, {letter.status})"
