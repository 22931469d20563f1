"""The calls that users write complete in an editor and type-check; wrong ones are errors."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tests.typing import generate

from redrive import drafts
from redrive.core.breaker import BreakerRules
from redrive.engine.options import BreakerOptions

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_right_calls_pass_and_wrong_ones_are_errors():
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "tests/typing/api.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_the_types_of_app_sync_are_those_of_the_application():
    assert generate.FACES.read_text(encoding="utf-8") == generate.text(), "run tests/typing/generate.py"


def test_the_options_of_a_letter_are_what_a_draft_is_made_of():
    taken = inspect.signature(drafts.make_draft).parameters.values()
    by_name = {one.name: one.annotation for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY}
    known = {name: kind.__forward_arg__ for name, kind in drafts.DraftOptions.__annotations__.items()}
    assert by_name == known


def test_the_options_of_a_breaker_are_its_rules():
    known = {name: kind.__forward_arg__ for name, kind in BreakerOptions.__annotations__.items()}
    assert known == BreakerRules.__annotations__
