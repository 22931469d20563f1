"""
Why data was refused, without the data.

Owns the sentences made of what msgspec and pydantic raise: they quote the value that they refuse. It is
a piece of a user's payload, and no log, error or letter may hold it. What is left is the
path and the kind of the problem, and the text that validators of the user's own raise. Knows neither
library: both are known by what their errors carry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

_SHOWN = 3
_PATH = re.compile(r" - at (?:`key` in )?`\$[^`]*`\Z")
_QUOTING = {  # how a sentence of msgspec's begins that goes on with the value: what is left of it
    "Invalid enum value": "Invalid enum value",
    "Invalid value": "Invalid value",
    "Object contains unknown field": "Object contains an unknown field",
}
_TOLD = {  # by pydantic's name for the problem: what to say where its own words quote the value
    "union_tag_invalid": "Input tag does not match any of the expected tags",
    "uuid_parsing": "Input should be a valid UUID",
}


def of_msgspec(error: BaseException) -> str:
    """Return what msgspec says, without the value; the text of a `__post_init__` is the user's own and stays."""
    said = str(error)
    if error.__cause__ is not None:
        return said
    found = _PATH.search(said)
    for beginning, kept in _QUOTING.items():
        if said.startswith(beginning):
            return kept + (found.group() if found else "")
    return said


def of_pydantic(details: Any, names: Collection[str] | None = None) -> str:
    """
    Return what *details*, the `errors` of a pydantic error, say, without the values.

    With *names*, words of a path that are none of them are keys of the data, and are left out, too.
    """
    found = details(include_url=False, include_context=False, include_input=False)
    told = [f"{_path(each['loc'], names)}: {_TOLD.get(each['type'], each['msg'])}" for each in found[:_SHOWN]]
    return "; ".join(told) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _path(place: tuple[str | int, ...], names: Collection[str] | None) -> str:
    words = (str(each) if names is None or isinstance(each, int) or each in names else "[...]" for each in place)
    return ".".join(words) or "$"
