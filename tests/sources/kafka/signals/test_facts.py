"""What a consumer says of itself: that it starts, which partitions it gets and loses, and that it stops."""

from __future__ import annotations

import asyncio
import re

import pytest
import structlog
from tests.sources.kafka.stage import LIMIT, running, until

from redrive.errors import SourceError
from redrive.sources.kafka.facts import named


@pytest.fixture(autouse=True)
def _standard_log():
    """Another test of this process may have set up structlog."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def said(caplog, group):
    """Return what was said of *group*, by the last word of each fact's name and its fields as text."""
    lines = [
        each.getMessage() for each in caplog.records if each.name == "redrive" and repr(group) in each.getMessage()
    ]
    return [(re.match(r"redrive\.kafka\.\w+\.(\w+)", line)[1], line) for line in lines]


def test_partitions_are_named_by_topic_and_in_spans():
    assert named([("b", 3), ("a", 0), ("b", 1), ("b", 2), ("b", 7)]) == ("a[0]", "b[1-3,7]")
    assert named([]) == ()


async def test_the_log_says_that_it_starts_which_partitions_it_has_and_that_it_stops(stage, caplog):
    caplog.set_level("INFO", "redrive")
    stage.create(partitions=4)
    stage.produce([{"value": b"x"}])
    async with running(stage.consumer(lambda record: None)) as task:
        await until(lambda: task.done() or (sum(stage.committed(n) or 0 for n in range(4)) == 1))
    started, assigned, *_, stopped = said(caplog, stage.group)
    assert (started[0], f"topics=['{stage.topic}']" in started[1]) == ("started", True)
    assert (assigned[0], f"partitions=['{stage.topic}[0-3]'] assigned=4" in assigned[1]) == ("assigned", True)
    assert (stopped[0], "why='stopped' processed=1 failed=0" in stopped[1]) == ("stopped", True)


async def test_the_log_says_which_partitions_go_to_another_member(stage, caplog):
    caplog.set_level("INFO", "redrive")
    stage.create(partitions=2)
    first, second = (stage.consumer(lambda record: None) for _ in range(2))
    async with running(first):
        await until(lambda: first.assigned == 2)
        async with running(second):
            await until(lambda: (first.assigned, second.assigned) == (1, 1))
    [(_, revoked)] = [line for line in said(caplog, stage.group) if line[0] == "revoked"]
    assert re.search(rf"partitions=\['{re.escape(stage.topic)}\[[01]\]'\] assigned=1 lost=False", revoked)


async def test_the_log_says_why_it_stopped_if_nobody_asked_it_to(stage, caplog):
    caplog.set_level("INFO", "redrive")
    stage.create()
    stage.create(topic=stage.dlq, cleanup_policy="compact")
    with pytest.raises(SourceError):
        await asyncio.wait_for(stage.consumer(lambda record: None).run(), LIMIT)
    assert "compact" in said(caplog, stage.group)[-1][1]
