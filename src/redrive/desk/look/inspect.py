"""
Look at letters.

Owns `show` and `ls`. Changes nothing; `views.py` says what a caller prints or sends. Knows no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.query import parse
from redrive.desk.look.ids import whole_id
from redrive.errors import LetterNotFound

if TYPE_CHECKING:
    from redrive.core.letter import Letter
    from redrive.stores.contract import Page, Store


async def show(store: Store, letter_id: str) -> Letter:
    """Return the letter, by its id or the end of it; raise LetterNotFound or AmbiguousId."""
    letter = await store.get(await whole_id(store, letter_id))
    if letter is None:
        raise LetterNotFound(letter_id)
    return letter


async def ls(
    store: Store, query_text: str = "", *, cursor: str | None = None, limit: int = 50, payloads: bool = True
) -> Page:
    """
    Return a page of letters that match, newest first; an empty query lists all of them.

    Without *payloads* theirs are empty: a list of large letters is then as quick as one of small ones.
    """
    return await store.find(parse(query_text), cursor=cursor, limit=limit, payloads=payloads)
