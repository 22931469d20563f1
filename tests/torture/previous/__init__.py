"""
The previous version, frozen: schema 6, and a worker that knew nothing newer.

Schema 6 is what the migrations up to number 6 make; they are never edited (`tests/stores/migrations.sha256`).
`statements.sql` and `worker.py` are what a worker of that schema sent and did. When a release is made, they are
replaced by copies of that release's statements, and `SCHEMA` becomes its number.
"""

SCHEMA = 6
