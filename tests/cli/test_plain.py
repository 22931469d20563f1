from __future__ import annotations

import json

import pytest

from redrive.cli.output import json_text
from redrive.cli.plain import escaped_json, plain

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x00\x9b31m\u202eabc\u2066\ud800\u2028\r\n\x7f\U000e0041"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order 17", "order 17"),
        ("Grüße, 世界 🙂", "Grüße, 世界 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u202etxt", "\\u202etxt"),
        ("\ud800", "\\ud800"),
        ("\x9b31m", "\\x9b31m"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u00a0b\u2003c", "a b c"),
    ],
)
def test_what_could_act_on_a_terminal_is_written_out(text, shown):
    assert plain(text) == shown


def test_lines_are_kept_where_they_are_wanted_and_nothing_else():
    assert plain("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"


def test_a_long_text_is_cut_and_says_so():
    assert plain("x" * 50, limit=10) == "x" * 10 + "… (50 characters)"


def test_hostile_text_comes_out_printable():
    assert plain(HOSTILE).isprintable()


def test_escaped_json_means_the_same_and_is_printable():
    value = {"a": HOSTILE.replace("\ud800", ""), "ü": "世界"}

    text = escaped_json(json.dumps(value, ensure_ascii=False))

    assert json.loads(text) == value
    assert text.isprintable()


def test_a_lone_surrogate_does_not_stop_json():
    assert json.loads(json_text({"key": "a\ud800b"})) == {"key": "a\\ud800b"}
