"""The file is moved and replaced under running workers: every acknowledged letter is in one of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.runs import moves

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture

MOVES, SEED = 15, 20_260_103


def test_a_file_that_is_moved_and_replaced_loses_nothing_that_was_acknowledged(tmp_path: Path):
    verdict = moves.at_random(tmp_path, MOVES, SEED)
    print(verdict)
    assert verdict.ok, f"replay: python -m tests.torture moves\n{verdict.problems}"
