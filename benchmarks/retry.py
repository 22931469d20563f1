"""
What a retry decorator costs when nothing fails.

Owns the contenders and their settings. All of them are timed by turns in one process, three
processes one after the other; overhead is what a call costs more than the bare one.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.fresh import measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table
from redrive import RetryPolicy, retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Contender = tuple[str, str, Callable[[int], int], Callable[[int], Awaitable[int]]]

BARE = ("bare call", "")
A_TENTH = 0.1


def run(*, quick: bool) -> Report:
    """Measure the success path, sync and async."""
    report = Report(name="retry", quick=quick)
    calls, rounds, runs = (2_000, 3, 1) if quick else (20_000, 7, 3)
    with new_folder() as folder:
        found = [measure(success_path, folder, calls=calls, rounds=rounds) for _ in range(runs)]
    for form in ("sync", "async"):
        rows = [
            Row(
                name=name, setting=setting, n=calls, runs=tuple(_times(found, name, setting, form)), ours=_is_ours(name)
            )
            for name, setting in (tuple(key.split("|")) for key in found[0][form])
        ]
        report.tables.append(Table(title=f"A call that succeeds, {form}", unit="ns a call", rows=rows))
        report.ratios += _ratios(rows, form)
    return report


def _times(found: list[dict[str, Any]], name: str, setting: str, form: str) -> list[float]:
    return [float(one[form][f"{name}|{setting}"]) for one in found]


def _is_ours(name: str) -> bool:
    return name == "redrive"


def _ratios(rows: list[Row], form: str) -> list[Ratio]:
    """Set the dearest of ours beside each peer's form."""
    bare = next(row.median for row in rows if row.name == BARE[0])
    ours = max(row.median for row in rows if row.ours) - bare
    return [
        Ratio(
            what=f"{form}: overhead beside {row.name} {row.setting}",
            value=ours / (row.median - bare),
            bar=A_TENTH,
            at_least=False,
        )
        for row in rows
        if not row.ours and row.name != BARE[0]
    ]


# ---------------------------------------------------------------------- in a process of its own


def success_path(folder: Path, calls: int, rounds: int) -> dict[str, dict[str, float]]:  # noqa: ARG001 - a case has one
    """Return nanoseconds a call, by form and contender."""
    contenders = _contenders()
    sync: dict[str, list[float]] = {}
    asynchronous: dict[str, list[float]] = {}
    for _ in range(rounds):  # by turns: a change of pace hits all alike
        for name, setting, function, coroutine in contenders:
            sync.setdefault(f"{name}|{setting}", []).append(_time(function, calls))
            asynchronous.setdefault(f"{name}|{setting}", []).append(asyncio.run(_time_async(coroutine, calls)))
    return {"sync": _medians(sync), "async": _medians(asynchronous)}


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(found) for name, found in times.items()}


def _time(function: Callable[[int], int], calls: int) -> float:
    numbers = range(calls)
    start = time.perf_counter_ns()
    for number in numbers:
        function(number)
    spent = time.perf_counter_ns() - start
    assert function(7) == 7
    return spent / calls


async def _time_async(function: Callable[[int], Awaitable[int]], calls: int) -> float:
    numbers = range(calls)
    start = time.perf_counter_ns()
    for number in numbers:
        await function(number)
    spent = time.perf_counter_ns() - start
    assert await function(7) == 7
    return spent / calls


def _call(number: int) -> int:
    return number


async def _call_async(number: int) -> int:
    return number


def _contenders() -> list[Contender]:
    policy = RetryPolicy.exponential(first=1, cap=10, max_attempts=3)
    return [
        (*BARE, _call, _call_async),
        ("redrive", "@retry", retry(_call), retry(_call_async)),
        ("redrive", "@retry(policy)", retry(policy)(_call), retry(policy)(_call_async)),
        *_tenacity(),
        *_stamina(),
    ]


def _tenacity() -> list[Contender]:
    import tenacity  # noqa: PLC0415 - only in the process that measures it

    tuned: dict[str, Any] = {
        "stop": tenacity.stop_after_attempt(3),
        "wait": tenacity.wait_random_exponential(max=10),
        "retry": tenacity.retry_if_exception_type(ValueError),
        "reraise": True,
    }

    def loop(number: int) -> int:
        for attempt in tenacity.Retrying(**tuned):
            with attempt:
                return _call(number)
        raise AssertionError

    async def loop_async(number: int) -> int:
        async for attempt in tenacity.AsyncRetrying(**tuned):
            with attempt:
                return await _call_async(number)
        raise AssertionError

    return [
        ("tenacity", "@retry", tenacity.retry(_call), tenacity.retry(_call_async)),
        ("tenacity", "@retry(tuned)", tenacity.retry(**tuned)(_call), tenacity.retry(**tuned)(_call_async)),
        ("tenacity", "for attempt in Retrying(tuned)", loop, loop_async),
    ]


def _stamina() -> list[Contender]:
    import stamina  # noqa: PLC0415

    decorate = stamina.retry(on=ValueError, attempts=3)

    def loop(number: int) -> int:
        for attempt in stamina.retry_context(on=ValueError, attempts=3):
            with attempt:
                return _call(number)
        raise AssertionError

    async def loop_async(number: int) -> int:
        async for attempt in stamina.retry_context(on=ValueError, attempts=3):
            with attempt:
                return await _call_async(number)
        raise AssertionError

    return [
        ("stamina", "@retry(on=ValueError)", decorate(_call), decorate(_call_async)),
        ("stamina", "for attempt in retry_context(…)", loop, loop_async),
    ]
