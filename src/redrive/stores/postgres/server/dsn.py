"""
The server's URL, read with care.

Owns the refusal of a URL that cannot be read, or is likely to mean something else than it says: a
password with a bare `/`, `#`, `?` or `@` falls apart, and code that reads its pieces as host, port or
database would show them. Says nothing of what stands in it. Knows no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redrive.errors import SettingsError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

UNREADABLE = (
    "cannot read the store's URL: it must be like postgresql://user:password@host:port/database; percent-encode the "
    "user and the password (/ is %2F, # is %23, ? is %3F, @ is %40, : is %3A, % is %25)"
)


def read_dsn(url: str) -> SplitResult:
    """Return *url* in its parts; raise SettingsError, which quotes nothing, if it cannot be read."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it quotes the URL
        raise SettingsError([UNREADABLE]) from None
    if _is_torn(parts):
        raise SettingsError([UNREADABLE])
    return parts


def _is_torn(parts: SplitResult) -> bool:
    """Whether a piece of the password seems to stand where the database or a parameter should."""
    behind = parts.path + parts.query.partition("=")[0]
    return parts.netloc.count("@") > 1 or "@" in behind or bool(parts.fragment)
