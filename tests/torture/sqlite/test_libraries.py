"""Another SQLite library looks at the file in the same process, all the time: nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.runs import kills, libraries

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture

CYCLES, SEED = 60, 20_260_102


def test_looks_with_another_library_amid_kills_lose_nothing(tmp_path: Path):
    outcome = kills.at_random(tmp_path, CYCLES, SEED, looking=True)
    print(outcome, libraries.looks(tmp_path))
    assert outcome.verdict.ok, f"replay: python -m tests.torture libraries\n{outcome.verdict.problems}"
    assert libraries.looks(tmp_path) > CYCLES


def test_looks_with_another_library_cost_nothing_after_a_clean_shutdown(tmp_path: Path):
    verdict = kills.in_peace(tmp_path, looking=True)
    assert verdict.ok, verdict.problems
    assert libraries.looks(tmp_path) > 10
