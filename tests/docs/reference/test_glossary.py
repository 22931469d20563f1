"""The glossary has the words that readers look for, each once."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.docs.pages import DOCS

TEXT = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^\| \*\*(.+?)\*\*(.*?) \|", TEXT, re.MULTILINE)
LOOKED_FOR = [
    "caution",
    "desk",
    "disposition",
    "engine",
    "flood",
    "generation",
    "inbox",
    "origin",
    "outbox",
    "parked",
    "poison",
    "prefetch",
    "relay",
    "round",
    "subscription",
    "sweep",
    "target",
    "tenant",
    "verdict",
    "watermark",
    "worker",
]
SYNONYMS = [
    "event_type",
    "handler_name",
    "fingerprint",
    "source",
    "limit",
    "retries_exhausted",
    "worker_died",
    "dlq_event",
    "target",
    "workspace_id",
]


@pytest.mark.parametrize("word", LOOKED_FOR)
def test_a_word_that_readers_missed_is_there(word):
    assert word in {name for name, _ in WORDS}


@pytest.mark.parametrize("word", SYNONYMS)
def test_another_name_for_the_same_thing_is_named(word):
    assert f"`{word}`" in TEXT.split("## The same thing in other words")[1]


def test_no_word_has_two_lines():
    assert [word for word, count in Counter(WORDS).items() if count > 1] == []
