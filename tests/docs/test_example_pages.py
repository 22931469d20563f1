"""Pages that walk through an example show its code as it is; tests/examples run it."""

from __future__ import annotations

import pytest
from tests.docs.pages import DOCS, blocks
from tests.examples.reader import EXAMPLES

PAGES = {"how-to/fastapi.md": "fastapi_service", "how-to/django.md": "django_outbox"}
SHOWN = [(page, block) for page in PAGES for block in blocks(DOCS / page, "python")]


@pytest.mark.parametrize(("page", "block"), SHOWN, ids=lambda value: getattr(value, "title", value))
def test_the_page_shows_the_example_as_it_is(page, block):
    assert block.code in (EXAMPLES / PAGES[page] / block.title).read_text(encoding="utf-8")


def test_both_pages_show_something():
    assert {page for page, _ in SHOWN} == set(PAGES)
