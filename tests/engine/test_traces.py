"""Where a failure came from: frames and source lines, bounded, without values."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.engine.starting import attempt, letter

from redrive.core.classify import KAFKA
from redrive.engine.attempt import attempt_now
from redrive.engine.handler import build_handler
from redrive.engine.traces import LIMIT, trace_of
from redrive.errors import Reject

HERE = __name__


def divide(order: dict) -> float:
    hidden = "hunter2-of-a-variable"
    return order["total"] / len(hidden[:0])


def caught(function, *given) -> BaseException:
    try:
        function(*given)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is what is looked at
        return error
    raise AssertionError("it raised nothing")


def failed(function, payload: bytes = b'{"total": 12345}', **options):
    """Return the failure of a handler that runs in this thread."""
    return attempt_now(build_handler("order", function, **options), letter(payload=payload)).failure


def test_a_failure_names_file_line_source_and_place():
    failure = failed(divide)
    line = divide.__code__.co_firstlineno + 2
    assert failure.place == f"{HERE}:divide:{line}"
    assert failure.traceback.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{__file__}", line {line}, in {HERE}:divide',
        '    return order["total"] / len(hidden[:0])',
        "ZeroDivisionError: division by zero",
    ]


def test_no_value_of_a_variable_and_no_payload_is_in_it():
    assert "hunter2" not in failed(divide).traceback
    assert "12345" not in failed(divide).traceback


def test_frames_of_redrive_itself_are_left_out():
    assert "redrive/engine" not in failed(divide).traceback
    assert "redrive.engine" not in failed(divide).traceback


async def test_an_async_handler_has_one_too():
    async def ship(order: dict) -> None:
        await asyncio.sleep(0)
        divide(order)

    failure = (await attempt(build_handler("order", ship), letter(payload=b'{"total": 1}'))).failure
    assert failure.place.startswith(f"{HERE}:divide:")
    assert "in tests.engine.test_traces:test_an_async_handler_has_one_too.<locals>.ship" in failure.traceback


def test_a_library_is_shown_but_the_place_is_in_the_users_code():
    def read(order: dict) -> None:
        os.path.join(1, 2)  # type: ignore[call-overload]  # noqa: PTH118 - raises inside the standard library

    failure = failed(read)
    assert failure.place.split(":")[1].endswith("read")
    assert "in genericpath:" in failure.traceback or "in posixpath:" in failure.traceback


def test_a_cause_comes_first_and_a_suppressed_one_not_at_all():
    def chained(order: dict) -> None:
        try:
            divide(order)
        except ZeroDivisionError as error:
            raise KeyError("later") from error

    def during(order: dict) -> None:
        try:
            divide(order)
        except ZeroDivisionError:
            raise KeyError("later")  # noqa: B904 - that is the point

    def hidden(order: dict) -> None:
        try:
            divide(order)
        except ZeroDivisionError:
            raise KeyError("later") from None

    assert failed(chained).traceback.index("ZeroDivisionError") < failed(chained).traceback.index("direct cause of")
    assert "During handling" in failed(during).traceback
    assert "ZeroDivisionError" not in failed(hidden).traceback
    assert failed(chained).place.split(":")[1].endswith("chained")


def test_a_group_shows_its_members():
    def grouped(order: dict) -> None:
        raise ExceptionGroup("many", [caught(divide, order), *(ValueError(str(n)) for n in range(5))])

    lines = failed(grouped).traceback.splitlines()
    assert any("ExceptionGroup: many" in line for line in lines)
    assert "  | ZeroDivisionError: division by zero" in lines
    assert "  | and 3 more" in lines


def test_a_deep_recursion_is_bounded_and_its_innermost_frames_are_kept():
    def deep(order: dict, left: int = 400) -> None:
        if not left:
            divide(order)
        deep(order, left - 1)

    failure = failed(deep)
    assert len(failure.traceback) <= LIMIT
    assert "frames further out" in failure.traceback
    assert failure.traceback.endswith("ZeroDivisionError: division by zero")
    assert failure.place.startswith(f"{HERE}:divide:")


def test_it_is_bounded_however_long_texts_and_chains_are():
    def chain(order: dict, left: int = 50) -> None:
        try:
            if left:
                chain(order, left - 1)
            raise ValueError("x" * 100_000)  # noqa: TRY301 - the innermost of the chain
        except ValueError as error:
            raise KeyError("y" * 100_000) from error

    assert len(failed(chain).traceback) <= LIMIT


def test_a_text_cannot_pass_for_a_frame_or_act_on_a_terminal():
    def forge(order: dict) -> None:
        raise ValueError('x\n  File "other.py", line 1, in other\nred\x1b[31m\ud800')

    text = failed(forge).traceback
    assert '\n  File "other.py"' not in text
    assert "\x1b" not in text
    text.encode()


def test_what_cannot_be_read_as_source_is_no_problem(tmp_path):
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)  # reading it would wait for ever
    for name in (str(pipe), "<string>", "/dev/zero", "/no/such/file.py"):
        code = compile("def explode(order):\n    raise ValueError('no')\n", name, "exec")
        space: dict = {"__name__": "made"}
        exec(code, space)  # noqa: S102 - our own text
        trace = trace_of(caught(space["explode"], {}))
        assert "line 2, in made:explode" in trace.text
        assert trace.place == "made:explode:2"


def test_hostile_exceptions_still_get_a_verdict():
    class Hostile(Exception):
        @property
        def __cause__(self):
            raise SystemExit

        def __str__(self):
            raise RuntimeError

    def raises(order: dict) -> None:
        raise Hostile

    failure = failed(raises)
    assert (failure.error_type.rpartition(".")[2], failure.terminal) == ("Hostile", False)


def test_a_payload_that_does_not_decode_has_none():
    async def ship(order: int) -> None: ...

    failure = failed(ship, b'"4111-1111"', engine="thread")
    assert (failure.traceback, failure.place) == ("", "")


def test_where_nobody_wants_it_nothing_is_paid_for_it():
    assert failed(divide, rules=KAFKA).traceback == ""


def test_groups_do_not_depend_on_lines():
    def one(order: dict) -> None:
        if order["total"] == 1:
            raise ValueError("no")
        raise ValueError("no")

    first, second = failed(one, b'{"total": 1}'), failed(one, b'{"total": 2}')
    assert first.place != second.place
    assert first.fingerprint == second.fingerprint


def test_a_reject_has_one_too():
    def refuse(order: dict) -> None:
        raise Reject("no")

    assert failed(refuse).place.endswith(f":{refuse.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize("sources", [True, False])
def test_a_circle_of_causes_ends(sources):
    first, second = caught(divide, {"total": 1}), caught(divide, {"total": 2})
    if sources:
        first.__cause__, second.__cause__ = second, first
    else:
        first.__context__, second.__context__ = second, first
    assert trace_of(first).text.count("ZeroDivisionError") == 2
