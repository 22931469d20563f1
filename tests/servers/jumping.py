"""
A server whose wall clock jumps, in one of its databases.

Owns a function that stands before the server's own `clock_timestamp()` in the search path of everybody who connects:
what it says is moved as far as the test wants. The machine's clock stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

_PREPARE = """
CREATE SCHEMA jumped;
CREATE TABLE jumped.span (seconds double precision NOT NULL);
INSERT INTO jumped.span VALUES (0);
CREATE FUNCTION jumped.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT pg_catalog.clock_timestamp() + (SELECT seconds FROM jumped.span) * interval '1 second' $$;
"""


def prepare(server: Postgres) -> None:
    """Let everybody who connects from now on see the clock that `jump` sets."""
    server.psql(_PREPARE)
    server.psql("ALTER DATABASE postgres SET search_path = jumped, pg_catalog, public")


def jump(server: Postgres, seconds: float) -> None:
    """Set the clock to *seconds* from the real time: before it, if negative."""
    server.psql(f"UPDATE jumped.span SET seconds = {seconds}")  # noqa: S608 - a number
