"""The page about letters that do not run knows every cause that `explain` can name."""

from __future__ import annotations

import inspect
import re

from tests.docs.pages import DOCS

from redrive.core import waiting

PAGE = (DOCS / "how-to" / "my-letter-does-not-run.md").read_text(encoding="utf-8")


def test_every_cause_has_a_line_and_no_other():
    causes = set(re.findall(r'cause="(\w+)"', inspect.getsource(waiting)))
    assert len(causes) > 5
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == causes
