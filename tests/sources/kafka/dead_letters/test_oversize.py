"""Dead letters that are too large for their topic: cut only with a pointer to the whole, and sent home whole."""

from __future__ import annotations

import pytest
from tests.sources.kafka.stage import running, until

from redrive import Reject
from redrive.errors import SourceError
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import replay

LARGE = b"x" * 50_000


@pytest.fixture
def narrow(stage):
    """A dead-letter topic that takes less than its source."""
    stage.create()
    stage.create(topic=stage.dlq, max_message_bytes="10000")
    return stage


async def rejects(record):
    raise Reject("no")


async def test_long_headers_are_left_out_before_anything_of_the_value(narrow):
    narrow.produce([{"value": b"v", "headers": [("own", LARGE)]}])
    async with running(narrow.consumer(rejects)):
        await until(lambda: narrow.committed() == 1)
    [letter] = narrow.dead_letters()
    assert letter.value() == b"v"
    assert "source-topic" in dict(letter.headers())
    assert "own" not in dict(letter.headers())


async def test_a_value_that_does_not_fit_is_kept_in_a_file_and_replayed_whole(narrow, tmp_path):
    narrow.produce([{"value": LARGE, "key": b"k"}])
    async with running(narrow.consumer(rejects, dlq_spill_folder=str(tmp_path))):
        await until(lambda: narrow.committed() == 1)
    [letter] = narrow.dead_letters()
    headers = dict(letter.headers())
    assert LARGE.startswith(letter.value())
    assert headers["x-redrive-payload-size"] == b"50000"
    assert (tmp_path / headers["x-redrive-payload-sha256"].decode()).read_bytes() == LARGE
    with pytest.raises(SourceError, match="was not sent"):
        replay(narrow.kafka(), narrow.dlq, Filter())  # without the folder it would go home cut
    assert replay(narrow.kafka(dlq_spill_folder=str(tmp_path)), narrow.dlq, Filter()).replayed == 1
    assert [message.value() for message in narrow.read()] == [LARGE, LARGE]


async def test_without_a_folder_a_value_that_does_not_fit_halts_its_partition(narrow):
    narrow.produce([{"value": LARGE}])
    consumer = narrow.consumer(rejects)
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        assert narrow.dead_letters() == []
    assert narrow.committed() in {None, 0}


async def test_a_pointer_names_the_record_that_has_the_value(narrow):
    narrow.produce([{"value": LARGE}])
    async with running(narrow.consumer(rejects, dlq_oversize="pointer")):
        await until(lambda: narrow.committed() == 1)
    [letter] = narrow.dead_letters()
    assert dict(letter.headers())["x-redrive-payload-ref"] == f"kafka:{narrow.topic}/0@0".encode()
