"""The page about the evidence quotes the evidence files, and the files that it quotes found no problem."""

from __future__ import annotations

import msgspec
import pytest
from tests.docs.pages import DOCS, ROOT

FILES = sorted((ROOT / "tests" / "torture" / "evidence").glob("*.json"))
PAGE = (DOCS / "explanation" / "evidence.md").read_text()
QUOTED = {
    "kafka-kills": ("kills", "produced", "handled", "dead", "ran_twice", "dead_twice", "looks"),
    "kills": ("samples", "runs", "duplicated_runs", "leases_ended"),
    "pg-crowd": ("delivered",),
    "pg-lanes": ("delivered",),
    "pg-server": ("samples",),
    "pg-workers": ("samples",),
    "pipeline-kills": ("documents", "kills", "ended", "letters", "quarantined", "repeats_done", "repeats_dlq"),
    "powercuts": ("cuts", "answers"),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_run_that_is_kept_found_a_problem(path):
    found = msgspec.json.decode(path.read_bytes())
    assert (found["problems"], found["done"]) == ([], found["target"])
    assert {found["counts"].get(name, 0) for name in ("lost", "unexpected", "stale", "stuck", "unearned")} == {0}


@pytest.mark.parametrize(("name", "counts"), QUOTED.items(), ids=QUOTED)
def test_the_page_quotes_what_the_files_say(name, counts):
    found = msgspec.json.decode((ROOT / "tests" / "torture" / "evidence" / f"{name}.json").read_bytes())
    assert [count for count in counts if f"{found['counts'][count]:,}" not in PAGE] == []


def test_every_evidence_file_is_explained():
    explained = (ROOT / "tests" / "torture" / "evidence" / "README.md").read_text()
    assert [path.name for path in FILES if f"| `{path.name}` |" not in explained] == []
