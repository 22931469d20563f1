"""
Backoff functions, as `redrive check` sees them.

Owns which names waiting letters carry, and what the check says of a name that the application does not register.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.stores.contract import Store

_PAGE, _PAGES = 500, 20  # a check looks at the newest ten thousand of these letters
_CARRIED = "status:pending policy:custom*"


async def carried(store: Store) -> Counter[str]:
    """Return how many waiting letters carry each name."""
    from redrive.core.policy.backoffs import Backoffs
    from redrive.core.query import parse

    found, cursor, lacking = Counter[str](), None, Backoffs().lacking
    for _ in range(_PAGES):
        page = await store.find(parse(_CARRIED), cursor=cursor, limit=_PAGE, payloads=False)
        found.update(name for letter in page.letters if (name := lacking(letter.policy)))
        cursor = page.cursor
        if cursor is None:
            break
    return found


def problems_of(app: Redrive, named: Counter[str]) -> list[str]:
    """Return a sentence for each name that letters or handlers carry and *app* does not register."""
    known = set(app.backoffs)
    return [
        *(
            f"backoff function {name!r} is not registered: {count} waiting letters name it and stay pending; call "
            f"app.backoff({name!r}, function)"
            for name, count in sorted(named.items())
            if name not in known
        ),
        *app.unknown_backoffs(),
    ]


def notes_of(app: Redrive | None, named: Counter[str]) -> list[str]:
    """Return what to say of the names when nothing is wrong with them."""
    if app is None:
        told = [f"{name!r} ({count})" for name, count in sorted(named.items())]
        return [f"waiting letters name backoff functions of the application: {', '.join(told)}"] if told else []
    names = ", ".join(map(repr, app.backoffs))
    return [f"backoff functions: {names}"] if names else []
