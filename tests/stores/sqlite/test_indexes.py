"""What is asked often is answered by an index, in order, whatever else the file holds."""

from __future__ import annotations

import apsw
import pytest
from tests.stores.samples import draft, failure, put

from redrive.core.query import Query, parse
from redrive.stores.sqlite import claiming, ordering, rows
from redrive.stores.sqlite.desk.compiling import compile_query
from redrive.stores.sqlite.desk.lensing import lens_sql


def _plan(sql, statement: str, *bindings: object) -> str:
    return "\n".join(row[3] for row in sql(f"EXPLAIN QUERY PLAN {statement}", *bindings))


async def test_a_claim_walks_only_letters_that_may_run_and_sorts_nothing(sqlite, sql):
    plan = _plan(sql, claiming._CANDIDATES, "work", "order.created", 1, 0, None)
    assert "USING INDEX letters_due" in plan
    assert "TEMP B-TREE" not in plan


async def test_a_sweep_walks_only_letters_in_flight(sqlite, sql):
    plan = _plan(sql, claiming._SQL["expired"], 0, 100)
    assert "USING INDEX letters_lease" in plan
    assert "TEMP B-TREE" not in plan


async def test_a_sign_of_life_walks_only_letters_in_flight(sqlite, sql):
    plan = _plan(sql, claiming._SQL["forget_holders"])
    assert "SCAN letters USING INDEX letters_lease" in plan


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("status:failed", "failed_"),
        ("status:failed kind:order.created", "failed_kind"),
        ("status:failed queue:work", "failed_queue"),
        ("status:failed error_type:ValueError", "failed_error_type"),
        ("status:failed category:network", "failed_category"),
        ("id:x", "letters_id"),
        ("status:archived", "archived_seq"),
        ("plan:x", "letters_plan"),
        ("plan:x status:delivered", "letters_plan"),
    ],
)
async def test_the_operators_questions_are_answered_by_an_index(sqlite, sql, path, text, index):
    from redrive.stores.sqlite.file.database import File  # noqa: PLC0415

    reader = File(path).reader()
    compiled = compile_query(parse(text), 0, reader)
    reader.close()
    plan = _plan(sql, f"SELECT {rows.ALL} FROM letters WHERE {compiled.where} ORDER BY seq DESC", *compiled.bindings)  # noqa: S608
    assert index in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("name", ["runs_after_dead", "fails_after_dead"])
async def test_a_sweep_walks_only_letters_that_do_not_wait_for_dead_ones(sqlite, sql, name):
    plan = _plan(sql, ordering._SQL[name], 100, None)
    assert "USING COVERING INDEX waits_failure" in plan
    assert "SCAN" not in plan


@pytest.mark.parametrize(("lens", "text", "index"), [("origin", "", "failed_"), ("tenant", "kind:a", "failed_kind")])
async def test_a_lens_walks_only_failed_letters(sqlite, sql, lens, text, index):
    from redrive.stores.sqlite.file.database import File  # noqa: PLC0415

    reader = File(sqlite.path).reader()
    compiled = compile_query(parse(f"status:failed {text}"), 0, reader)
    reader.close()
    plan = _plan(sql, lens_sql(lens, compiled.where), *compiled.bindings, 50)
    assert f"letters USING INDEX {index}" in plan


async def test_no_writer_waits_for_a_lens(sqlite, sql):
    await put(sqlite, draft("dead", origin="a/1", failure=failure()), draft("too", origin="b", failure=failure()))
    reading = apsw.Connection(str(sqlite.path)).execute(lens_sql("origin", "dead = 1"), (50,))
    first = next(reading)  # its snapshot stays open
    await put(sqlite, draft("new", origin="a/2", failure=failure()))

    assert [first[:2], *(row[:2] for row in reading)] == [("a", 1), ("b", 1)]
    assert [(group.value, group.count) for group in await sqlite.groups_by("origin", Query())] == [("a", 2), ("b", 1)]
