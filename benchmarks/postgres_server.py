"""
The server that everybody is measured on.

Owns one PostgreSQL 18 with its data on a real disk and fsync on, its databases, and the same
start for every case: statistics fresh, dirty pages written. Its folder is kept, because it
holds the database with the old letters. Knows no contender.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from benchmarks.fresh import CaseFailed, base_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = "history"  # databases whose names begin like this outlive a run
_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
_OPTIONS = {"shared_buffers": "512MB"}  # the rest is as PostgreSQL ships it
_PATIENCE = 3_600.0


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the server for the length of a block; give its URL."""
    from tests.servers import postgres  # noqa: PLC0415 - only here

    home = base_folder() / "postgres-18"
    home.mkdir(exist_ok=True)
    try:
        server = postgres.start(18, home=home, **_OPTIONS)
    except postgres.Missing as error:
        raise CaseFailed(str(error)) from None
    try:
        _check_durable(server.url)
        _drop_leftovers(server.url)
        yield server.url
        _drop_leftovers(server.url)
    finally:
        server.stop()


def _check_durable(url: str) -> None:
    for setting in _DURABLE:
        found = value(url, f"SHOW {setting}")
        if found != "on":
            raise CaseFailed(f"{setting} is {found}: the figures would not be comparable")


def _drop_leftovers(url: str) -> None:
    for (name,) in rows(url, "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'"):
        if not name.startswith(KEPT):
            drop_database(url, name)


# ---------------------------------------------------------------------- databases


def database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def new_database(url: str, name: str, template: str = "template1") -> str:
    """Make an empty database, or a copy of *template*; return its URL."""
    drop_database(url, name)
    execute(url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    return database(url, name)


def drop_database(url: str, name: str) -> None:
    """Remove a database, whoever is connected to it."""
    execute(url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def exists(url: str, name: str) -> bool:
    """Whether there is such a database."""
    return bool(value(url, "SELECT 1 FROM pg_database WHERE datname = $1", name))


def calm(url: str) -> None:
    """Give everybody the same start: statistics fresh, dirty pages written."""
    execute(url, "VACUUM ANALYZE")
    execute(url, "CHECKPOINT")


@contextlib.contextmanager
def held_transaction(url: str) -> Iterator[None]:
    """Keep a snapshot open, as a forgotten report would: no dead row can be removed meanwhile."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))
        transaction = connection.transaction(isolation="repeatable_read")
        runner.run(transaction.start())
        runner.run(connection.fetchval("SELECT count(*) FROM pg_class"))
        yield
        runner.run(transaction.rollback())
        runner.run(connection.close())


# ---------------------------------------------------------------------- plain questions


def execute(url: str, sql: str) -> None:
    """Run *sql* outside any transaction."""
    asyncio.run(_ask(url, "execute", sql))


def rows(url: str, sql: str, *arguments: Any) -> list[Any]:
    """Return the rows of a query."""
    return list(asyncio.run(_ask(url, "fetch", sql, *arguments)))


def value(url: str, sql: str, *arguments: Any) -> Any:
    """Return the first column of the first row."""
    return asyncio.run(_ask(url, "fetchval", sql, *arguments))


async def _ask(url: str, way: str, sql: str, *arguments: Any) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await getattr(connection, way)(sql, *arguments, timeout=_PATIENCE)
    finally:
        await connection.close()
