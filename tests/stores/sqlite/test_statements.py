"""The statements: every one can be prepared, every one is sent, and none stands in a Python file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import ROOT

from redrive.stores import sql_files

if TYPE_CHECKING:
    from pathlib import Path

STORE = ROOT / "src" / "redrive" / "stores" / "sqlite"
JOBS = sorted(file.stem for file in (STORE / "sql").glob("*.sql"))
MODULES = {
    "writing": ["writing", "arrivals"],
    "putting": ["putting", "arrivals"],
}  # elsewhere a file belongs to the module of its name
STATEMENT = re.compile(r"\"(?:SELECT|INSERT|UPDATE|DELETE)\b[^\"]*\bletters\b")
BUILT = {"compiling.py", "scanning.py"}  # their statements are made of a query


@pytest.mark.parametrize("job", JOBS)
def test_every_statement_of_a_file_is_sent_by_its_module(job):
    texts = "".join(_file(module).read_text() for module in MODULES.get(job, [job]))
    named = sql_files.named("redrive.stores.sqlite.sql", f"{job}.sql", {})
    sent = set(re.findall(r"[\"'](\w+)[\"']", texts))
    assert named.keys() - sent == set()
    assert len(named) == len(re.findall(r"^-- name: ", (STORE / "sql" / f"{job}.sql").read_text(), re.MULTILINE))


def test_no_statement_about_letters_stands_in_python():
    found = {file.name for file in STORE.rglob("*.py") if STATEMENT.search(file.read_text())}
    assert found - BUILT == set()


@pytest.mark.parametrize("job", sorted(set(JOBS) - {"writing"}))  # those are made of fields, and sent by every test
def test_every_statement_can_be_prepared(sqlite, sql, job):
    from importlib import import_module  # noqa: PLC0415

    path = _file(MODULES.get(job, [job])[0]).relative_to(ROOT / "src").with_suffix("")
    module = import_module(".".join(path.parts))
    for name, text in module._SQL.items():
        if name != "fence":
            marks = 2 if name == "expired_or_dead" else 0
            sql(f"EXPLAIN {text.replace('{names}', ', '.join('?' * marks))}", *[None] * _most(text, marks))


def _file(module: str) -> Path:
    (found,) = STORE.rglob(f"{module}.py")
    return found


def _most(text: str, more: int) -> int:
    """Return how many parameters a statement takes."""
    numbered = [int(n) for n in re.findall(r"\?(\d+)", text)]
    plain = len(re.findall(r"\?(?!\d)", re.sub(r"--.*", "", text)))
    return max([plain + more, *numbered])
