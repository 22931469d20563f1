"""The architecture page names files and rooms that exist, and its picture has the states and ways of a letter."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import DOCS, blocks

import redrive
from redrive import Status

PAGE = DOCS / "explanation" / "architecture.md"
SOURCE = Path(redrive.__file__).parent


def test_every_file_and_room_that_the_page_names_exists():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = [room for room, _ in rows] + [path for _, paths in rows for path in re.findall(r"`(.*?)`", paths)]
    assert len(named) > 15
    assert [each for each in named if not ((SOURCE / each).exists() or (SOURCE / f"{each}.py").exists())] == []


def test_the_picture_has_every_state():
    picture = blocks(PAGE, "mermaid")[0].code
    assert set(re.findall(r'\(\["(\w+)"\]\)', picture)) == {str(status) for status in Status}
