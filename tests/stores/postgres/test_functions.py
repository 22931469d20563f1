"""The functions: each is defined once, each that is called is there, and none is there for nothing."""

from __future__ import annotations

import re
from collections import Counter

from tests.torture.nursery import ROOT

from redrive.core.changes import MAX_CYCLES, MAX_TRIES
from redrive.stores.postgres.sql import schema

STORE = ROOT / "src" / "redrive" / "stores" / "postgres"
DEFINITION = re.compile(r"^CREATE OR REPLACE FUNCTION \{schema\}\.(\w+)\(.*?\$\$;$", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"\{schema\}\.(\w+)\(")
ANY_DEFINITION = re.compile(r"\bCREATE(?:\s+OR\s+REPLACE)?\s+FUNCTION\s+(\S+?)\(", re.IGNORECASE)
FOR_PEOPLE = {"outbox_enqueue", "outbox_replay", "outbox_json"}  # documented in how-to/outbox.md
FOR_WORKERS_BEFORE = {"outbox_take_one"}  # that know only the schema in tests/torture/previous
UNFILLED = re.compile(r"(?<!')\{[a-z_]+\}")  # what follows a quote is the literal of an array


def _functions() -> str:
    return "\n".join(file.read_text() for file in sorted((STORE / "sql" / "functions").glob("*.sql")))


def _definitions() -> dict[str, str]:
    return {found.group(1): found.group(0) for found in DEFINITION.finditer(_functions())}


def test_every_function_is_defined_once_and_in_the_folder_of_functions():
    folders = ("functions", "migrations")
    texts = [file.read_text() for folder in folders for file in (STORE / "sql" / folder).glob("*.sql")]
    counts = Counter(name for text in texts for name in ANY_DEFINITION.findall(text))
    assert counts == Counter({f"{{schema}}.{name}": 1 for name in _definitions()})
    assert len(counts) > 40


def test_every_file_of_functions_is_applied():
    assert sorted(schema.FUNCTIONS) == sorted(file.stem for file in (STORE / "sql" / "functions").glob("*.sql"))


def test_every_function_that_is_called_exists_and_every_one_is_called_or_meant_for_people():
    defined = _definitions()
    views_and_triggers = DEFINITION.sub("", _functions())
    sources = [file.read_text() for file in (STORE / "sql" / "statements.sql", *STORE.rglob("*.py"))]
    called = {name for text in (views_and_triggers, *sources) for name in CALL.findall(text)}
    for name, text in defined.items():
        called |= set(CALL.findall(text)) - {name}
    called.add("outbox_missing_indexes")  # migrating.py puts the schema's name before it
    assert called - defined.keys() == set(), "these do not exist"
    assert defined.keys() - called - FOR_PEOPLE - FOR_WORKERS_BEFORE == set(), "nothing calls these"
    before = (ROOT / "tests" / "torture" / "previous" / "schema.sql").read_text()
    assert all(f".{name}(" in before for name in FOR_WORKERS_BEFORE)


def test_constants_come_from_core():
    text = schema.functions("redrive")
    assert UNFILLED.findall(text) == []
    assert f"jsonb_array_length(p_tries) < {MAX_TRIES} " in text
    assert f"jsonb_array_length(p_tries) - {MAX_TRIES - 1})" in text
    assert f"jsonb_array_length(o.failure_history) >= {MAX_CYCLES} " in text


async def test_a_schema_has_these_functions_and_no_others(store, connection):
    rows = await connection.fetch("SELECT proname FROM pg_proc WHERE pronamespace = 'redrive'::regnamespace")
    assert sorted(row[0] for row in rows) == sorted(_definitions())
