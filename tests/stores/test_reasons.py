"""The reasons that SQL writes to a letter come from `core.why`: none is spelled in a statement or a function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import redrive.stores
from redrive.core.why import Why
from redrive.stores.postgres.sql import schema
from redrive.stores.sqlite import settling

FILES = sorted(Path(redrive.stores.__file__).parent.rglob("*.sql"))
SPELLED = re.compile(r"\bwhy\s*(?:=|IS DISTINCT FROM)\s*'(?!\{)")
INSERTED = re.compile(r"[,\s]why\)\s")  # the last column of an INSERT


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_statement_spells_a_reason(file):
    assert not SPELLED.search(file.read_text())


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.parent.name == "functions"], ids=lambda file: file.name
)
def test_no_function_of_postgresql_inserts_a_reason_of_its_own(file):
    text = file.read_text()
    assert len(INSERTED.findall(text)) <= len(re.findall(r"'\{why_enqueued\}'", text))


@pytest.mark.parametrize(
    "why", [Why.ENQUEUED, Why.SUCCEEDED, Why.BROADCAST, Why.REPLAYED, Why.ARCHIVED_BY, Why.RESTORED_BY]
)
def test_functions_of_postgresql_write_the_reasons_of_core(why):
    assert f"'{why.naming('')}'" in schema.functions("redrive")


def test_nothing_is_left_to_fill_in():
    assert "{why_" not in schema.functions("redrive")
    assert "why = 'succeeded'" in "".join(settling._SQL.values())
