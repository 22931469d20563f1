"""
How secrets are written: `env:NAME`, `file:PATH`, each with an optional ` until 2027-01-31`.

Owns that form and what makes a key too weak. `settings` reads what a reference names; nothing here shows a secret.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import SettingsError
from redrive.sources.webhook.signatures import standard
from redrive.sources.webhook.signatures.verdict import LEAST_BYTES, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_FORM = re.compile(r"((?:env|file):[^\s].*?)(?:\s+until\s+(\S+))?\s*", re.DOTALL)
WRITTEN = "write it as env:NAME or file:PATH, with ' until 2027-01-31' behind it while a secret is replaced"


class Reference(NamedTuple):
    """Where a secret is, and until when it counts."""

    place: str
    ends: float | None = None  # seconds since the epoch


def read_reference(text: object) -> Reference | None:
    """Return what *text* refers to, or None if it is no reference; it may be the secret itself, so do not show it."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        return Reference(found[1], None if found[2] is None else _instant(found[2]))
    except ValueError:
        return None


def resolve(whose: str, texts: Iterable[str], read: Callable[[str], str], *, is_standard: bool) -> list[Secret]:
    """Return the secrets of *whose*; raise SettingsError with every problem, none of which shows a secret."""
    problems: list[str] = []
    secrets: list[Secret] = []
    for text in texts:
        reference = read_reference(text)
        if reference is None:
            problems.append(f"a secret of {whose} is not a reference; {WRITTEN}")
            continue
        try:
            value = read(reference.place)
        except SettingsError as error:
            problems += [f"{whose}: {problem}" for problem in error.problems]
            continue
        key = standard.key_of(value) if is_standard else value.encode("utf-8", "surrogateescape")
        problems += _key_problems(f"the secret {reference.place} of {whose}", key)
        secrets.append(Secret(key or b"", reference.ends))
    if problems:
        raise SettingsError(problems)
    return secrets


def _key_problems(which: str, key: bytes | None) -> list[str]:
    if key is None:
        return [f"{which} begins like a key of Standard Webhooks and is none; copy it again, whole"]
    if len(key) < LEAST_BYTES:
        return [f"{which} is {len(key)} bytes long and must have {LEAST_BYTES} or more; make a longer one"]
    return []


def _instant(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
