"""The diagram in CONTRIBUTING names the files that a letter passes through, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

import redrive

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
SOURCE = Path(redrive.__file__).parent


def test_every_file_of_the_diagram_exists():
    named = re.findall(r"[a-z_]+(?:/[a-z_]+)*\.py\b", PAGE.read_text(encoding="utf-8").replace("docs/generate.py", ""))
    assert len(set(named)) > 15
    assert [path for path in named if not (SOURCE / path).is_file()] == []
