"""Whatever an exception is, what is kept of it can be stored, sent and shown."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.failures.describe import FRAMES_LIMIT, MESSAGE_LIMIT, clean, describe, leaves
from redrive.errors import Reject


class Angry(Exception):
    def __str__(self):
        raise SystemExit(3)

    def __repr__(self):
        raise RuntimeError


class Mute(Exception):
    def __str__(self):
        return None  # noqa: PLE0307 - what it is for


class Sly(str):
    __slots__ = ()

    def __getitem__(self, key):
        raise RuntimeError

    def __len__(self):
        return 3

    def isprintable(self):
        raise RuntimeError


class Crooked(Exception):
    def __str__(self):
        return Sly("all is well")


class Bomb(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Liar(type):
    def __getattribute__(cls, name):
        if name == "__qualname__":
            return 7
        raise RuntimeError(name)


def raised(error: BaseException, depth: int = 0) -> BaseException:
    try:
        fall(error, depth)
    except BaseException as caught:  # noqa: BLE001
        return caught


def fall(error: BaseException, depth: int) -> None:
    if depth:
        fall(error, depth - 1)
    raise error


def circle() -> Exception:
    first, second = ValueError("one"), KeyError("two")
    first.__cause__, second.__cause__ = second, first
    return first


def nest(depth: int) -> Exception:
    error: Exception = ValueError("deep")
    for _ in range(depth):
        error = ExceptionGroup("g", [error])
    return error


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (ValueError("boom"), "ValueError", "boom"),
        (ValueError(), "ValueError", ""),
        (KeyError("order"), "KeyError", "'order'"),
        (json.JSONDecodeError("no", "x", 0), "json.decoder.JSONDecodeError", "no: line 1 column 1 (char 0)"),
        (Reject("no such order"), "Reject", "no such order"),
        (Angry(), "test_describe.Angry", "(its text cannot be read: SystemExit)"),
        (Mute(), "test_describe.Mute", "(its text cannot be read: TypeError)"),
        (Crooked(), "test_describe.Crooked", "all is well"),
        (ValueError("a\0b\x1b[31m\ud800\r\n\tc"), "ValueError", "a�b�[31m�\n\tc"),
    ],
)
def test_type_and_message_are_read_whatever_they_do(error, name, message):
    error_type, said, _ = describe(error)
    assert (error_type.rpartition("test_describe")[2], said) == (name.rpartition("test_describe")[2], message)


def test_an_error_that_raises_when_asked_for_anything_is_read():
    assert describe(Bomb("tick"))[1:] == ("tick", ())


def test_a_type_that_lies_about_its_name_is_still_named():
    assert describe(Liar("Odd", (Exception,), {})("x"))[:2] == ("?", "x")


def test_a_type_name_is_cut_and_cleaned():
    name = describe(type("A\x1b" * 10_000, (Exception,), {})())[0]
    assert len(name) <= 200
    assert "\x1b" not in name


def test_a_text_of_100_megabytes_is_cut_and_says_so():
    said = describe(ValueError("x" * 100_000_000))[1]
    assert len(said) == MESSAGE_LIMIT
    assert said.endswith("(cut, it had 100000000 characters)")


def test_causes_are_named():
    error = RuntimeError("could not ship")
    error.__cause__ = ConnectionError("refused")
    assert describe(error)[1] == "could not ship\ncaused by ConnectionError: refused"


def test_causes_that_run_in_circles_are_named_once():
    assert describe(circle())[1] == "one\ncaused by KeyError: 'two'"


def test_a_group_is_summed_up():
    group = ExceptionGroup("many", [ValueError(n) for n in range(5)])
    assert describe(group)[1].split("\n") == [
        "many (5 sub-exceptions)",
        "- ValueError: 0",
        "- ValueError: 1",
        "- ValueError: 2",
        "- and 2 more",
    ]


def test_groups_are_opened_however_deep_and_however_many_they_hold():
    assert [str(error) for error in leaves(nest(1_000))] == ["deep"]
    assert len(leaves(ExceptionGroup("g", [ValueError()] * 100_000))) == 100
    assert leaves(ValueError()) == []


def test_frames_are_of_the_users_code_and_outermost_first():
    frames = describe(raised(ValueError("x"), 1))[2]
    assert [frame.rpartition(":")[2] for frame in frames] == ["raised", "fall", "fall"]


def test_frames_of_libraries_are_left_out_beside_the_users_own():
    try:
        json.loads("{")
    except ValueError as error:
        frames = describe(error)[2]
    assert len(frames) == 1
    assert frames[0].endswith(":test_frames_of_libraries_are_left_out_beside_the_users_own")


def test_frames_of_libraries_are_kept_when_there_are_no_others():
    try:
        json.loads("{")
    except ValueError as error:
        frames = describe(error.with_traceback(error.__traceback__.tb_next))[2]
    assert frames[0] == "json:loads"


def test_our_own_frames_are_never_shown():
    ours = {"__name__": "redrive.engine.attempt", "error": ValueError("x")}
    exec("def run():\n    raise error", ours)  # noqa: S102 - the frame must look like ours
    try:
        ours["run"]()
    except ValueError as error:
        frames = describe(error)[2]
    assert [frame.rpartition(":")[2] for frame in frames] == ["test_our_own_frames_are_never_shown"]


def test_a_deep_recursion_keeps_its_innermost_frames():
    limit = sys.getrecursionlimit()
    frames = describe(raised(ValueError("x"), limit // 2))[2]
    assert len(frames) == FRAMES_LIMIT


def test_an_error_that_was_never_raised_has_no_frames():
    assert describe(ValueError("x"))[2] == ()


@given(st.text(st.characters(), max_size=300), st.integers(0, 300))
def test_cleaned_text_fits_is_sendable_and_stays_as_it_is(text, limit):
    cleaned = clean(text, limit)
    assert len(cleaned) <= limit
    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned, limit) == cleaned


@given(st.text(st.sampled_from("\0\x1b\x7f\x9b\ud800\udfffé€\n\r x"), max_size=50))
def test_no_control_and_no_lone_surrogate_survives(text):
    assert not set(clean(text, 100)) & set("\0\x1b\x7f\x9b\ud800\udfff\r")


def test_a_surrogate_in_a_message_reads_as_a_replacement():
    assert clean("é\ud800", 10) == "é�"
