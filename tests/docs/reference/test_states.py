"""The picture of the states in the docs is the table in the code."""

from __future__ import annotations

from pathlib import Path

from redrive.core.letter import Status
from redrive.core.moves import diagram

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "states.md").read_text()


def test_the_page_shows_the_diagram_that_the_code_draws():
    assert f"```mermaid\n{diagram()}\n```" in PAGE


def test_the_page_explains_every_state():
    assert [status for status in Status if f"| `{status}` |" not in PAGE] == []
