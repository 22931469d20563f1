"""
What users of an earlier parallel consumer saw, played with pyrallel-consumer and redrive on one broker.

Owns which scenes are played, what is counted in each, and that redrive must have none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.servers.kafka import Broker, Missing

from benchmarks import scenes_commits, scenes_lost, scenes_waiting
from benchmarks.fresh import ABSENT, measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table
from benchmarks.scenes_stage import PYRALLEL

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 3


@dataclass(frozen=True, slots=True)
class Act:
    """Scenes in which the same is counted; the quick form plays the first of them."""

    title: str
    unit: str
    scenes: tuple[tuple[str, Callable[..., dict[str, int]]], ...]


ACTS = (
    Act("Lost: committed, though neither handled nor dead-lettered", "records lost", (
        ("max_retries=0", scenes_lost.no_tries),
        ("the dead-letter topic does not exist, 3 of 20 fail", scenes_lost.no_dead_letter_topic),
        ("in a worker process one record always takes too long", scenes_lost.a_time_limit_passes),
    )),
    Act("Stuck: neither handled nor dead-lettered after 20 s", "records stuck", (
        ("in a worker process one handler raises TimeoutError", scenes_lost.a_timeout_error_of_its_own),
        ("a worker process is killed once", scenes_lost.a_worker_dies),
        ("records of 300 kB in worker processes", scenes_lost.large_records),
    )),
    Act("Handled, but not committed after 10 s", "records", (
        ("the log begins late: older records have expired", scenes_commits.a_log_that_begins_late),
        ("the topic is written in transactions", scenes_commits.transactions),
    )),
    Act("Restarts and rebalances", "times", (
        ("a second member joins: a key runs twice at the same time", scenes_commits.a_second_member),
        ("a restart, one record stuck: a done record runs again", scenes_commits.a_restart),
        ("a partition went and came back: a run of before is committed", scenes_commits.a_late_end),
    )),
    Act("Healthy records of other keys that still wait after 10 s", "records", (
        ("as many as may run at once wait for their next try", scenes_waiting.retries_in_all_slots),
        ("one record waits for its next try, one worker process", scenes_waiting.a_retry_in_a_process),
        ("20 dead letters cannot be published", scenes_waiting.no_way_to_publish),
    )),
    Act("Dead letters", "times", (
        ("a hopeless error is tried again", scenes_waiting.no_other_try_helps),
        ("room for 10 of 50 large records: a dead letter without value", scenes_waiting.a_small_cache),
    )),
)  # fmt: skip


def run(*, quick: bool) -> Report:
    """Play everything, one scene at a time, on a broker of our own."""
    report = Report(name="scenes", quick=quick)
    try:
        with Broker() as broker:
            for act in ACTS:
                rows = _played(act, broker.bootstrap, report, quick=quick)
                report.tables.append(Table(title=act.title, unit=act.unit, rows=rows))
    except Missing as why:
        report.notes.append(f"Nothing was played: {why}")
        return report
    wrong = sum(sum(row.runs) for table in report.tables for row in table.rows if row.ours)
    what = "redrive: everything counted, in all scenes and runs"
    report.ratios.append(Ratio(what=what, value=wrong, bar=0, at_least=False, unit="times"))
    return report


def _played(act: Act, bootstrap: str, report: Report, *, quick: bool) -> list[Row]:
    chosen = act.scenes[:1] if quick else act.scenes
    found = [
        _row(who, setting, case, bootstrap, runs=1 if quick else RUNS)
        for setting, case in chosen
        for who in ("redrive", PYRALLEL)
    ]
    missing = f"{PYRALLEL} is not installed here; its rows are missing."
    if None in found and missing not in report.notes:
        report.notes.append(missing)
    return [row for row in found if row]


def _row(who: str, setting: str, case: Callable[..., Any], bootstrap: str, *, runs: int) -> Row | None:
    answers = [_answer(who, case, bootstrap) for _ in range(runs)]
    if any(ABSENT in answer for answer in answers):
        return None
    counts = tuple(float(answer["wrong"]) for answer in answers)
    return Row(name=who, setting=setting, n=answers[0]["n"], runs=counts, ours=who == "redrive")


def _answer(who: str, case: Callable[..., Any], bootstrap: str) -> dict[str, Any]:
    with new_folder() as folder:
        return measure(case, folder, bootstrap=bootstrap, who=who)
