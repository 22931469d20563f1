"""
The statements that the store asks, by name.

Owns putting them together: the texts of `statements.sql` with the columns of a letter, which
`rows` reads again. Knows no call and no connection.
"""

from __future__ import annotations

from redrive.stores import sql_files
from redrive.stores.postgres import rows
from redrive.stores.postgres.sql import schema


def statements(schema_name: str) -> dict[str, str]:
    """Return every named statement, and the pieces that others are built of."""
    quoted = schema.quoted(schema_name)
    letter = rows.LETTER.replace("{schema}", quoted).strip()
    pieces = {"schema": quoted, "letter": letter, "lean": rows.without_payload(letter)}
    return {**sql_files.named("redrive.stores.postgres.sql", "statements.sql", pieces), **pieces}
