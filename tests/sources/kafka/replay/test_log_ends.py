"""The ends of a log whose partition has no leader yet."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from redrive.sources.kafka.replay.log_ends import log_ends
from redrive.testing import FakeClock

PLACE = TopicPartition("orders.dlq", 0)


class Electing:
    """A client whose broker elects a leader: it refuses some requests."""

    def __init__(self, refusals: int, code: int) -> None:
        self.left, self.code = refusals, code

    def get_watermark_offsets(self, place: TopicPartition, limit: float) -> tuple[int, int]:
        assert place is PLACE
        if self.left:
            self.left -= 1
            raise KafkaException(KafkaError(self.code))
        return 3, 8


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_partition_without_a_leader_is_asked_again(code):
    assert log_ends(Electing(3, code), PLACE, 15.0, FakeClock()) == (3, 8)


def test_a_partition_that_gets_no_leader_is_an_error_after_the_limit():
    clock = FakeClock()
    start = clock.monotonic()
    with pytest.raises(KafkaException):
        log_ends(Electing(10_000, KafkaError.LEADER_NOT_AVAILABLE), PLACE, 15.0, clock)
    assert clock.monotonic() - start == pytest.approx(15.0, abs=0.2)


def test_any_other_refusal_is_an_error_at_once():
    clock = FakeClock()
    start = clock.monotonic()
    with pytest.raises(KafkaException):
        log_ends(Electing(1, KafkaError.TOPIC_AUTHORIZATION_FAILED), PLACE, 15.0, clock)
    assert clock.monotonic() - start == 0
