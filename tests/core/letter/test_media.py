from __future__ import annotations

import pytest

from redrive.core.letter.media import is_json


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/json", True),
        ("application/geo+json", True),
        ("text/x-json", True),
        ("application/x-ndjson", False),  # many values
        ("application/octet-stream", False),
        ("json", False),
        ("", False),
    ],
)
def test_handlers_and_operators_agree_on_what_is_json(content_type, expected):
    assert is_json(content_type) is expected
