"""Power cuts: whatever a caller was told survives them, and the file is sound."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import Nursery
from tests.torture.recorder import Disk, Op
from tests.torture.runs import powercut

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture

RUNS, CUTS, SEED = 20, 1_000, 7_000
REPLAY = 'python -c "from tests.torture import powercut; print(powercut.cut_run({}, {}))"'


def test_no_power_cut_loses_what_was_acknowledged(tmp_path: Path):
    processes = min(2, os.cpu_count() or 1)
    results = [tmp_path / f"{number}.json" for number in range(processes)]
    with Nursery() as nursery:
        share = RUNS // processes
        pids = [
            nursery.start(
                "tests.torture.runs.powercut:batch",
                first_seed=SEED + number * share,
                runs=share,
                cuts=CUTS,
                result=str(path),
            )
            for number, path in enumerate(results)
        ]
        assert [nursery.wait(pid, 600) for pid in pids] == [0] * processes
    reports = [report for path in results for report in json.loads(path.read_text())]
    bad = [report for report in reports if report["problems"]]
    assert not bad, f"replay: {REPLAY.format(bad[0]['seed'], CUTS)}\n{bad[0]}"
    assert sum(report["cuts"] for report in reports) == RUNS * CUTS
    assert sum(report["answers"] for report in reports) > 10 * RUNS * CUTS
    assert sum(report["reopened"] for report in reports) > RUNS


def test_the_model_disk_keeps_what_was_synced_and_only_that_for_sure():
    disk = Disk()
    disk.take(Op("write", "f", 0, b"a" * 1_024))
    disk.take(Op("sync", "f"))
    disk.take(Op("write", "f", 512, b"b" * 1_024))
    images = {bytes(disk.cut(random.Random(seed))["f"]) for seed in range(200)}
    assert all(image[:512] == b"a" * 512 for image in images)
    assert b"a" * 1_024 in images  # dropped
    assert b"a" * 512 + b"b" * 1_024 in images  # kept
    assert b"a" * 512 + b"b" * 512 in images  # torn


def test_a_store_that_does_not_sync_is_caught(tmp_path: Path):
    with Nursery() as nursery:
        pid = nursery.start(
            "tests.torture.sqlite.test_powercut:cut_a_store_that_does_not_sync", result=str(tmp_path / "r")
        )
        assert nursery.wait(pid, 600) == 0
    assert json.loads((tmp_path / "r").read_text())


def cut_a_store_that_does_not_sync(result: str) -> None:
    from pathlib import Path  # noqa: PLC0415 - runs in a process of its own

    report = powercut.cut_run(SEED, CUTS, mutant="no_sync")
    Path(result).write_text(json.dumps(report.problems))
