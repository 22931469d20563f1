"""
A server whose wall clock jumps, or differs from that of its standby, in one of its databases.

Owns a function that stands before the server's own `clock_timestamp()` in the search path of every session, and moves
the time as far as the test wants. A jump is a row, so a standby follows it. A skew is an option of one server, and its
standby does not share it. The clock of the machine stays as it is.
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
AS $$ SELECT pg_catalog.clock_timestamp() + (
             (SELECT seconds FROM jumped.span) + coalesce(current_setting('jumped.skew', true)::double precision, 0)
             ) * interval '1 second' $$;
"""


def skew(seconds: float) -> dict[str, str]:
    """Return the option of a server whose clock is *seconds* off, in a database that `prepare` has prepared."""
    return {"jumped.skew": str(seconds)}


def prepare(server: Postgres) -> None:
    """Let every session from now on see the clock that `jump` sets."""
    server.psql(_PREPARE)
    server.psql("ALTER DATABASE postgres SET search_path = jumped, pg_catalog, public")


def jump(server: Postgres, seconds: float) -> None:
    """Set the clock to *seconds* from the real time: before it, if negative."""
    server.psql(f"UPDATE jumped.span SET seconds = {seconds}")  # noqa: S608 - a number
