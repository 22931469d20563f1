"""
Which driver a connection belongs to.

Owns telling connections apart by the package their class comes from, so that nothing is imported
that the user has not imported already. Each driver has a file of its own, and only that file imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.errors import SourceError

if TYPE_CHECKING:
    from redrive.sources.outbox.face import AwaitedDriver, BlockingDriver

DRIVERS = {
    "psycopg": "psycopg3",
    "asyncpg": "asyncpg_",
    "sqlalchemy": "sqlalchemy_",
    "django": "django_",
}


def driver_of(connection: Any) -> BlockingDriver | AwaitedDriver:
    """Return the driver of a user's connection or session; raise SourceError for one that is not known."""
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    for package, module in DRIVERS.items():
        if package in packages:
            made: BlockingDriver | AwaitedDriver = import_module(f"{__name__}.{module}").driver(connection)
            return made
    raise unknown(connection)


def unknown(connection: object) -> SourceError:
    """Return the refusal of what is no connection."""
    kind = type(connection)
    return SourceError(
        f"cannot use the outbox on a {kind.__module__}.{kind.__qualname__}; give a connection of psycopg 3 or asyncpg, "
        "a Session or Connection of SQLAlchemy, or django.db.connection"
    )
