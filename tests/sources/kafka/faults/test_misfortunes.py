"""Whatever a worker process meets costs the record that brought it and no other: alone and in the midst of a batch."""

from __future__ import annotations

import pytest
from tests.sources.kafka import workers
from tests.sources.kafka.stage import running, until

pytestmark = pytest.mark.slow
FATES = [
    ("killed", "worker_died"),
    ("segfault", "worker_died"),
    ("exits", "worker_died"),
    ("hangs", "timeout"),
    ("hangs in c", "timeout"),
    ("memory", "retries_exhausted"),
    ("flood", "retries_exhausted"),
]


@pytest.mark.parametrize("batch_size", [None, 10], ids=["alone", "in a batch"])
@pytest.mark.parametrize(("fate", "disposition"), FATES, ids=[fate for fate, _ in FATES])
async def test_what_happens_to_a_worker_process_costs_only_the_record_that_brought_it(
    stage, tmp_path, capfd, fate, disposition, batch_size
):
    stage.create()
    own = [("book", str(tmp_path / "book").encode())]
    values = [fate.encode() if n == 5 else b"%d" % n for n in range(20)]
    stage.produce([{"value": value, "key": b"%d" % n, "headers": own} for n, value in enumerate(values)])
    worker = workers.meets_its_fate if batch_size is None else workers.batch_meets_its_fate
    execution = {"mode": "process", "batch_size": batch_size, "task_timeout_ms": 1000, "max_retries": 2}
    async with running(stage.consumer(worker, execution=execution)):
        await until(lambda: stage.committed() == 20)
    [letter] = stage.dead_letters()
    headers = dict(letter.headers())
    assert (letter.value(), headers["x-redrive-disposition"].decode()) == (fate.encode(), disposition)
    assert len(headers["x-error-reason"]) < 10_000
    handled = (tmp_path / "book").read_text().split()
    assert set(handled) == {value.decode() for n, value in enumerate(values) if n != 5}
